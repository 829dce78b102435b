//! Attention: who waits for a person, and on what evidence.
//!
//! A node publishes one `Attention` per terminal session. It names no console: whether somebody has
//! looked already is each console's own knowledge. Evidence may quote the screen in `detail`, which
//! never goes into an event; `Attention::for_event` leaves it out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::EpochMillis;

/// What a session's program is doing, as far as the evidence says.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Working,
    /// Goes on only when a person acts.
    Waiting,
    /// At its prompt, asks nothing.
    Idle,
    /// Ended its work since a person last typed here.
    Done,
    /// Ended its work with a failure since a person last typed here.
    Error,
    /// There is no evidence.
    #[default]
    Unknown,
    /// The session's program has ended.
    Exited,
}

/// What a person is wanted for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// To choose or to type an answer.
    Question,
    /// To allow or to refuse something.
    Permission,
    /// To prove who they are: a password, a key, a login.
    Auth,
}

/// Where evidence comes from, in rank order: an earlier one wins.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The session has ended.
    Lifecycle,
    /// The program said so itself (OSC 7501).
    ProgramStatus,
    /// The shell's marks around prompts and commands (OSC 133).
    Marks,
    /// A desktop notification (OSC 9, 777 or 99): wants attention, does not say for what.
    Notification,
    /// BEL: wants attention, does not say for what.
    Bell,
    /// The terminal's line settings and who blocks in reading it.
    Terminal,
    /// The foreground process and its use of the processor.
    Process,
    /// Rules about the title and the bottom rows of a known program.
    Screen,
    #[default]
    None,
}

/// One fact that a state rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    pub source: Source,
    /// A sentence for people, without text from the screen.
    pub what: String,
    /// When the fact was seen.
    pub at: EpochMillis,
    /// Text of the program: its message, the matched row. Bounded; local to those who may see the screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The published state of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attention {
    pub state: State,
    /// For `waiting`, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WaitKind>,
    /// The source that decided.
    pub source: Source,
    /// Since when the state holds; a new question in the same state starts anew.
    pub since: EpochMillis,
    /// The deciding fact first, then what supports it.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    /// The program, such as `claude`, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// Rises with every change of this record, from 0 for a session without evidence.
    pub revision: u64,
}

impl Attention {
    /// The same without any text of the program, for events and other nodes.
    pub fn for_event(&self) -> Self {
        let mut public = self.clone();
        for evidence in &mut public.evidence {
            evidence.detail = None;
        }
        public
    }
}

/// What one source says now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceView {
    pub source: Source,
    /// What this source alone would say; absent when it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WaitKind>,
    /// A firm claim decides; one that is not firm stands only where nothing firmer is said.
    pub firm: bool,
    /// Why it says so, or why it is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// One rule that was tried on the screen or the title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleTrial {
    /// The rule file, such as `claude`.
    pub program: String,
    pub rule: String,
    pub matched: bool,
    /// The rows that its conditions matched, top first; bounded.
    pub rows: Vec<String>,
    /// The first condition that did not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Why a session is in its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub attention: Attention,
    /// Every source in rank order.
    pub sources: Vec<SourceView>,
    /// One sentence: which source won and why.
    pub why: String,
    /// Rules in the order in which they were tried at the last look.
    pub rules: Vec<RuleTrial>,
    /// The rows that the rules saw at the last look, top first; bounded.
    pub rows: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_carries_no_text_of_the_program() {
        let attention = Attention {
            state: State::Waiting,
            kind: Some(WaitKind::Permission),
            evidence: vec![Evidence {
                source: Source::Screen,
                what: "a dialog asks".into(),
                at: EpochMillis(5),
                detail: Some("rm -rf secret".into()),
            }],
            ..Attention::default()
        };
        let text = serde_json::to_string(&attention.for_event()).unwrap();
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("\"state\":\"waiting\""), "{text}");
    }

    #[test]
    fn sources_sort_by_rank() {
        assert!(Source::ProgramStatus < Source::Marks);
        assert!(Source::Bell < Source::Terminal);
        assert!(Source::Process < Source::Screen);
        assert!(Source::Screen < Source::None);
    }
}
