//! Rules about titles and screens, as data: one TOML file per program.
//!
//! ```toml
//! name = "claude"                  # a user's file of the same name replaces the built-in one
//! title = "Claude Code"            # for people
//! programs = ["claude"]            # names of the process; `["*"]`: any program without rules of its own
//! apps = ["claude-code"]           # names in OSC 7501
//! reads = "always"                 # a full-screen program that always reads the terminal; or "lines"
//! identify = [{ text = "…" }]      # enough to know the program where the process is hidden (ssh)
//!
//! [[rule]]                         # tried in this order; the first that matches decides
//! name = "permission"
//! state = "waiting"                # working | waiting | idle | done | error
//! kind = "permission"              # with waiting: question | permission | auth, or absent
//! all = [{ text = "Esc to cancel", within = 2 }, { row = ["❯ 1.", "❯ 2."], within = 20 }]
//! none = [{ row = "$ " }]
//! ```
//!
//! A condition names one place and one or several texts, of which one must be there:
//! `text` anywhere in the last rows joined by a blank (so it may wrap), `row` at the start of a row (then
//! `has` and `ends` must hold for the same row), `cursor` at the start of the row up to the cursor and
//! `cursor_ends` at its end, `title` at the start of the title and `title_has` anywhere in it. `within`
//! counts rows with text from the bottom; frames and lines are not counted and are cut off.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::base::limits;
use crate::wire::messages::attention::{State, WaitKind};

use super::input::Foreground;
use super::program;

/// Why a rule file is refused.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("read rules {name}: {source}")]
    Syntax {
        name: String,
        source: Box<toml::de::Error>,
    },
    #[error("read rules {name}: {problem}")]
    Content { name: String, problem: String },
    #[error("read rules {name}: more than {max} bytes", max = limits::ATTENTION_RULE_FILE_LEN_MAX)]
    TooLong { name: String },
    #[error("more than {max} rule files", max = limits::ATTENTION_RULE_FILES_MAX)]
    TooMany,
}

/// One text or several, of which one must be there.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Texts {
    One(String),
    Any(Vec<String>),
}

impl Texts {
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let all = match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Any(texts) => texts.as_slice(),
        };
        all.iter().map(String::as_str)
    }
}

/// One condition; exactly one place is named.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Pattern {
    pub text: Option<Texts>,
    pub row: Option<Texts>,
    pub has: Option<Texts>,
    pub ends: Option<Texts>,
    pub cursor: Option<Texts>,
    pub cursor_ends: Option<Texts>,
    pub title: Option<Texts>,
    pub title_has: Option<Texts>,
    pub within: Option<usize>,
}

impl Pattern {
    /// Whether the title alone answers.
    pub(super) fn of_title(&self) -> bool {
        self.title.is_some() || self.title_has.is_some()
    }

    fn texts(&self) -> impl Iterator<Item = &Texts> {
        let places = [
            &self.text,
            &self.row,
            &self.has,
            &self.ends,
            &self.cursor,
            &self.cursor_ends,
            &self.title,
            &self.title_has,
        ];
        places.into_iter().flatten()
    }

    fn problem(&self) -> Option<String> {
        let row = self.row.is_some() || self.has.is_some() || self.ends.is_some();
        let cursor = self.cursor.is_some() || self.cursor_ends.is_some();
        let places = [self.text.is_some(), row, cursor, self.of_title()];
        if places.iter().filter(|named| **named).count() != 1 {
            return Some("a condition names exactly one of text, row, cursor and title".into());
        }
        let mut count = 0;
        for texts in self.texts() {
            for text in texts.iter() {
                count += 1;
                if text.trim().is_empty() {
                    return Some("a text is empty".into());
                }
            }
            if texts.iter().next().is_none() {
                return Some("a list of texts is empty".into());
            }
        }
        if count > limits::ATTENTION_RULE_TEXTS_MAX {
            return Some(format!(
                "more than {} texts in a condition",
                limits::ATTENTION_RULE_TEXTS_MAX
            ));
        }
        match self.within {
            Some(0) => Some("within counts from 1".into()),
            Some(_) if cursor || self.of_title() => Some("within is of text and row".into()),
            Some(n) if n > limits::ATTENTION_ROWS_MAX => {
                Some(format!("within is at most {}", limits::ATTENTION_ROWS_MAX))
            }
            _ => None,
        }
    }
}

/// The states that a rule may claim.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RuleState {
    Working,
    Waiting,
    Idle,
    Done,
    Error,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: String,
    state: RuleState,
    kind: Option<WaitKind>,
    #[serde(default)]
    all: Vec<Pattern>,
    #[serde(default)]
    none: Vec<Pattern>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reads {
    #[default]
    Always,
    Lines,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: String,
    title: String,
    programs: Vec<String>,
    #[serde(default)]
    apps: Vec<String>,
    #[serde(default)]
    reads: Reads,
    #[serde(default)]
    identify: Vec<Pattern>,
    #[serde(default)]
    rule: Vec<RuleText>,
}

