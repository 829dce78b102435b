//! The recorded screens of known programs against the rules about them: error rates, and the page
//! docs/reference/attention-rules.md that publishes them.
//!
//! A recording is a header, `---`, and the rows. `state` is the truth; `all` is the truth where only the other
//! sources can know it. Rewrite the page with `WINGMAN_WRITE_REFERENCE=1 cargo test --test it attention`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use wingman::base::EpochMillis;
use wingman::model::attention::{
    Foreground, Input, Notify, ProcessFacts, ProgramState, ProgramStatus, RuleSet, ScreenFacts,
    SessionAttention,
};
use wingman::wire::messages::attention::{Attention, Source, State, WaitKind};

/// Wrong answers over the whole corpus. These numbers may only fall.
const MISSES_BY_ROWS_MAX: usize = 10;
const MISSES_BY_ROWS_AND_TITLE_MAX: usize = 4;
const MISSES_BY_ALL_MAX: usize = 4;

const PAGE: &str = "docs/reference/attention-rules.md";

/// A state with the kind of waiting.
type Answer = (State, Option<WaitKind>);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Rows,
    RowsAndTitle,
    All,
}

const MODES: [Mode; 3] = [Mode::Rows, Mode::RowsAndTitle, Mode::All];

#[derive(Debug, Default)]
struct Recording {
    program: String,
    name: String,
    truth: Answer,
    truth_of_all: Option<Answer>,
    origin: String,
    argv: Vec<String>,
    facts: ProcessFacts,
    screen: ScreenFacts,
    events: Vec<String>,
}

impl Recording {
    fn recorded(&self) -> bool {
        self.origin.starts_with("recorded")
    }

