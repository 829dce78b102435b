//! The machine, one behaviour at a time.

use std::sync::Arc;

use crate::base::{EpochMillis, limits};
use crate::wire::messages::attention::{Attention, Source, State, WaitKind};

use super::*;

/// A session with its clock. `settle` runs the looks that follow activity.
struct Session {
    machine: SessionAttention,
    now: i64,
    facts: ProcessFacts,
    screen: ScreenFacts,
    changes: Vec<Attention>,
    looks: usize,
    look_at: Option<EpochMillis>,
}

fn process(name: &str) -> Foreground {
    let pid = name.bytes().map(u32::from).sum();
    Foreground::new(pid, name, &[name.to_owned()])
}

fn facts(
    name: &str,
    blocked: Option<bool>,
    canonical: Option<bool>,
    echo: Option<bool>,
) -> ProcessFacts {
    ProcessFacts {
        foreground: Some(process(name)),
        blocked_reading_terminal: blocked,
        echo,
        canonical,
        cpu_ticks: None,
    }
}

/// bash with its line editor.
fn at_prompt() -> ProcessFacts {
    facts("bash", Some(true), Some(false), Some(false))
}

fn running(name: &str) -> ProcessFacts {
    facts(name, Some(false), Some(true), Some(true))
}

fn screen(rows: &[&str]) -> ScreenFacts {
    let rows: Vec<String> = rows.iter().map(|row| (*row).to_owned()).collect();
    let last = rows.len().saturating_sub(1);
    let column = rows.last().map_or(0, |row| row.chars().count());
    ScreenFacts {
        rows,
        cursor: Some((last, column)),
        alternate: false,
        title: None,
    }
}

impl Session {
    fn new() -> Self {
        Self {
            machine: SessionAttention::new(Arc::new(RuleSet::builtin())),
            now: 1_000,
            facts: ProcessFacts::default(),
            screen: ScreenFacts::default(),
            changes: Vec::new(),
            looks: 0,
            look_at: None,
        }
    }

    fn step(&mut self, input: Input) -> Effects {
        let effects = self.machine.step(input, EpochMillis(self.now));
        self.changes.extend(effects.changed.clone());
        self.look_at = effects.look_at;
        effects
    }

    fn settle(&mut self) -> &Attention {
        let settled = self.now + limits::ATTENTION_LOOK_AGAIN_MS[1];
        while let Some(at) = self.look_at.filter(|at| at.0 <= settled) {
            self.now = self.now.max(at.0);
            self.look();
        }
        self.machine.current()
    }

    fn look(&mut self) {
        self.looks += 1;
        self.step(Input::Probe(self.facts.clone()));
        self.step(Input::Screen(self.screen.clone()));
        self.step(Input::Tick);
    }

    /// Output, then what the terminal shows.
    fn shows(
        &mut self,
        facts: ProcessFacts,
        screen: ScreenFacts,
    ) -> (State, Option<WaitKind>, Source) {
        self.facts = facts;
        self.screen = screen;
        self.now += 10_000;
        self.step(Input::Output { bytes: 10 });
        let now = self.settle();
        (now.state, now.kind, now.source)
    }

    fn types(&mut self, enter: bool) {
        self.now += 5_000;
        self.step(Input::UserInput { bytes: 1, enter });
    }

    fn says(
        &mut self,
        state: ProgramState,
        kind: Option<WaitKind>,
        message: Option<&str>,
    ) -> State {
        self.now += 10;
        let status = ProgramStatus {
            state,
            app: Some("claude-code".into()),
            kind,
            message: message.map(str::to_owned),
        };
        self.step(Input::ProgramStatus(status));
        self.machine.current().state
    }

    fn mark(&mut self, mark: PromptMark) -> State {
        self.now += 10;
        self.step(Input::PromptMark(mark));
        self.machine.current().state
    }

    fn state(&self) -> State {
        self.machine.current().state
    }
}

const QUESTION: Option<WaitKind> = Some(WaitKind::Question);
const PERMISSION: Option<WaitKind> = Some(WaitKind::Permission);
const AUTH: Option<WaitKind> = Some(WaitKind::Auth);

#[test]
fn nothing_known_is_unknown() {
    let mut session = Session::new();
    assert_eq!(session.machine.current(), &Attention::default());
    session.step(Input::Output { bytes: 5 });
    assert_eq!(session.settle().state, State::Unknown);
    assert_eq!(session.machine.explain().why, "no source says anything");
}