/// One rule, checked.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub name: String,
    pub state: State,
    pub kind: Option<WaitKind>,
    pub all: Vec<Pattern>,
    pub none: Vec<Pattern>,
}

impl Rule {
    /// Whether the title alone decides this rule.
    pub(super) fn of_title(&self) -> bool {
        self.all.iter().chain(&self.none).all(Pattern::of_title)
    }
}

/// The rules of one program.
#[derive(Clone, Debug)]
pub struct ProgramRules {
    pub name: String,
    /// The name for people.
    pub title: String,
    programs: Vec<String>,
    apps: Vec<String>,
    reads: Reads,
    pub(super) identify: Vec<Pattern>,
    pub(super) rules: Vec<Rule>,
}

impl ProgramRules {
    /// Names of the rules in the order in which they are tried, with what they claim.
    pub fn rules(&self) -> impl Iterator<Item = (&str, State, Option<WaitKind>)> {
        self.rules
            .iter()
            .map(|rule| (rule.name.as_str(), rule.state, rule.kind))
    }

    /// Names of its process.
    pub fn programs(&self) -> &[String] {
        &self.programs
    }

    /// The program always reads the terminal, so that reading says nothing.
    pub(super) fn always_reads(&self) -> bool {
        self.reads == Reads::Always
    }

    fn is_generic(&self) -> bool {
        self.programs.iter().any(|name| name == "*")
    }

    fn check(text: FileText, file: &str) -> Result<Self, RuleError> {
        let refuse = |problem: String| RuleError::Content {
            name: file.to_owned(),
            problem,
        };
        if text.name.is_empty() || text.programs.is_empty() {
            return Err(refuse("name and programs may not be empty".into()));
        }
        if text.rule.len() > limits::ATTENTION_RULES_MAX {
            return Err(refuse(format!(
                "more than {} rules",
                limits::ATTENTION_RULES_MAX
            )));
        }
        if let Some(problem) = text.identify.iter().find_map(Pattern::problem) {
            return Err(refuse(format!("identify: {problem}")));
        }
        let mut rules: Vec<Rule> = Vec::with_capacity(text.rule.len());
        for rule in text.rule {
            let problem = rule_problem(&rule, &rules);
            if let Some(problem) = problem {
                return Err(refuse(format!("rule {}: {problem}", rule.name)));
            }
            let state = match rule.state {
                RuleState::Working => State::Working,
                RuleState::Waiting => State::Waiting,
                RuleState::Idle => State::Idle,
                RuleState::Done => State::Done,
                RuleState::Error => State::Error,
            };
            rules.push(Rule {
                name: rule.name,
                state,
                kind: rule.kind,
                all: rule.all,
                none: rule.none,
            });
        }
        Ok(Self {
            name: text.name,
            title: text.title,
            programs: text.programs,
            apps: text.apps,
            reads: text.reads,
            identify: text.identify,
            rules,
        })
    }
}

fn rule_problem(rule: &RuleText, earlier: &[Rule]) -> Option<String> {
    if rule.all.is_empty() {
        return Some("has no condition".into());
    }
    if rule.kind.is_some() && !matches!(rule.state, RuleState::Waiting) {
        return Some("kind belongs to waiting".into());
    }
    if earlier.iter().any(|known| known.name == rule.name) {
        return Some("the name is used twice".into());
    }
    let mut patterns = rule.all.iter().chain(&rule.none);
    patterns.find_map(Pattern::problem)
}

/// The rules of all known programs; the default has none, which switches reading of the screen off.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    programs: BTreeMap<String, Arc<ProgramRules>>,
}

/// The files that come with the program.
const BUILTIN: &[(&str, &str)] = &[
    (
        "aider",
        include_str!("../../../assets/attention/aider.toml"),
    ),
    ("any", include_str!("../../../assets/attention/any.toml")),
    (
        "claude",
        include_str!("../../../assets/attention/claude.toml"),
    ),
    (
        "codex",
        include_str!("../../../assets/attention/codex.toml"),
    ),
    (
        "gemini",
        include_str!("../../../assets/attention/gemini.toml"),
    ),
    ("kimi", include_str!("../../../assets/attention/kimi.toml")),
    (
        "opencode",
        include_str!("../../../assets/attention/opencode.toml"),
    ),
];

impl RuleSet {
    /// Reads one file; `name` is for the error alone.
    pub fn parse(name: &str, text: &str) -> Result<Self, RuleError> {
        if text.len() > limits::ATTENTION_RULE_FILE_LEN_MAX {
            return Err(RuleError::TooLong {
                name: name.to_owned(),
            });
        }
        let file: FileText = toml::from_str(text).map_err(|source| RuleError::Syntax {
            name: name.to_owned(),
            source: Box::new(source),
        })?;
        let rules = ProgramRules::check(file, name)?;
        let programs = BTreeMap::from([(rules.name.clone(), Arc::new(rules))]);
        Ok(Self { programs })
    }

