//! From claims to the published record: rank, refinement, and the explanation.

use crate::base::{EpochMillis, limits};
use crate::wire::messages::attention::{
    Attention, Evidence, Explanation, Source, SourceView, State, WaitKind,
};

use super::claim::Claim;
use super::program;
use super::session::{Phase, SessionAttention};

/// A command that a person broke off with Ctrl-C is no failure.
const EXIT_INTERRUPTED: i32 = 130;

/// Sources in rank order, as `explain` lists them.
const SOURCES: &[Source] = &[
    Source::Lifecycle,
    Source::ProgramStatus,
    Source::Marks,
    Source::Notification,
    Source::Bell,
    Source::Terminal,
    Source::Process,
    Source::Screen,
];

/// What was decided and from what.
struct Verdict {
    claim: Claim,
    /// Other claims, best rank first.
    others: Vec<Claim>,
    why: String,
}

/// What the marks say.
fn marks_claim(session: &SessionAttention) -> Option<Claim> {
    let marks = &session.marks;
    let finished = match marks.finished {
        Some(Some(0)) => Some((State::Done, "the command ended with code 0".to_owned())),
        Some(Some(EXIT_INTERRUPTED)) => {
            Some((State::Idle, "the command was interrupted".to_owned()))
        }
        Some(Some(code)) => Some((State::Error, format!("the command ended with code {code}"))),
        Some(None) => Some((
            State::Done,
            "the command ended; its code is not known".to_owned(),
        )),
        None => None,
    };
    let (state, what) = match (marks.phase?, finished) {
        (Phase::Running, _) => (State::Working, "a command runs".to_owned()),
        (_, Some(finished)) => finished,
        (Phase::Prompt, None) => (State::Idle, "the shell is at its prompt".to_owned()),
        (Phase::Ended, None) => return None,
    };
    let firm = state != State::Working;
    Some(Claim {
        source: Source::Marks,
        state,
        kind: None,
        firm,
        what,
        detail: None,
        at: marks.at,
    })
}

/// Every claim but the notice, best rank first.
fn claims(session: &SessionAttention) -> Vec<Claim> {
    let seen = &session.seen;
    let declared = session
        .declared
        .as_ref()
        .map(|declared| declared.claim.clone());
    let all = [
        session.exited.clone(),
        declared,
        marks_claim(session),
        seen.terminal.clone(),
        seen.process.clone(),
        seen.screen.clone(),
    ];
    all.into_iter().flatten().collect()
}

fn decide(session: &SessionAttention) -> Option<Verdict> {
    let mut claims = claims(session);
    if claims
        .first()
        .is_some_and(|claim| claim.source <= Source::ProgramStatus)
    {
        let claim = claims.remove(0);
        let why = format!("{:?} ranks first and silences the others", claim.source);
        let notice = session.notice.as_ref().map(|notice| notice.claim.clone());
        return Some(Verdict {
            claim,
            others: notice.into_iter().collect(),
            why,
        });
    }
    let firm = claims.iter().position(|claim| claim.firm);
    let best = firm.or(if claims.is_empty() { None } else { Some(0) });
    let base = best.map(|at| claims.remove(at));
    let base = base.map(|claim| kind_from_screen(after_work(session, claim), &claims));
    let notice = session
        .notice
        .as_ref()
        .filter(|notice| notice.seen)
        .map(|notice| notice.claim.clone());
    match (base, notice) {
        (None, None) => None,
        (None, Some(notice)) => {
            let why = "it called for attention and nothing says for what".to_owned();
            Some(Verdict {
                claim: notice,
                others: claims,
                why,
            })
        }
        (Some(base), None) => {
            let rank = if base.firm {
                "the best rank that is sure"
            } else {
                "no source is sure; the best rank"
            };
            let why = format!("{:?}: {rank}", base.source);
            Some(Verdict {
                claim: base,
                others: claims,
                why,
            })
        }
        (Some(base), Some(notice)) => Some(refined(base, notice, claims)),
    }
}

