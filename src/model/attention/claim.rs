//! What one source says: claims from the terminal, the foreground process, and rules.

use std::sync::Arc;

use crate::base::{EpochMillis, limits};
use crate::wire::messages::attention::{Evidence, RuleTrial, Source, State, WaitKind};

use super::input::{Foreground, ProcessFacts};
use super::page::{self, Page};
use super::program;
use super::rules::{ProgramRules, RuleSet};

/// What a source alone would say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub source: Source,
    pub state: State,
    pub kind: Option<WaitKind>,
    /// A claim that is not firm stands only where no other is firm.
    pub firm: bool,
    pub what: String,
    pub detail: Option<String>,
    pub at: EpochMillis,
}

impl Claim {
    pub(super) fn evidence(&self) -> Evidence {
        Evidence {
            source: self.source,
            what: bounded(&self.what),
            at: self.at,
            detail: self.detail.as_deref().map(bounded),
        }
    }
}

/// Text cut to the limit of evidence.
pub(super) fn bounded(text: &str) -> String {
    if text.chars().count() <= limits::ATTENTION_TEXT_MAX {
        return text.to_owned();
    }
    let cut: String = text.chars().take(limits::ATTENTION_TEXT_MAX - 1).collect();
    format!("{cut}…")
}

/// What one look saw, ready to be claimed from.
pub(super) struct Look<'a> {
    pub facts: &'a ProcessFacts,
    pub page: &'a Page,
    pub alternate: bool,
    /// The rules of the program in the foreground.
    pub rules: Option<&'a ProgramRules>,
    /// Output has not stopped since the look became due.
    pub flowing: bool,
    /// Processor time used since the look before; `None` when unknown.
    pub cpu: Option<u64>,
    pub now: EpochMillis,
}