#[test]
fn a_program_that_begins_to_read_without_a_word_is_noticed() {
    let mut session = Session::new();
    session.shows(running("build.sh"), screen(&["compiling"]));
    assert_eq!(session.state(), State::Working);
    session.facts = facts("build.sh", Some(true), Some(true), Some(true));
    session.now = session.look_at.expect("another look").0;
    session.look();
    assert_eq!(session.state(), State::Waiting);
    assert_eq!(session.look_at, None);
}

#[test]
fn an_idle_session_needs_no_timer() {
    let mut session = Session::new();
    assert_eq!(
        session.shows(at_prompt(), screen(&["$ "])),
        (State::Idle, None, Source::Terminal)
    );
    assert_eq!(session.look_at, None);
    assert_eq!(session.looks, 3);
    assert_eq!(session.changes.len(), 1);
}

#[test]
fn a_password_is_asked_for_by_line_mode_without_echo() {
    let mut session = Session::new();
    let sudo = screen(&["[sudo] password for dev: "]);
    let secret = facts("sudo", Some(true), Some(true), Some(false));
    assert_eq!(
        session.shows(secret, sudo.clone()),
        (State::Waiting, AUTH, Source::Terminal)
    );
    // A process of another user does not tell what it reads: the text before the cursor helps.
    let hidden = facts("ssh", None, Some(true), Some(false));
    assert_eq!(session.shows(hidden.clone(), sudo).1, AUTH);
    let mut session = Session::new();
    let (state, kind, _) = session.shows(hidden, screen(&["connecting"]));
    assert_eq!((state, kind), (State::Waiting, AUTH));
    assert!(
        !session
            .machine
            .explain()
            .sources
            .iter()
            .any(|view| view.firm)
    );
}

#[test]
fn a_program_that_reads_a_line_or_keys_asks_a_question() {
    let mut session = Session::new();
    let apt = screen(&["Do you want to continue? [Y/n] "]);
    assert_eq!(
        session.shows(facts("apt", Some(true), Some(true), Some(true)), apt),
        (State::Waiting, QUESTION, Source::Terminal)
    );
    let repl = facts("python3", Some(true), Some(false), Some(false));
    assert_eq!(
        session.shows(repl, screen(&[">>> "])),
        (State::Waiting, QUESTION, Source::Terminal)
    );
    let read = facts("bash", Some(true), Some(true), Some(true));
    assert_eq!(session.shows(read, screen(&["Name? "])).1, QUESTION);
}

#[test]
fn a_full_screen_program_at_rest_asks_nothing() {
    let mut session = Session::new();
    let mut vim = screen(&["~", "~"]);
    vim.alternate = true;
    let (state, ..) = session.shows(facts("vim", Some(true), Some(false), Some(false)), vim);
    assert_eq!(state, State::Idle);
}

#[test]
fn a_program_that_does_not_read_works() {
    let mut session = Session::new();
    assert_eq!(
        session.shows(running("make"), screen(&["cc"])),
        (State::Working, None, Source::Process)
    );
    let named = session.machine.current().app.clone();
    assert_eq!(named.as_deref(), Some("make"));
}

#[test]
fn a_silent_program_of_which_nothing_is_known_stays_unknown() {
    let mut session = Session::new();
    let unknown = facts("tool.exe", None, None, None);
    assert_eq!(session.shows(unknown, screen(&["hello"])).0, State::Unknown);
}

#[test]
fn processor_time_is_evidence_where_reading_is_not_known() {
    let mut session = Session::new();
    session.facts = facts("tool.exe", None, None, None);
    session.facts.cpu_ticks = Some(5);
    session.step(Input::Output { bytes: 1 });
    session.now += 300;
    session.look();
    assert_eq!(session.state(), State::Unknown);
    session.facts.cpu_ticks = Some(90);
    session.now += 700;
    session.look();
    assert_eq!(session.state(), State::Working);
}

#[test]
fn a_prompt_after_work_is_a_result_until_somebody_types() {
    let mut session = Session::new();
    session.shows(at_prompt(), screen(&["$ "]));
    session.types(true);
    assert_eq!(
        session.shows(running("make"), screen(&["cc"])).0,
        State::Working
    );
    assert_eq!(
        session.shows(at_prompt(), screen(&["$ "])),
        (State::Done, None, Source::Terminal)
    );
    session.types(false);
    assert_eq!(session.settle().state, State::Idle);
}

#[test]
fn a_command_that_a_person_broke_off_is_no_result() {
    let mut session = Session::new();
    session.shows(running("make"), screen(&["cc"]));
    session.types(false);
    assert_eq!(
        session.shows(at_prompt(), screen(&["^C", "$ "])).0,
        State::Idle
    );
}

