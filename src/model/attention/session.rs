//! The machine of one session: inputs in, a published record out.

use std::sync::Arc;

use crate::base::{EpochMillis, limits};
use crate::wire::messages::attention::{Attention, Explanation, RuleTrial, Source, State};

use super::claim::{Claim, Look, bounded};
use super::input::{
    Effects, Input, Notify, ProcessFacts, ProgramState, ProgramStatus, PromptMark, ScreenFacts,
};
use super::page::{self, Page};
use super::program;
use super::rules::{ProgramRules, RuleSet};
use super::schedule::Schedule;
use super::verdict;

/// What the program said of itself.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub claim: Claim,
    pub app: Option<String>,
    /// The foreground process at the first look after the report.
    pub owner: Option<u32>,
    /// The program has ended; only `done` and `error` outlive it, until somebody types.
    pub ended: bool,
}

/// Where the shell's marks stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub phase: Option<Phase>,
    /// The exit code of a command that ended since somebody typed; `Some(None)`: it ended, the code is unknown.
    pub finished: Option<Option<i32>>,
    pub at: EpochMillis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Prompt,
    Running,
    Ended,
}

/// A call for attention that does not say for what.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub claim: Claim,
    /// A look at the session came after it.
    pub seen: bool,
}

/// What the last look found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub facts: ProcessFacts,
    pub page: Page,
    pub rules: Option<Arc<ProgramRules>>,
    pub terminal: Option<Claim>,
    pub process: Option<Claim>,
    pub screen: Option<Claim>,
    pub trials: Vec<RuleTrial>,
}

impl Seen {
    /// What the last look claimed belongs to the program before.
    fn forget_claims(&mut self) {
        self.terminal = None;
        self.process = None;
        self.screen = None;
    }
}

/// Attention of one session, on the node that owns it.
///
/// ```text
///              ProgramStatus ──────────────────────┐ silences all below while it lives
///              PromptMark, Notify, Bell ───────────┤
/// Output ──► look_at ──► Probe, Screen, Tick ──────┼──► claims ──► Attention (revision + 1)
///              Title ──────────────────────────────┤
///              Exited ─────────────────────────────┘ ends it
/// ```
#[derive(Debug)]
pub struct SessionAttention {
    pub(super) rules: Arc<RuleSet>,
    pub(super) current: Attention,
    pub(super) exited: Option<Claim>,
    pub(super) declared: Option<Declared>,
    pub(super) marks: Marks,
    pub(super) notice: Option<Notice>,
    pub(super) seen: Seen,
    /// A look saw work, and nobody has typed since.
    pub(super) worked: bool,
    /// Somebody sent a line since the published state began.
    pub(super) entered: bool,
    /// Somebody typed since the published state began.
    pub(super) typed: bool,
    title: Option<String>,
    pub(super) input_at: Option<EpochMillis>,
    schedule: Schedule,
    facts: Option<ProcessFacts>,
    screen: Option<ScreenFacts>,
}

impl SessionAttention {
    /// A session of which nothing is known.
    pub fn new(rules: Arc<RuleSet>) -> Self {
        Self {
            rules,
            current: Attention::default(),
            exited: None,
            declared: None,
            marks: Marks::default(),
            notice: None,
            seen: Seen::default(),
            worked: false,
            entered: false,
            typed: false,
            title: None,
            input_at: None,
            schedule: Schedule::default(),
            facts: None,
            screen: None,
        }
    }

    /// Takes in what happened. `now` may go back; nothing is then delayed.
    pub fn step(&mut self, input: Input, now: EpochMillis) -> Effects {
        if self.exited.is_some() {
            return Effects::default();
        }
        self.schedule.clamp(now);
        let settles = self.take(input, now);
        let changed = if settles {
            verdict::publish(self, now)
        } else {
            None
        };
        let look_at = self.schedule.next();
        Effects {
            changed,
            look_at,
            want_probe: look_at.is_some(),
            want_screen: look_at.is_some()
                && !self.rules.is_empty()
                && self.declared.as_ref().is_none_or(|declared| declared.ended),
        }
    }

    /// The record as last published.
    pub fn current(&self) -> &Attention {
        &self.current
    }

    /// Why the session is in its state.
    pub fn explain(&self) -> Explanation {
        verdict::explain(self)
    }

    /// Whether the first look after the last activity is still to come.
    pub(super) fn is_unsettled(&self) -> bool {
        self.schedule.is_unsettled()
    }

