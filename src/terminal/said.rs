//! What a program and its shell said of themselves that a later agent cannot see any more: kept beside
//! the screen in checkpoints, and told to attention again in the same order.

use serde::{Deserialize, Serialize};

use super::grid::{Effect, ProgramStatus, PromptMark};
use super::translate;
use crate::model::attention::Input;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Status(ProgramStatus),
    Mark(PromptMark),
}

impl Word {
    fn is_of_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Status(_), Self::Status(_)) => true,
            (Self::Mark(one), Self::Mark(two)) => {
                std::mem::discriminant(one) == std::mem::discriminant(two)
            }
            _ => false,
        }
    }
}

/// The last word of each kind since the last command began, oldest first; so it is never long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Said(Vec<Word>);

impl Said {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn note(&mut self, effect: &Effect) {
        let word = match effect {
            Effect::ProgramStatus(status) => Word::Status(status.clone()),
            Effect::PromptMark(mark) => Word::Mark(*mark),
            _ => return,
        };
        if word == Word::Mark(PromptMark::Output) {
            // A command begins: nothing that was said before is of it.
            self.0.clear();
        }
        self.0.retain(|before| !before.is_of_same_kind(&word));
        self.0.push(word);
    }

    /// The same for attention.
    pub fn inputs(self) -> impl Iterator<Item = Input> {
        self.0.into_iter().filter_map(|word| match word {
            Word::Status(status) => translate::program_status(status).map(Input::ProgramStatus),
            Word::Mark(mark) => Some(Input::PromptMark(translate::prompt_mark(mark))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_order_and_a_command_forgets_those_before_it() {
        let status = |state: &str| {
            Effect::ProgramStatus(ProgramStatus {
                state: Some(state.into()),
                ..ProgramStatus::default()
            })
        };
        let mut said = Said::default();
        let prompt = Effect::PromptMark(PromptMark::Prompt);
        for effect in [
            &status("done"),
            &prompt,
            &Effect::PromptMark(PromptMark::Output),
            &status("working"),
            &Effect::Bell,
            &status("blocked"),
            &Effect::PromptMark(PromptMark::Done { exit: Some(2) }),
            &prompt,
        ] {
            said.note(effect);
        }
        let text = serde_json::to_string(&said).unwrap();
        let again: Said = serde_json::from_str(&text).unwrap();
        assert_eq!(again, said);
        let inputs: Vec<String> = again
            .inputs()
            .map(|input| format!("{input:?}").chars().take(24).collect())
            .collect();
        assert_eq!(inputs.len(), 4, "{inputs:?}");
        assert!(inputs[0].contains("Run"), "{inputs:?}");
        assert!(inputs[1].contains("ProgramStatus"), "{inputs:?}");
        assert!(inputs[2].contains("End"), "{inputs:?}");
        assert!(inputs[3].contains("Prompt"), "{inputs:?}");
    }
}