/// A prompt after work that nobody has followed is a result.
fn after_work(session: &SessionAttention, mut claim: Claim) -> Claim {
    let sure = claim.firm || claim.source == Source::Process;
    let told = claim.source == Source::Marks && session.marks.finished.is_some();
    if session.worked && sure && !told && claim.state == State::Idle {
        claim.state = State::Done;
        claim.what = format!(
            "{}; it worked before, and nobody has typed since",
            claim.what
        );
    }
    claim
}

/// That a line is read is known from the terminal; what the line is for, the screen may say.
fn kind_from_screen(mut base: Claim, others: &[Claim]) -> Claim {
    let asks = |claim: &&Claim| claim.source == Source::Screen && claim.state == State::Waiting;
    if base.source == Source::Terminal
        && base.state == State::Waiting
        && let Some(kind) = others.iter().find(asks).and_then(|claim| claim.kind)
        && base.kind == Some(WaitKind::Question)
    {
        base.kind = Some(kind);
    }
    base
}

/// A notice says that somebody is wanted; the base says for what.
fn refined(base: Claim, mut notice: Claim, mut others: Vec<Claim>) -> Verdict {
    match base.state {
        State::Idle if base.firm => {
            notice.state = State::Done;
            let why = format!(
                "{:?} called for attention and {:?} shows a prompt",
                notice.source, base.source
            );
            others.insert(0, base);
            Verdict {
                claim: notice,
                others,
                why,
            }
        }
        State::Waiting | State::Done | State::Error => {
            let why = format!(
                "{:?} called for attention and {:?} says for what",
                notice.source, base.source
            );
            others.insert(0, notice);
            Verdict {
                claim: base,
                others,
                why,
            }
        }
        State::Working if base.firm => {
            let why = format!("{:?}: the program went on after its call", base.source);
            others.insert(0, notice);
            Verdict {
                claim: base,
                others,
                why,
            }
        }
        _ => {
            let why = "it called for attention and no source is sure for what".to_owned();
            others.insert(0, base);
            Verdict {
                claim: notice,
                others,
                why,
            }
        }
    }
}

/// The name of the program.
fn app(session: &SessionAttention) -> Option<String> {
    if let Some(declared) = &session.declared {
        let app = declared.app.as_deref()?;
        let known = session.rules.of_app(app).map(|rules| rules.name.clone());
        return known.or_else(|| Some(app.to_owned()));
    }
    if let Some(rules) = &session.seen.rules {
        return Some(rules.name.clone());
    }
    session.seen.facts.foreground.as_ref().map(program::label)
}

/// Judges anew; answers the record when it changed.
pub(super) fn publish(session: &mut SessionAttention, now: EpochMillis) -> Option<Attention> {
    let verdict = decide(session);
    if verdict.is_none() && session.is_unsettled() {
        // A look is about to come: until then what was last known stands.
        return None;
    }
    settle(session, verdict.as_ref());
    let mut next = Attention {
        app: app(session),
        ..Attention::default()
    };
    if let Some(Verdict { claim, others, .. }) = &verdict {
        next.state = claim.state;
        next.kind = claim.kind;
        next.source = claim.source;
        let facts = std::iter::once(claim).chain(others).map(Claim::evidence);
        next.evidence = facts.take(limits::ATTENTION_EVIDENCE_MAX).collect();
    }
    let anew = begins_anew(session, &next);
    let old = &session.current;
    if !anew {
        keep_prompt(old, &mut next);
    }
    next.since = if anew { now } else { old.since };
    next.revision = old.revision;
    if !anew && says_the_same(old, &next) {
        return None;
    }
    next.revision += 1;
    if anew {
        session.entered = false;
        session.typed = false;
    }
    session.current = next;
    Some(session.current.clone())
}

