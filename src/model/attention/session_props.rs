//! What holds for every sequence of inputs.

use std::sync::Arc;

use proptest::prelude::*;

use crate::base::{EpochMillis, limits};
use crate::wire::messages::attention::{State, WaitKind};

use super::*;

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "bash", "claude", "ssh", "vim", "python3", "codex", "aider", "make",
    ])
    .prop_map(str::to_owned)
}

fn process_facts() -> impl Strategy<Value = ProcessFacts> {
    let flag = || prop::option::of(any::<bool>());
    (
        prop::option::of(name()),
        flag(),
        flag(),
        flag(),
        prop::option::of(0..9u64),
    )
        .prop_map(|(name, blocked, echo, canonical, cpu_ticks)| ProcessFacts {
            foreground: name
                .map(|name| Foreground::new(u32::from(name.as_bytes()[0]), name.clone(), &[name])),
            blocked_reading_terminal: blocked,
            echo,
            canonical,
            cpu_ticks,
        })
}

fn row() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "❯",
            "? for shortcuts",
            "Esc to cancel · Tab to amend",
            "Do you want to proceed?",
            "❯ 1. Yes",
            "> ",
            "[Y/n] ",
            "$ ",
            "esc to interrupt",
            "› 1. Yes"
        ])
        .prop_map(str::to_owned),
        ".{0,40}",
    ]
}

fn screen_facts() -> impl Strategy<Value = ScreenFacts> {
    let rows = prop::collection::vec(row(), 0..50);
    let cursor = prop::option::of((0..60usize, 0..60usize));
    (rows, cursor, any::<bool>(), prop::option::of(".{0,30}")).prop_map(
        |(rows, cursor, alternate, title)| ScreenFacts {
            rows,
            cursor,
            alternate,
            title,
        },
    )
}

fn status() -> impl Strategy<Value = ProgramStatus> {
    use ProgramState::*;
    let state = prop::sample::select(vec![Idle, Working, Blocked, Done, Error, Clear]);
    let kind = prop::sample::select(vec![None, Some(WaitKind::Auth), Some(WaitKind::Question)]);
    (state, kind, prop::option::of(".{0,400}")).prop_map(|(state, kind, message)| ProgramStatus {
        state,
        app: message.clone(),
        kind,
        message,
    })
}

fn mark() -> impl Strategy<Value = PromptMark> {
    prop_oneof![
        Just(PromptMark::Prompt),
        Just(PromptMark::Line),
        Just(PromptMark::Run),
        prop::option::of(any::<i32>()).prop_map(PromptMark::End),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => (0..9u64).prop_map(|bytes| Input::Output { bytes }),
        2 => any::<bool>().prop_map(|enter| Input::UserInput { bytes: 1, enter }),
        1 => Just(Input::Bell),
        1 => Just(Input::Started),
        1 => prop::option::of(".{0,40}|◐ Claude Code|✋ Action Required").prop_map(Input::Title),
        1 => ".{0,400}".prop_map(|body| Input::Notify(Notify { source: 9, title: None, body })),
        2 => status().prop_map(Input::ProgramStatus),
        2 => mark().prop_map(Input::PromptMark),
        4 => process_facts().prop_map(Input::Probe),
        4 => screen_facts().prop_map(Input::Screen),
        4 => Just(Input::Tick),
    ]
}

/// Inputs that carry no evidence of what a program does.
fn mute() -> impl Strategy<Value = Input> {
    prop_oneof![
        Just(Input::Output { bytes: 3 }),
        any::<bool>().prop_map(|enter| Input::UserInput { bytes: 1, enter }),
        Just(Input::Probe(ProcessFacts::default())),
        Just(Input::Screen(ScreenFacts::default())),
        Just(Input::Started),
        Just(Input::Tick),
    ]
}

fn machine() -> SessionAttention {
    SessionAttention::new(Arc::new(RuleSet::builtin()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn revisions_only_rise_and_records_stay_bounded(
        inputs in prop::collection::vec((input(), -2_000..4_000i64), 0..60),
        exit in any::<bool>(),
    ) {
        let mut machine = machine();
        let mut now = 10_000;
        let mut revision = 0;
        for (input, passed) in inputs {
            now += passed;
            let effects = machine.step(input, EpochMillis(now));
            let current = machine.current();
            match effects.changed {
                Some(changed) => {
                    prop_assert!(changed.revision > revision);
                    prop_assert_eq!(&changed, current);
                    revision = changed.revision;
                }
                None => prop_assert_eq!(current.revision, revision),
            }
            prop_assert!(current.evidence.len() <= limits::ATTENTION_EVIDENCE_MAX);
            for fact in &current.evidence {
                prop_assert!(fact.what.chars().count() <= limits::ATTENTION_TEXT_MAX);
                let detail = fact.detail.as_deref().unwrap_or_default();
                prop_assert!(detail.chars().count() <= limits::ATTENTION_TEXT_MAX);
            }
            prop_assert!(current.kind.is_none() || current.state == State::Waiting);
            // A look is never further away than the longest pause, whatever the clock does.
            let furthest = EpochMillis(now).plus_ms(limits::ATTENTION_LOOK_RARE_MS_MAX);
            prop_assert!(effects.look_at.is_none_or(|at| at <= furthest));
        }
        if exit {
            machine.step(Input::Exited { code: None, signal: Some(9) }, EpochMillis(now));
            prop_assert_eq!(machine.current().state, State::Exited);
        }
        let explanation = machine.explain();
        prop_assert!(explanation.rules.len() <= limits::ATTENTION_RULES_MAX * limits::ATTENTION_RULE_FILES_MAX);
        prop_assert!(explanation.rows.len() <= limits::ATTENTION_ROWS_MAX);
    }

    #[test]
    fn without_input_the_timer_ends_unless_a_program_runs_that_reads_nothing(
        inputs in prop::collection::vec((input(), 0..4_000i64), 0..40),
        mut facts in process_facts(),
        screen in screen_facts(),
    ) {
        if facts.blocked_reading_terminal == Some(false) {
            facts.blocked_reading_terminal = None;
        }
        let mut machine = machine();
        let mut now = 10_000;
        let mut look_at = None;
        for (input, passed) in inputs {
            now += passed;
            look_at = machine.step(input, EpochMillis(now)).look_at;
        }
        let mut looks = 0;
        while let Some(at) = look_at {
            now = now.max(at.0);
            machine.step(Input::Probe(facts.clone()), EpochMillis(now));
            machine.step(Input::Screen(screen.clone()), EpochMillis(now));
            look_at = machine.step(Input::Tick, EpochMillis(now)).look_at;
            looks += 1;
            prop_assert!(looks <= 4, "still asks to look");
        }
        // What was looked at shows nothing new when it is looked at again.
        prop_assume!(looks > 0);
        let revision = machine.current().revision;
        machine.step(Input::Probe(facts), EpochMillis(now));
        machine.step(Input::Screen(screen), EpochMillis(now));
        machine.step(Input::Tick, EpochMillis(now));
        prop_assert_eq!(machine.current().revision, revision);
    }

    #[test]
    fn work_and_rest_are_never_claimed_without_evidence(
        inputs in prop::collection::vec((mute(), 300..4_000i64), 0..40),
    ) {
        let mut machine = machine();
        let mut now = 10_000;
        for (input, passed) in inputs {
            now += passed;
            machine.step(input, EpochMillis(now));
            prop_assert_eq!(machine.current().state, State::Unknown);
        }
    }
}