impl Look<'_> {
    fn claim(
        &self,
        source: Source,
        state: State,
        kind: Option<WaitKind>,
        firm: bool,
        what: String,
    ) -> Claim {
        Claim {
            source,
            state,
            kind,
            firm,
            what,
            detail: None,
            at: self.now,
        }
    }

    /// The claim of the terminal's settings and of who reads it.
    pub(super) fn terminal(&self) -> Option<Claim> {
        let foreground = self.facts.foreground.as_ref();
        let name = foreground.map_or_else(|| "a program".to_owned(), program::label);
        let lines = self.facts.canonical == Some(true);
        let blocked = self.facts.blocked_reading_terminal;
        if lines && self.facts.echo == Some(false) && blocked != Some(false) && !self.flowing {
            return self.secret(&name);
        }
        if blocked != Some(true) {
            return self.flow();
        }
        let agent = self.rules.is_some();
        match foreground {
            Some(shell) if shell.is_shell => Some(self.shell(shell, &name, lines)),
            Some(relay) if program::is_relay(relay) && !lines => None,
            _ if self.rules.is_some_and(ProgramRules::always_reads) && !lines => None,
            _ if lines => {
                let what = format!("{name} waits for a line of input");
                Some(self.asks(what, !agent))
            }
            _ if self.alternate => {
                let what = format!("{name} rests in a full-screen view and reads the keyboard");
                Some(self.claim(Source::Terminal, State::Idle, None, false, what))
            }
            _ => Some(self.asks(format!("{name} waits for keys"), !agent)),
        }
    }

    fn asks(&self, what: String, firm: bool) -> Claim {
        let mut claim = self.claim(
            Source::Terminal,
            State::Waiting,
            Some(WaitKind::Question),
            firm,
            what,
        );
        claim.detail = self.page.prompt().map(bounded);
        claim
    }

    /// Line mode without echo: a secret is asked for. Firm when somebody is known to read, or the text
    /// before the cursor asks.
    fn secret(&self, name: &str) -> Option<Claim> {
        let asked = self
            .page
            .prompt()
            .is_some_and(|text| text.ends_with([':', '?', '>']));
        let reads = self.facts.blocked_reading_terminal == Some(true);
        let what = format!("{name} reads a line that is not shown: a password or another secret");
        let mut claim = self.claim(
            Source::Terminal,
            State::Waiting,
            Some(WaitKind::Auth),
            reads || asked,
            what,
        );
        claim.detail = self.page.prompt().map(bounded);
        Some(claim)
    }

    /// A shell that reads: at its prompt, or in its own `read`, which switches line mode on.
    fn shell(&self, shell: &Foreground, name: &str, lines: bool) -> Claim {
        if lines && program::edits_its_line(shell) {
            return self.asks(
                format!("a command of {name} waits for a line of input"),
                true,
            );
        }
        let what = format!("{name} is at its prompt");
        self.claim(Source::Terminal, State::Idle, None, true, what)
    }

    /// Output that does not stop speaks for work, though weakly: a dialog may blink.
    fn flow(&self) -> Option<Claim> {
        let what = "output flows without a pause".to_owned();
        self.flowing
            .then(|| self.claim(Source::Terminal, State::Working, None, false, what))
    }

    /// The claim of the foreground process.
    pub(super) fn process(&self) -> Option<Claim> {
        let foreground = self.facts.foreground.as_ref()?;
        let name = program::label(foreground);
        let blocked = self.facts.blocked_reading_terminal;
        if foreground.is_shell {
            return match blocked {
                Some(false) => {
                    let what = format!("{name} itself is busy");
                    Some(self.claim(Source::Process, State::Working, None, false, what))
                }
                Some(true) => None,
                None => {
                    let what = format!("{name} has the terminal, no other program runs in it");
                    Some(self.claim(Source::Process, State::Idle, None, false, what))
                }
            };
        }
        if program::is_relay(foreground) || self.rules.is_some_and(ProgramRules::always_reads) {
            return None;
        }
        match (blocked, self.cpu) {
            (Some(true), _) => None,
            (Some(false), _) => {
                let what = format!("{name} runs and does not read the terminal");
                Some(self.claim(
                    Source::Process,
                    State::Working,
                    None,
                    self.rules.is_none(),
                    what,
                ))
            }
            (None, Some(used)) if used > 0 => {
                let what = format!("{name} uses the processor");
                Some(self.claim(Source::Process, State::Working, None, false, what))
            }
            (None, _) => None,
        }
    }

    /// The claim of the rules, and every trial on the way.
    pub(super) fn screen(&self, set: &RuleSet) -> (Option<Claim>, Vec<RuleTrial>) {
        let mut trials = Vec::new();
        for rules in self.candidates(set) {
            for rule in &rules.rules {
                let trial = page::try_rule(&rules, rule, self.page);
                let detail = trial.rows.first().cloned();
                let matched = trial.matched;
                trials.push(trial);
                if matched {
                    let what = format!("the screen of {} shows: {}", rules.title, rule.name);
                    let mut claim = self.claim(Source::Screen, rule.state, rule.kind, true, what);
                    claim.detail = detail;
                    return (Some(claim), trials);
                }
            }
        }
        (None, trials)
    }

    /// Whose rules may speak: those of the foreground; where it is hidden or unknown, those of the program
    /// that the screen identifies; else those for any program, never for a shell at its prompt.
    fn candidates(&self, set: &RuleSet) -> Vec<Arc<ProgramRules>> {
        let foreground = self.facts.foreground.as_ref();
        let known = foreground.and_then(|foreground| set.of_process(foreground));
        if let Some(rules) = known {
            return vec![rules];
        }
        if foreground.is_none_or(program::is_relay) {
            let shown = set
                .specific()
                .find(|rules| page::identifies(rules, self.page));
            if let Some(rules) = shown {
                return vec![rules.clone()];
            }
        }
        if foreground.is_some_and(|foreground| foreground.is_shell) {
            return Vec::new();
        }
        set.generic().cloned().collect()
    }
}