/// Remembers work, and drops a call after which the program went on.
fn settle(session: &mut SessionAttention, verdict: Option<&Verdict>) {
    let Some(claim) = verdict.map(|verdict| &verdict.claim) else {
        return;
    };
    if claim.state != State::Working || claim.source == Source::ProgramStatus {
        return;
    }
    let shell_itself =
        claim.source == Source::Process && !claim.firm && session.seen.rules.is_none();
    // Work that was seen before somebody typed says nothing of what comes after.
    session.worked |= !shell_itself && session.input_at.is_none_or(|at| claim.at > at);
    if claim.firm && session.notice.as_ref().is_some_and(|notice| notice.seen) {
        session.notice = None;
    }
}

/// Whether this is a new state or a new question, not the old one said again or better.
fn begins_anew(session: &SessionAttention, next: &Attention) -> bool {
    let old = &session.current;
    if old.state != next.state {
        return true;
    }
    if next.state != State::Waiting {
        return false;
    }
    if old.kind != next.kind {
        // A kind that becomes known is the same question.
        return old.kind.is_some() && next.kind.is_some();
    }
    let detail = |attention: &Attention| {
        attention
            .evidence
            .first()
            .and_then(|fact| fact.detail.clone())
    };
    let (before, after) = (detail(old), detail(next));
    let reworded =
        old.source == next.source && before.is_some() && after.is_some() && before != after;
    match next.source {
        Source::ProgramStatus | Source::Screen => {
            reworded || (session.entered && is_newer(old, next))
        }
        _ => (reworded && !session.typed) || (session.entered && is_newer(old, next)),
    }
}

/// What stands before the cursor grows while an answer is typed; the question is what stood there first.
fn keep_prompt(old: &Attention, next: &mut Attention) {
    let reads = |attention: &Attention| {
        attention.source == Source::Terminal && attention.state == State::Waiting
    };
    if reads(old)
        && reads(next)
        && let (Some(before), Some(after)) = (old.evidence.first(), next.evidence.first_mut())
    {
        after.detail.clone_from(&before.detail);
    }
}

/// Whether the deciding fact was seen again.
fn is_newer(old: &Attention, next: &Attention) -> bool {
    let at = |attention: &Attention| attention.evidence.first().map(|fact| fact.at);
    at(next) > at(old) && at(next) > Some(old.since)
}

/// Equal but for the times at which facts were seen.
fn says_the_same(old: &Attention, next: &Attention) -> bool {
    let same = |a: &Evidence, b: &Evidence| {
        a.source == b.source && a.what == b.what && a.detail == b.detail
    };
    old.state == next.state
        && old.kind == next.kind
        && old.source == next.source
        && old.app == next.app
        && old.evidence.len() == next.evidence.len()
        && old
            .evidence
            .iter()
            .zip(&next.evidence)
            .all(|(a, b)| same(a, b))
}

/// Every source with its latest fact, the winner and the rules that were tried.
pub(super) fn explain(session: &SessionAttention) -> Explanation {
    let mut claims = claims(session);
    claims.extend(session.notice.as_ref().map(|notice| notice.claim.clone()));
    let silenced = session.declared.is_some() || session.exited.is_some();
    let view = |source: &Source| {
        let claim = claims.iter().find(|claim| claim.source == *source);
        SourceView {
            source: *source,
            state: claim.map(|claim| claim.state),
            kind: claim.and_then(|claim| claim.kind),
            firm: claim.is_some_and(|claim| claim.firm),
            evidence: claim.map(Claim::evidence),
        }
    };
    let why = match decide(session) {
        Some(verdict) => verdict.why,
        None if session.is_unsettled() => {
            "something happened; the look at it is still to come".to_owned()
        }
        None => "no source says anything".to_owned(),
    };
    Explanation {
        attention: session.current.clone(),
        sources: SOURCES.iter().map(view).collect(),
        why: if silenced && session.seen.trials.is_empty() {
            format!("{why}; the screen was not looked at")
        } else {
            why
        },
        rules: session.seen.trials.clone(),
        rows: session
            .seen
            .page
            .rows()
            .iter()
            .map(|row| super::claim::bounded(row))
            .collect(),
    }
}