    /// Stores an input; answers whether the state has to be judged anew.
    fn take(&mut self, input: Input, now: EpochMillis) -> bool {
        match input {
            Input::Started => self.schedule.input(now),
            Input::Output { bytes: 0 } => {}
            Input::Output { .. } => self.schedule.output(now),
            Input::Probe(facts) => self.facts = Some(facts),
            Input::Screen(facts) => self.screen = Some(facts),
            Input::Tick => return self.tick(now),
            Input::UserInput { enter, .. } => {
                self.user_input(enter, now);
                return true;
            }
            Input::Title(title) => {
                self.schedule.output(now);
                self.title =
                    title.map(|title| title.chars().take(limits::ATTENTION_ROW_LEN_MAX).collect());
                return self.title_changed(now);
            }
            Input::Bell => {
                self.schedule.output(now);
                self.bell(now);
            }
            Input::Notify(notify) => {
                self.schedule.output(now);
                self.notify(notify, now);
            }
            Input::ProgramStatus(status) => {
                self.schedule.output(now);
                self.program_status(status, now);
                return true;
            }
            Input::PromptMark(mark) => {
                self.schedule.output(now);
                self.prompt_mark(mark, now);
                return true;
            }
            Input::Exited { code, signal } => {
                self.exit(code, signal, now);
                return true;
            }
        }
        false
    }

    fn user_input(&mut self, enter: bool, now: EpochMillis) {
        self.schedule.input(now);
        self.input_at = Some(now);
        self.typed = true;
        self.entered |= enter;
        self.worked = false;
        self.notice = None;
        self.marks.finished = None;
        if self
            .declared
            .as_ref()
            .is_some_and(|declared| declared.ended)
        {
            self.declared = None;
        }
    }

    fn bell(&mut self, now: EpochMillis) {
        let echo = |at: EpochMillis| now.since(at).abs() < limits::ATTENTION_BELL_ECHO_MS;
        if self.input_at.is_some_and(echo) {
            return;
        }
        self.note(
            Source::Bell,
            "the program rang the bell".to_owned(),
            None,
            now,
        );
    }

    fn notify(&mut self, notify: Notify, now: EpochMillis) {
        if notify.is_command() {
            return;
        }
        let what = format!("the program sent a notification (OSC {})", notify.source);
        let detail = match notify.title {
            Some(title) if !title.is_empty() => format!("{title}: {}", notify.body),
            _ => notify.body,
        };
        self.note(Source::Notification, what, Some(bounded(&detail)), now);
    }

    /// A notification is kept over a bell.
    fn note(&mut self, source: Source, what: String, detail: Option<String>, now: EpochMillis) {
        if self
            .notice
            .as_ref()
            .is_some_and(|notice| notice.claim.source < source)
        {
            return;
        }
        let claim = Claim {
            source,
            state: State::Waiting,
            kind: None,
            firm: false,
            what,
            detail,
            at: now,
        };
        self.notice = Some(Notice { claim, seen: false });
    }

    fn program_status(&mut self, status: ProgramStatus, now: EpochMillis) {
        // The program's own word says more than its call before.
        self.notice = None;
        let (state, word) = match status.state {
            ProgramState::Idle => (State::Idle, "idle"),
            ProgramState::Working => (State::Working, "working"),
            ProgramState::Blocked => (State::Waiting, "blocked"),
            ProgramState::Done => (State::Done, "done"),
            ProgramState::Error => (State::Error, "error"),
            ProgramState::Clear => {
                self.declared = None;
                self.seen.forget_claims();
                return;
            }
        };
        let app = status.app.filter(|app| program::is_app_name(app));
        let what = format!("{} says: {word}", app.as_deref().unwrap_or("the program"));
        let claim = Claim {
            source: Source::ProgramStatus,
            state,
            kind: status.kind.filter(|_| state == State::Waiting),
            firm: true,
            what,
            detail: status.message.as_deref().map(bounded),
            at: now,
        };
        self.worked = false;
        self.seen.forget_claims();
        self.declared = Some(Declared {
            claim,
            app,
            owner: None,
            ended: false,
        });
    }

    fn prompt_mark(&mut self, mark: PromptMark, now: EpochMillis) {
        self.seen.forget_claims();
        self.marks.at = now;
        match mark {
            PromptMark::Prompt | PromptMark::Line => {
                self.marks.phase = Some(Phase::Prompt);
                self.program_ended();
            }
            PromptMark::Run => {
                self.marks.phase = Some(Phase::Running);
                self.marks.finished = None;
                self.notice = None;
                self.worked = false;
                self.declared = None;
            }
            PromptMark::End(code) => {
                if self.marks.phase == Some(Phase::Running) {
                    self.marks.finished = Some(code);
                }
                self.marks.phase = Some(Phase::Ended);
            }
        }
    }

    /// The program that declared its state is gone: only a result outlives it.
    fn program_ended(&mut self) {
        if let Some(declared) = &mut self.declared {
            declared.ended = true;
            if !matches!(declared.claim.state, State::Done | State::Error) {
                self.declared = None;
            }
        }
    }