#[test]
fn marks_tell_prompt_work_and_result() {
    let mut session = Session::new();
    assert_eq!(session.mark(PromptMark::Prompt), State::Idle);
    assert_eq!(session.mark(PromptMark::Line), State::Idle);
    session.types(true);
    assert_eq!(session.mark(PromptMark::Run), State::Working);
    assert_eq!(session.mark(PromptMark::End(Some(2))), State::Error);
    assert_eq!(session.mark(PromptMark::Prompt), State::Error);
    session.facts = at_prompt();
    assert_eq!(session.settle().state, State::Error);
    session.types(true);
    assert_eq!(session.state(), State::Idle);
    session.mark(PromptMark::Run);
    session.mark(PromptMark::End(Some(0)));
    assert_eq!(session.mark(PromptMark::Prompt), State::Done);
    session.types(true);
    session.mark(PromptMark::Run);
    session.mark(PromptMark::End(Some(130)));
    assert_eq!(session.mark(PromptMark::Prompt), State::Idle);
}

#[test]
fn an_empty_line_at_the_prompt_is_no_result() {
    let mut session = Session::new();
    session.mark(PromptMark::Prompt);
    session.types(true);
    session.mark(PromptMark::End(Some(1)));
    assert_eq!(session.mark(PromptMark::Prompt), State::Idle);
}

#[test]
fn a_running_command_may_still_ask() {
    let mut session = Session::new();
    session.mark(PromptMark::Run);
    let secret = facts("sudo", Some(true), Some(true), Some(false));
    assert_eq!(
        session.shows(secret, screen(&["password: "])),
        (State::Waiting, AUTH, Source::Terminal)
    );
}

#[test]
fn marks_of_a_prompt_are_stale_once_another_program_has_the_terminal() {
    let mut session = Session::new();
    session.mark(PromptMark::Prompt);
    assert_eq!(
        session.shows(running("make"), screen(&["cc"])).0,
        State::Working
    );
    // Behind ssh they are the other end's and stay.
    let mut session = Session::new();
    session.facts = facts("ssh", Some(true), Some(false), Some(false));
    session.mark(PromptMark::Prompt);
    assert_eq!(session.settle().state, State::Idle);
}

#[test]
fn what_a_program_says_of_itself_silences_the_rest() {
    let mut session = Session::new();
    session.facts = facts("claude", Some(true), Some(false), Some(false));
    session.screen = screen(&["Enter to select · ↑/↓ to navigate · Esc to cancel"]);
    assert_eq!(
        session.says(ProgramState::Working, None, None),
        State::Working
    );
    assert!(!session.step(Input::Output { bytes: 1 }).want_screen);
    assert_eq!(session.settle().state, State::Working);
    assert_eq!(
        session.says(
            ProgramState::Blocked,
            PERMISSION,
            Some("approve Bash: touch x")
        ),
        State::Waiting
    );
    let current = session.machine.current();
    assert_eq!(
        (current.kind, current.app.as_deref()),
        (PERMISSION, Some("claude"))
    );
    assert_eq!(
        current.evidence[0].detail.as_deref(),
        Some("approve Bash: touch x")
    );
    session.step(Input::Bell);
    assert_eq!(session.settle().kind, PERMISSION);
    assert_eq!(
        session.says(ProgramState::Clear, None, None),
        State::Waiting
    );
    session.screen = screen(&["❯", "? for shortcuts"]);
    assert_eq!(session.settle().state, State::Idle);
}

#[test]
fn a_second_question_of_the_same_kind_begins_anew() {
    let mut session = Session::new();
    session.says(ProgramState::Blocked, PERMISSION, Some("one"));
    let first = session.machine.current().since;
    session.says(ProgramState::Blocked, PERMISSION, Some("one"));
    assert_eq!(session.machine.current().since, first);
    session.says(ProgramState::Blocked, PERMISSION, Some("two"));
    assert!(session.machine.current().since > first);
}

#[test]
fn a_declared_state_ends_with_its_program() {
    let mut session = Session::new();
    session.facts = facts("claude", None, None, None);
    session.says(ProgramState::Blocked, PERMISSION, None);
    session.settle();
    assert_eq!(session.shows(at_prompt(), screen(&["$ "])).0, State::Idle);
    // A result outlives the program until somebody types.
    session.says(ProgramState::Done, None, None);
    assert_eq!(session.shows(at_prompt(), screen(&["$ "])).0, State::Done);
    session.types(false);
    assert_eq!(session.settle().state, State::Idle);
    // A new prompt tells as much as the process.
    session.says(ProgramState::Working, None, None);
    assert_eq!(session.mark(PromptMark::Prompt), State::Idle);
}