    fn truth(&self, mode: Mode) -> Answer {
        match (mode, self.truth_of_all) {
            (Mode::All, Some(truth)) => truth,
            _ => self.truth,
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn answer(text: &str) -> Answer {
    let (state, kind) = text
        .split_once(' ')
        .map_or((text, None), |(state, kind)| (state, Some(kind)));
    let state = match state {
        "working" => State::Working,
        "waiting" => State::Waiting,
        "idle" => State::Idle,
        "done" => State::Done,
        "error" => State::Error,
        "unknown" => State::Unknown,
        other => panic!("state {other}"),
    };
    let kind = kind.map(|kind| match kind {
        "question" => WaitKind::Question,
        "permission" => WaitKind::Permission,
        "auth" => WaitKind::Auth,
        other => panic!("kind {other}"),
    });
    (state, kind)
}

/// `reads` or `busy`, `lines` or `raw`, `echo` or `silent`; what is not named is unknown.
fn read_facts(facts: &mut ProcessFacts, text: &str) {
    *facts = ProcessFacts::default();
    for word in text.split_whitespace() {
        match word {
            "reads" => facts.blocked_reading_terminal = Some(true),
            "busy" => facts.blocked_reading_terminal = Some(false),
            "lines" => facts.canonical = Some(true),
            "raw" => facts.canonical = Some(false),
            "echo" => facts.echo = Some(true),
            "silent" => facts.echo = Some(false),
            "unknown" => {}
            other => panic!("facts {other}"),
        }
    }
}

fn read(path: &Path) -> Recording {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (header, rows) = text
        .split_once("\n---\n")
        .unwrap_or_else(|| panic!("{}", path.display()));
    let part = |path: Option<&Path>| {
        path.and_then(Path::file_stem)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let mut recording = Recording {
        program: part(path.parent()),
        name: part(Some(path)),
        ..Recording::default()
    };
    read_facts(&mut recording.facts, "reads raw silent");
    for line in header.lines() {
        let (key, value) = line
            .split_once(": ")
            .unwrap_or_else(|| panic!("{}: {line}", path.display()));
        match key {
            "state" => recording.truth = answer(value),
            "all" => recording.truth_of_all = Some(answer(value)),
            "origin" => recording.origin = value.to_owned(),
            "program" => recording.argv = value.split(' ').map(str::to_owned).collect(),
            "facts" => read_facts(&mut recording.facts, value),
            "cursor" => {
                let (row, column) = value.split_once(' ').unwrap();
                recording.screen.cursor = Some((row.parse().unwrap(), column.parse().unwrap()));
            }
            "alternate" => recording.screen.alternate = value == "yes",
            "title" => recording.screen.title = Some(value.to_owned()),
            "event" => recording.events.push(value.to_owned()),
            other => panic!("{}: {other}", path.display()),
        }
    }
    recording.screen.rows = rows.lines().map(str::to_owned).collect();
    recording
}

fn recordings() -> Vec<Recording> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in std::fs::read_dir(root().join("tests/recordings/attention")).unwrap() {
        let folder = folder.unwrap().path();
        if folder.is_dir() {
            paths.extend(
                std::fs::read_dir(folder)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn foreground(recording: &Recording) -> Foreground {
    let name = recording.argv[0].rsplit('/').next().unwrap();
    Foreground::new(77, name, &recording.argv)
}

/// What the rules alone say, of the rows or of rows and title.
fn by_rules(recording: &Recording, rules: &Arc<RuleSet>, mode: Mode) -> Answer {
    let mut machine = SessionAttention::new(rules.clone());
    let mut screen = recording.screen.clone();
    if mode == Mode::Rows {
        screen.title = None;
    }
    let facts = ProcessFacts {
        foreground: Some(foreground(recording)),
        ..ProcessFacts::default()
    };
    machine.step(Input::Probe(facts), EpochMillis(0));
    machine.step(Input::Screen(screen), EpochMillis(0));
    machine.step(Input::Tick, EpochMillis(0));
    let explanation = machine.explain();
    let view = explanation
        .sources
        .iter()
        .find(|view| view.source == Source::Screen)
        .unwrap();
    (view.state.unwrap_or_default(), view.kind)
}

fn decoded(text: &str) -> String {
    let bytes = data_encoding::BASE64.decode(text.as_bytes()).expect(text);
    String::from_utf8(bytes).expect(text)
}

fn program_status(text: &str) -> ProgramStatus {
    let mut status = ProgramStatus {
        state: ProgramState::Clear,
        app: None,
        kind: None,
        message: None,
    };
    for field in text.split(':') {
        match field.split_once('=').unwrap() {
            ("state", "idle") => status.state = ProgramState::Idle,
            ("state", "working") => status.state = ProgramState::Working,
            ("state", "blocked") => status.state = ProgramState::Blocked,
            ("state", "done") => status.state = ProgramState::Done,
            ("state", "error") => status.state = ProgramState::Error,
            ("state", "clear") => status.state = ProgramState::Clear,
            ("app", app) => status.app = Some(app.to_owned()),
            ("kind", kind) => status.kind = answer(&format!("waiting {kind}")).1,
            ("msg", message) => status.message = Some(decoded(message)),
            other => panic!("{other:?}"),
        }
    }
    status
}

fn event(text: &str) -> Input {
    let (code, rest) = text.split_once(';').unwrap_or((text, ""));
    match code {
        "bell" => Input::Bell,
        "0" | "2" => Input::Title(Some(rest.to_owned())),
        "7501" => Input::ProgramStatus(program_status(rest)),
        "9" => Input::Notify(Notify {
            source: 9,
            title: None,
            body: rest.to_owned(),
        }),
        "777" => {
            let mut parts = rest.splitn(3, ';').skip(1);
            let title = parts.next().map(str::to_owned);
            Input::Notify(Notify {
                source: 777,
                title,
                body: parts.next().unwrap_or_default().to_owned(),
            })
        }
        other => panic!("event {other}"),
    }
}

/// The whole machine: the program starts, sends what was recorded, and falls quiet.
fn by_all(recording: &Recording, rules: &Arc<RuleSet>) -> Attention {
    let mut machine = SessionAttention::new(rules.clone());
    let facts = ProcessFacts {
        foreground: Some(foreground(recording)),
        ..recording.facts.clone()
    };
    let mut now = 0;
    let mut step = |input: Input, passed: i64| {
        now += passed;
        machine.step(input, EpochMillis(now)).look_at
    };
    step(Input::Started, 0);
    step(Input::Probe(facts.clone()), 300);
    let mut look_at = step(Input::Tick, 0);
    for text in &recording.events {
        step(Input::Output { bytes: 20 }, 50);
        step(event(text), 0);
    }
    if !recording.screen.rows.is_empty() {
        look_at = step(Input::Output { bytes: 200 }, 50);
    }
    // The looks that follow activity; rarer ones go on for as long as a program runs.
    let mut looks = 0;
    while look_at.is_some() && looks < 3 {
        looks += 1;
        step(Input::Probe(facts.clone()), 2_000);
        step(Input::Screen(recording.screen.clone()), 0);
        look_at = step(Input::Tick, 0);
    }
    machine.current().clone()
}

fn ask(recording: &Recording, rules: &Arc<RuleSet>, mode: Mode) -> Answer {
    if mode == Mode::All {
        let attention = by_all(recording, rules);
        return (attention.state, attention.kind);
    }
    by_rules(recording, rules, mode)
}

/// Rest is rest: whether a turn ended since somebody typed cannot be seen on one screen.
fn is_right(truth: Answer, answer: Answer) -> bool {
    let class = |(state, kind)| match state {
        State::Done => (State::Idle, kind),
        state => (state, kind),
    };
    class(truth) == class(answer)
}

fn word((state, kind): Answer) -> String {
    let state = format!("{state:?}").to_lowercase();
    kind.map_or(state.clone(), |kind| {
        format!("{state} {}", format!("{kind:?}").to_lowercase())
    })
}

struct Results {
    recordings: Vec<Recording>,
    /// Answers of a recording in the order of `MODES`.
    answers: Vec<[Answer; 3]>,
}

impl Results {
    /// Computed once for all tests.
    fn get() -> &'static Self {
        static RESULTS: OnceLock<Results> = OnceLock::new();
        RESULTS.get_or_init(Self::new)
    }

    fn new() -> Self {
        let rules = Arc::new(RuleSet::builtin());
        let recordings = recordings();
        let answers = recordings
            .iter()
            .map(|one| MODES.map(|mode| ask(one, &rules, mode)))
            .collect();
        Self {
            recordings,
            answers,
        }
    }

    fn each(&self) -> impl Iterator<Item = (&Recording, &[Answer; 3])> {
        self.recordings.iter().zip(&self.answers)
    }

    fn misses(&self, mode: Mode) -> Vec<(&Recording, Answer)> {
        let at = mode as usize;
        self.each()
            .map(|(recording, answers)| (recording, answers[at]))
            .filter(|(recording, answer)| !is_right(recording.truth(mode), *answer))
            .collect()
    }
}

#[test]
fn error_rates_of_the_rules_only_fall() {
    let results = Results::get();
    assert!(
        results.recordings.len() > 150,
        "{} recordings",
        results.recordings.len()
    );
    let limits = [
        MISSES_BY_ROWS_MAX,
        MISSES_BY_ROWS_AND_TITLE_MAX,
        MISSES_BY_ALL_MAX,
    ];
    for (mode, limit) in MODES.into_iter().zip(limits) {
        let misses = results.misses(mode);
        let line = |(recording, answer): &(&Recording, Answer)| {
            let truth = word(recording.truth(mode));
            format!(
                "{}/{}: {truth}, answered {}",
                recording.program,
                recording.name,
                word(*answer)
            )
        };
        let list: Vec<String> = misses.iter().map(line).collect();
        assert!(
            list.len() <= limit,
            "{} misses, {limit} known:\n{}",
            list.len(),
            list.join("\n")
        );
        assert!(
            list.len() == limit,
            "only {} misses: lower the limit of {limit}",
            list.len()
        );
    }
}

#[test]
fn nobody_is_called_to_a_session_that_does_not_wait() {
    let results = Results::get();
    for (recording, answers) in results.each() {
        for (mode, (state, _)) in MODES.into_iter().zip(answers) {
            let waits = recording.truth(mode).0 == State::Waiting;
            assert!(
                waits || *state != State::Waiting,
                "{}/{}",
                recording.program,
                recording.name
            );
        }
    }
}

#[test]
fn every_answer_names_its_source_and_its_evidence() {
    let rules = Arc::new(RuleSet::builtin());
    for recording in recordings() {
        let attention = by_all(&recording, &rules);
        let known = attention.state != State::Unknown;
        assert_eq!(
            known,
            attention.source != Source::None,
            "{}",
            recording.name
        );
        assert_eq!(known, !attention.evidence.is_empty(), "{}", recording.name);
    }
}

#[test]
fn every_rule_matches_a_recording() {
    let rules = Arc::new(RuleSet::builtin());
    let mut unused: BTreeSet<(String, String)> = rules
        .programs()
        .flat_map(|program| {
            program
                .rules()
                .map(|(rule, ..)| (program.name.clone(), rule.to_owned()))
        })
        .collect();
    for recording in recordings() {
        let title = ScreenFacts {
            title: recording.screen.title.clone(),
            ..ScreenFacts::default()
        };
        let rows = ScreenFacts {
            title: None,
            ..recording.screen.clone()
        };
        for screen in [title, rows] {
            let mut machine = SessionAttention::new(rules.clone());
            let facts = ProcessFacts {
                foreground: Some(foreground(&recording)),
                ..ProcessFacts::default()
            };
            machine.step(Input::Probe(facts), EpochMillis(0));
            machine.step(Input::Screen(screen), EpochMillis(0));
            machine.step(Input::Tick, EpochMillis(0));
            for trial in machine
                .explain()
                .rules
                .into_iter()
                .filter(|trial| trial.matched)
            {
                unused.remove(&(trial.program, trial.rule));
            }
        }
    }
    assert!(unused.is_empty(), "no recording shows {unused:#?}");
}

fn percent(misses: usize, of: usize) -> String {
    if of == 0 {
        return "–".to_owned();
    }
    let tenths = (misses * 1_000 + of / 2) / of;
    format!("{misses} ({}.{} %)", tenths / 10, tenths % 10)
}

fn rates(page: &mut String, results: &Results) {
    page.push_str("| Program | Screens | of these recorded | Wrong by rows alone | by rows and title | by all sources |\n|---|---|---|---|---|---|\n");
    let programs: BTreeSet<&str> = results
        .recordings
        .iter()
        .map(|recording| recording.program.as_str())
        .collect();
    let total = std::iter::once(None);
    for program in programs.iter().copied().map(Some).chain(total) {
        let of =
            |recording: &&Recording| program.is_none_or(|program| recording.program == program);
        let count = results.recordings.iter().filter(of).count();
        let recorded = results
            .recordings
            .iter()
            .filter(of)
            .filter(|one| one.recorded())
            .count();
        let misses = MODES.map(|mode| {
            let misses = results
                .misses(mode)
                .into_iter()
                .filter(|(recording, _)| of(recording))
                .count();
            percent(misses, count)
        });
        let name = program.unwrap_or("**all**");
        let _ = writeln!(
            page,
            "| {name} | {count} | {recorded} | {} |",
            misses.join(" | ")
        );
    }
    let recorded = results
        .recordings
        .iter()
        .filter(|one| one.recorded())
        .count();
    let misses = MODES.map(|mode| {
        percent(
            results
                .misses(mode)
                .into_iter()
                .filter(|(one, _)| one.recorded())
                .count(),
            recorded,
        )
    });
    let _ = writeln!(
        page,
        "| **recorded alone** | {recorded} | {recorded} | {} |",
        misses.join(" | ")
    );
}

fn confusion(page: &mut String, results: &Results) {
    let mut cells: BTreeMap<(String, String), [usize; 3]> = BTreeMap::new();
    for (recording, answers) in results.each() {
        for mode in MODES {
            let truth = recording.truth(mode);
            let key = (word(truth), word(answers[mode as usize]));
            cells.entry(key).or_default()[mode as usize] += 1;
        }
    }
    page.push_str("| Truth | Answer | By rows alone | By rows and title | By all sources |\n|---|---|---|---|---|\n");
    for ((truth, answer), counts) in cells {
        let counts = counts.map(|count| {
            if count == 0 {
                String::new()
            } else {
                count.to_string()
            }
        });
        let _ = writeln!(page, "| {truth} | {answer} | {} |", counts.join(" | "));
    }
}

fn misses(page: &mut String, results: &Results) {
    let names = ["rows alone", "rows and title", "all sources"];
    page.push_str("| Screen | Truth | Answer | By |\n|---|---|---|---|\n");
    for (mode, name) in MODES.into_iter().zip(names) {
        for (recording, answer) in results.misses(mode) {
            let Recording {
                program,
                name: screen,
                ..
            } = recording;
            let truth = word(recording.truth(mode));
            let _ = writeln!(
                page,
                "| {program}/{screen} | {truth} | {} | {name} |",
                word(answer)
            );
        }
    }
}

fn page() -> String {
    let results = Results::get();
    let mut page = String::from(
        "# Attention rules\n\nGenerated by `WINGMAN_WRITE_REFERENCE=1 cargo test --test it attention`.\n\n\
         Rules read the title and the bottom rows of programs that do not say their state themselves (OSC 7501). \
         They are tried in this order; the first that matches decides. They stand in `assets/attention`; a file of \
         one's own with the same `name` replaces one, a new name adds a program. The format is described in \
         `src/model/attention/rules.rs`.\n\n## Rules\n\n",
    );
    let rules = RuleSet::builtin();
    for program in rules.programs() {
        let names = program.programs().join("`, `");
        let _ = writeln!(
            page,
            "### {}\n\n`{}`, for the processes `{names}`.\n",
            program.title, program.name
        );
        page.push_str("| Rule | State |\n|---|---|\n");
        for (rule, state, kind) in program.rules() {
            let _ = writeln!(page, "| {rule} | {} |", word((state, kind)));
        }
        page.push('\n');
    }
    page.push_str(
        "## Error rates\n\nOver the screens in `tests/recordings/attention`: recorded from the real programs at 40 to 120 \
         columns, and written by hand beside them (prose that quotes dialogs, other programs that show them, \
         and all of Kimi and aider, which were not run). An answer is wrong when its state or its kind of waiting \
         differs. `idle` and `done` count as one: a single screen does not show whether somebody has typed since. By \
         rows alone, the process is known and nothing else; by all sources, title, notifications and OSC 7501 are \
         taken as recorded. The numbers may only fall; a test holds them.\n\nRules know the screens they were \
         written from, so the rates flatter them. Of the recorded screens, 62 (100 and 72 columns) were made after the \
         rules and first answered as these then stood: 8 (12.9 %) wrong by rows alone, 7 (11.3 %) by rows and title, 6 \
         (9.7 %) by all sources, none of them a false call to a person. Expect that of screens that nobody has \
         recorded yet.\n\n",
    );
    rates(&mut page, results);
    page.push_str("\n## Truth and answer\n\n");
    confusion(&mut page, results);
    page.push_str("\n## Known misses\n\n");
    misses(&mut page, results);
    page
}

#[test]
fn the_published_rates_are_those_of_the_rules() {
    let path = root().join(PAGE);
    let fresh = page();
    if std::env::var_os("WINGMAN_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "{PAGE} is out of date: run with WINGMAN_WRITE_REFERENCE=1"
    );
}