    fn exit(&mut self, code: Option<i32>, signal: Option<i32>, now: EpochMillis) {
        let what = match (code, signal) {
            (_, Some(signal)) => format!("the session's program was ended by signal {signal}"),
            (Some(code), None) => format!("the session's program ended with code {code}"),
            (None, None) => "the session's program ended".to_owned(),
        };
        self.exited = Some(Claim {
            source: Source::Lifecycle,
            state: State::Exited,
            kind: None,
            firm: true,
            what,
            detail: None,
            at: now,
        });
        self.schedule.stop();
    }

    /// A title may show work or a question at once; rest is believed only together with the screen.
    fn title_changed(&mut self, now: EpochMillis) -> bool {
        let page = Page::of_title(self.title.as_deref());
        let foreground = self.seen.facts.foreground.as_ref();
        let hidden = foreground.is_none_or(program::is_relay);
        let rules = match &self.seen.rules {
            Some(rules) => Some(rules.clone()),
            None if hidden => self
                .rules
                .specific()
                .find(|rules| page::identifies(rules, &page))
                .cloned(),
            None => None,
        };
        let Some(rules) = rules else { return false };
        let first = rules
            .rules
            .iter()
            .filter(|rule| rule.of_title())
            .find_map(|rule| {
                let trial = page::try_rule(&rules, rule, &page);
                trial.matched.then_some((rule, trial))
            });
        let Some((rule, trial)) = first else {
            return false;
        };
        let known = self.seen.screen.as_ref().map(|claim| claim.state);
        if !matches!(rule.state, State::Working | State::Waiting) || known == Some(rule.state) {
            return false;
        }
        self.seen.screen = Some(Claim {
            source: Source::Screen,
            state: rule.state,
            kind: rule.kind,
            firm: true,
            what: format!("the title of {} shows: {}", rules.title, rule.name),
            detail: trial.rows.first().cloned(),
            at: now,
        });
        true
    }

    /// Takes the delivered facts as one look.
    fn tick(&mut self, now: EpochMillis) -> bool {
        let facts = self.facts.take();
        let screen = self.screen.take();
        if facts.is_none() && screen.is_none() {
            // Nothing was looked at, so the look is still to come.
            return false;
        }
        let due = self.schedule.look(now);
        if let Some(facts) = &facts {
            self.schedule
                .found(facts.blocked_reading_terminal == Some(false));
        }
        self.look(facts.unwrap_or_default(), screen, due.unwrap_or(false), now);
        true
    }

    fn look(
        &mut self,
        facts: ProcessFacts,
        screen: Option<ScreenFacts>,
        flowing: bool,
        now: EpochMillis,
    ) {
        let foreground = facts.foreground.as_ref();
        match foreground {
            Some(shell) if shell.is_shell => self.program_ended(),
            Some(other) => self.other_program(other.pid, program::is_relay(other)),
            None => {}
        }
        let pid = |facts: &ProcessFacts| facts.foreground.as_ref().map(|foreground| foreground.pid);
        let same = pid(&facts) == pid(&self.seen.facts);
        let cpu = match (facts.cpu_ticks, self.seen.facts.cpu_ticks) {
            (Some(new), Some(old)) if same => Some(new.saturating_sub(old)),
            _ => None,
        };
        let rules = foreground.and_then(|foreground| self.rules.of_process(foreground));
        let looked = screen.is_some();
        let alternate = screen.as_ref().is_some_and(|screen| screen.alternate);
        let page = screen.map_or_else(Page::default, |mut screen| {
            screen.title = screen.title.or_else(|| self.title.clone());
            Page::new(&screen)
        });
        let look = Look {
            facts: &facts,
            page: &page,
            alternate,
            rules: rules.as_deref(),
            flowing,
            cpu,
            now,
        };
        let terminal = look.terminal();
        let process = look.process();
        let (claimed, trials) = if looked {
            look.screen(&self.rules)
        } else {
            Default::default()
        };
        if looked || !same {
            self.seen.screen = claimed;
            self.seen.trials = trials;
            self.seen.page = page;
        }
        self.seen.terminal = terminal;
        self.seen.process = process;
        self.seen.facts = facts;
        self.seen.rules = rules;
        if let Some(notice) = &mut self.notice {
            notice.seen = true;
        }
    }

    /// A program, not the shell, has the terminal. A prompt is not shown then, whatever its marks said
    /// (behind a relay they are those of the shell at the other end), and what another program declared
    /// is over.
    fn other_program(&mut self, pid: u32, relay: bool) {
        let prompt = matches!(self.marks.phase, Some(Phase::Prompt | Phase::Ended));
        if prompt && !relay {
            self.marks = Marks::default();
        }
        if let Some(declared) = &mut self.declared {
            let owner = *declared.owner.get_or_insert(pid);
            if declared.ended || owner != pid {
                self.declared = None;
            }
        }
    }
}