#[test]
fn a_declared_state_ends_when_another_program_takes_the_terminal() {
    let mut session = Session::new();
    session.facts = facts("claude", None, None, None);
    session.says(ProgramState::Done, None, None);
    assert_eq!(session.settle().state, State::Done);
    assert_eq!(
        session.shows(running("make"), screen(&["cc"])).0,
        State::Working
    );
}

#[test]
fn a_kind_that_the_screen_knows_refines_the_terminal() {
    let mut session = Session::new();
    let git = facts("git", Some(true), Some(true), Some(true));
    let asked = screen(&["Username for 'https://example.org': "]);
    assert_eq!(
        session.shows(git, asked),
        (State::Waiting, AUTH, Source::Terminal)
    );
}

#[test]
fn a_bell_or_a_notification_wants_attention_without_a_kind() {
    let notify = || Notify {
        source: 9,
        title: None,
        body: "look".into(),
    };
    let mut session = Session::new();
    session.step(Input::Bell);
    assert_eq!(session.state(), State::Unknown);
    let current = session.settle();
    assert_eq!(
        (current.state, current.kind, current.source),
        (State::Waiting, None, Source::Bell)
    );
    session.step(Input::Notify(notify()));
    assert_eq!(session.settle().source, Source::Notification);
    session.types(false);
    assert_eq!(session.settle().state, State::Unknown);
}

#[test]
fn progress_calls_nobody() {
    let mut session = Session::new();
    for body in ["4;1;50", "9;/home/dev", "4;0;"] {
        let (source, title, body) = (9, None, body.to_owned());
        session.step(Input::Notify(Notify {
            source,
            title,
            body,
        }));
    }
    assert_eq!(session.settle().state, State::Unknown);
}

#[test]
fn a_call_for_attention_at_a_prompt_is_a_result() {
    let mut session = Session::new();
    session.shows(at_prompt(), screen(&["$ "]));
    session.now += 5_000;
    session.step(Input::Bell);
    let current = session.settle();
    assert_eq!((current.state, current.source), (State::Done, Source::Bell));
}

#[test]
fn a_call_takes_its_kind_from_the_screen() {
    let mut session = Session::new();
    session.facts = facts("claude", Some(true), Some(false), Some(false));
    session.screen = screen(&[
        "Do you want to proceed?",
        "❯ 1. Yes",
        "  2. No",
        "Esc to cancel · Tab to amend",
    ]);
    session.step(Input::Notify(Notify {
        source: 777,
        title: Some("Claude Code".into()),
        body: "x".into(),
    }));
    let current = session.settle();
    assert_eq!((current.kind, current.source), (PERMISSION, Source::Screen));
    assert!(
        current
            .evidence
            .iter()
            .any(|fact| fact.source == Source::Notification)
    );
}

#[test]
fn a_bell_that_answers_a_key_is_no_call() {
    let mut session = Session::new();
    session.shows(at_prompt(), screen(&["$ "]));
    session.types(false);
    session.step(Input::Bell);
    assert_eq!(session.settle().state, State::Idle);
}

#[test]
fn a_program_that_goes_on_clears_its_call() {
    let mut session = Session::new();
    session.shows(running("make"), screen(&["cc"]));
    session.step(Input::Bell);
    session.facts = running("make");
    assert_eq!(session.settle().state, State::Working);
    assert_eq!(
        session.shows(at_prompt(), screen(&["$ "])).2,
        Source::Terminal
    );
}

#[test]
fn a_title_shows_work_and_questions_at_once_but_not_rest() {
    let mut session = Session::new();
    let gemini = facts("gemini", Some(true), Some(false), Some(false));
    session.shows(
        gemini,
        screen(&["> Type your message or @path/to/file", "no sandbox"]),
    );
    assert_eq!(session.state(), State::Idle);
    session.step(Input::Title(Some("✦  Working… (repo)   ".into())));
    assert_eq!(session.state(), State::Working);
    session.step(Input::Title(Some("✋  Action Required (repo)".into())));
    assert_eq!(
        (session.state(), session.machine.current().kind),
        (State::Waiting, None)
    );
    let since = session.machine.current().since;
    session.screen = screen(&[
        "Allow execution of [Shell]?",
        "● 1. Allow once",
        "2. No (esc)",
    ]);
    assert_eq!(session.settle().kind, PERMISSION);
    assert_eq!(session.machine.current().since, since);
    session.step(Input::Title(Some("◇  Ready (repo)".into())));
    assert_eq!(session.state(), State::Waiting);
}