    /// The rules that come with the program.
    pub fn builtin() -> Self {
        let mut all = Self::default();
        for (name, text) in BUILTIN {
            // INVARIANT: a test reads every built-in file.
            let file = Self::parse(name, text).expect("built-in rules are well formed");
            all.programs.extend(file.programs);
        }
        all
    }

    /// Adds `other`; a program of the same name is replaced as a whole.
    pub fn merge(&mut self, other: Self) -> Result<(), RuleError> {
        let new = other
            .programs
            .keys()
            .filter(|name| !self.programs.contains_key(*name))
            .count();
        if self.programs.len() + new > limits::ATTENTION_RULE_FILES_MAX {
            return Err(RuleError::TooMany);
        }
        self.programs.extend(other.programs);
        Ok(())
    }

    /// Whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// All programs by name.
    pub fn programs(&self) -> impl Iterator<Item = &ProgramRules> {
        self.programs.values().map(Arc::as_ref)
    }

    /// The rules of the program in the foreground, by the names of its process.
    pub(super) fn of_process(&self, foreground: &Foreground) -> Option<Arc<ProgramRules>> {
        let names = program::names(foreground);
        let known =
            |rules: &&Arc<ProgramRules>| names.iter().any(|name| rules.programs.contains(name));
        self.programs.values().find(known).cloned()
    }

    /// The rules of a program by what it calls itself in OSC 7501.
    pub(super) fn of_app(&self, app: &str) -> Option<Arc<ProgramRules>> {
        let known = |rules: &&Arc<ProgramRules>| rules.apps.iter().any(|name| name == app);
        self.programs.values().find(known).cloned()
    }

    /// The rules for programs without rules of their own.
    pub(super) fn generic(&self) -> impl Iterator<Item = &Arc<ProgramRules>> {
        self.programs.values().filter(|rules| rules.is_generic())
    }

    /// The rules of named programs.
    pub(super) fn specific(&self) -> impl Iterator<Item = &Arc<ProgramRules>> {
        self.programs.values().filter(|rules| !rules.is_generic())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "name = 'x'\ntitle = 'X'\nprograms = ['x']\n\
        [[rule]]\nname = 'ask'\nstate = 'waiting'\nkind = 'question'\nall = [{ text = 'ok?' }]\n";

    fn refused(text: &str) -> String {
        let error = RuleSet::parse("test", text).expect_err(text).to_string();
        match std::error::Error::source(&RuleSet::parse("test", text).unwrap_err()) {
            Some(source) => format!("{error} {source}"),
            None => error,
        }
    }

    #[test]
    fn builtin_rules_are_well_formed() {
        for (name, text) in BUILTIN {
            let file = RuleSet::parse(name, text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(file.programs.keys().next().map(String::as_str), Some(*name));
        }
        assert_eq!(RuleSet::builtin().programs().count(), BUILTIN.len());
    }

    #[test]
    fn faults_in_a_file_are_refused() {
        assert!(RuleSet::parse("test", SMALL).is_ok());
        assert!(refused(&SMALL.replace("programs", "programmes")).contains("programmes"));
        assert!(refused(&SMALL.replace("text =", "regex =")).contains("regex"));
        assert!(refused(&SMALL.replace("'waiting'", "'idle'")).contains("kind belongs to waiting"));
        assert!(refused(&SMALL.replace("'ok?'", "' '")).contains("a text is empty"));
        assert!(refused(&SMALL.replace("text = 'ok?'", "text = []")).contains("is empty"));
        assert!(
            refused(&SMALL.replace("text = 'ok?'", "text = 'a', row = 'b'"))
                .contains("exactly one")
        );
        assert!(refused(&SMALL.replace("'ok?'", "'ok?', within = 0")).contains("within"));
        assert!(refused(&SMALL.replace("all =", "none =")).contains("has no condition"));
        let twice = SMALL.split_once("[[rule]]").unwrap().1;
        assert!(refused(&format!("{SMALL}[[rule]]{twice}")).contains("used twice"));
        let long = "#".repeat(limits::ATTENTION_RULE_FILE_LEN_MAX + 1);
        assert!(refused(&long).contains("more than"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(
            text in "(name|title|programs|apps|reads|rule|all|state|[\\[\\]{}='\"#., \n]|[a-z]){0,60}",
            at in 0..SMALL.len(),
        ) {
            let _ = RuleSet::parse("test", &text);
            let (before, after) = SMALL.split_at(at);
            let _ = RuleSet::parse("test", &format!("{before}{text}{after}"));
        }
    }

    #[test]
    fn a_users_file_replaces_the_builtin_of_its_name() {
        let mut all = RuleSet::builtin();
        let before = all.programs().count();
        let own = SMALL.replace("name = 'x'", "name = 'claude'");
        all.merge(RuleSet::parse("own", &own).unwrap()).unwrap();
        assert_eq!(all.programs().count(), before);
        let claude = all.programs().find(|rules| rules.name == "claude").unwrap();
        assert_eq!(claude.title, "X");
        all.merge(RuleSet::parse("own", SMALL).unwrap()).unwrap();
        assert_eq!(all.programs().count(), before + 1);
    }
}