#[test]
fn the_kind_survives_a_title_that_blinks() {
    let mut session = Session::new();
    let dialog = [
        "Would you like to run the following command?",
        "› 1. Yes",
        "Press enter to confirm or esc to cancel",
    ];
    session.shows(facts("codex", None, None, None), screen(&dialog));
    assert_eq!(session.machine.current().kind, PERMISSION);
    let revision = session.machine.current().revision;
    for title in ["[ . ] Action Required | x", "[ ! ] Action Required | x"] {
        session.step(Input::Title(Some(title.into())));
        session.settle();
    }
    assert_eq!(session.machine.current().revision, revision);
}

#[test]
fn a_file_named_like_an_agent_is_not_the_agent() {
    let mut session = Session::new();
    let argv = ["tail", "-f", "/var/log/claude"].map(str::to_owned);
    let mut tail = facts("tail", Some(false), Some(true), Some(true));
    tail.foreground = Some(Foreground::new(4, "tail", &argv));
    let rows = [
        "❯ 1. Yes",
        "Do you want to proceed?",
        "Enter to select · ↑/↓ to navigate · Esc to cancel",
    ];
    assert_eq!(
        session.shows(tail, screen(&rows)),
        (State::Working, None, Source::Process)
    );
}

#[test]
fn an_agent_behind_ssh_is_known_by_its_screen() {
    let mut session = Session::new();
    let ssh = facts("ssh", Some(true), Some(false), Some(false));
    let rows = [
        "Do you want to proceed?",
        "❯ 1. Yes",
        "  2. No",
        "Esc to cancel · Tab to amend",
    ];
    assert_eq!(
        session.shows(ssh.clone(), screen(&rows)),
        (State::Waiting, PERMISSION, Source::Screen)
    );
    assert_eq!(
        session.shows(ssh.clone(), screen(&["Continue? [y/N] "])).1,
        QUESTION
    );
    assert_eq!(session.shows(ssh, screen(&["dev@far:~$ "])).0, State::Idle);
}

#[test]
fn the_next_question_of_a_dialogue_begins_anew() {
    let mut session = Session::new();
    let repl = facts("python3", Some(true), Some(false), Some(false));
    session.shows(repl.clone(), screen(&[">>> "]));
    let first = session.machine.current().since;
    session.types(false);
    session.shows(repl.clone(), screen(&[">>> 1"]));
    assert_eq!(session.machine.current().since, first);
    session.types(true);
    session.shows(repl, screen(&[">>> "]));
    assert!(session.machine.current().since > first);
}

#[test]
fn an_end_is_final_and_needs_no_timer() {
    let mut session = Session::new();
    session.step(Input::Output { bytes: 1 });
    let effects = session.step(Input::Exited {
        code: Some(3),
        signal: None,
    });
    assert_eq!(effects.look_at, None);
    assert_eq!(session.state(), State::Exited);
    assert_eq!(session.step(Input::Output { bytes: 1 }), Effects::default());
    assert_eq!(
        session.machine.current().evidence[0].what,
        "the session's program ended with code 3"
    );
}

#[test]
fn without_rules_the_screen_is_not_asked_for() {
    let mut machine = SessionAttention::new(Arc::new(RuleSet::default()));
    let effects = machine.step(Input::Output { bytes: 1 }, EpochMillis(0));
    assert!(effects.want_probe && !effects.want_screen);
    machine.step(Input::Probe(running("make")), EpochMillis(300));
    machine.step(Input::Tick, EpochMillis(300));
    assert_eq!(machine.current().state, State::Working);
}

#[test]
fn explain_names_every_source_the_winner_and_the_rules_tried() {
    let mut session = Session::new();
    let claude = facts("claude", Some(true), Some(false), Some(false));
    session.shows(claude, screen(&["❯", "? for shortcuts"]));
    let explanation = session.machine.explain();
    assert_eq!(explanation.sources.len(), 8);
    assert!(explanation.why.contains("Screen"), "{}", explanation.why);
    let last = explanation.rules.last().unwrap();
    assert!(last.matched, "{:?}", explanation.rules);
    assert_eq!(last.rows, ["❯", "? for shortcuts"]);
    assert!(
        explanation
            .rules
            .iter()
            .rev()
            .skip(1)
            .all(|trial| trial.failed.is_some())
    );
    assert_eq!(explanation.rows, ["❯", "? for shortcuts"]);
}
