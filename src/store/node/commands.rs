//! Commands by their id, so that one that comes again is answered and not done again.

use rusqlite::{Connection, OptionalExtension, params};

use crate::base::limits::COMMANDS_KEPT;
use crate::store::StoreError;

/// What is known of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandState {
    /// It was not known until now; it is the caller's to do.
    New,
    /// It was begun before and has no answer yet.
    Begun,
    /// It led to this execution, which has the outcome.
    Execution(String),
    /// It was answered with this JSON.
    Answered(String),
}

pub(super) fn begin(connection: &Connection, id: String) -> Result<CommandState, StoreError> {
    let known = state(connection, &id)?;
    if known == CommandState::New {
        connection.execute("INSERT INTO command (id) VALUES (?1)", [id])?;
    }
    Ok(known)
}

/// Looks a command up; changes nothing.
pub(super) fn state(connection: &Connection, id: &str) -> Result<CommandState, StoreError> {
    let row = connection
        .query_row(
            "SELECT execution, answer FROM command WHERE id = ?1",
            [id],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    Ok(match row {
        None => CommandState::New,
        Some((_, Some(answer))) => CommandState::Answered(answer),
        Some((Some(execution), None)) => CommandState::Execution(execution),
        Some((None::<String>, None::<String>)) => CommandState::Begun,
    })
}

/// Lets a command lead to an execution.
pub(super) fn lead(
    connection: &Connection,
    id: &str,
    execution_id: &str,
) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO command (id, execution) VALUES (?1, ?2)
         ON CONFLICT (id) DO UPDATE SET execution = excluded.execution",
        params![id, execution_id],
    )?;
    forget(connection, COMMANDS_KEPT)
}

pub(super) fn answer(
    connection: &Connection,
    id: String,
    answer: String,
) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO command (id, answer) VALUES (?1, ?2)
         ON CONFLICT (id) DO UPDATE SET answer = excluded.answer",
        params![id, answer],
    )?;
    forget(connection, COMMANDS_KEPT)
}

/// Numbers rise without gaps worth minding, so the limit is a distance from the newest one. What has
/// no answer yet is kept; there are no more of those than calls in flight.
fn forget(connection: &Connection, keep: usize) -> Result<(), StoreError> {
    let keep = i64::try_from(keep).unwrap_or(i64::MAX);
    connection.execute(
        "DELETE FROM command WHERE number <= (SELECT max(number) FROM command) - ?1
         AND (answer IS NOT NULL OR execution IS NOT NULL)",
        [keep],
    )?;
    Ok(())
}

pub(super) fn abandon(connection: &Connection, answer: String) -> Result<usize, StoreError> {
    let count = connection.execute(
        "UPDATE command SET answer = ?1 WHERE answer IS NULL AND execution IS NULL",
        [answer],
    )?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::super::temporary;
    use super::*;

    #[test]
    fn repeated_command_is_answered_with_what_was_recorded() {
        let (_dir, store) = temporary();
        let begin = || store.begin_command_blocking("c1".into()).unwrap();
        assert_eq!(begin(), CommandState::New);
        assert_eq!(begin(), CommandState::Begun);
        store
            .answer_command_blocking("c1".into(), "{}".into())
            .unwrap();
        assert_eq!(begin(), CommandState::Answered("{}".into()));
    }

    #[test]
    fn command_cut_off_by_a_restart_is_abandoned() {
        let (_dir, store) = temporary();
        store.begin_command_blocking("c1".into()).unwrap();
        assert_eq!(store.abandon_commands_blocking("gone".into()).unwrap(), 1);
        let again = store.begin_command_blocking("c1".into()).unwrap();
        assert_eq!(again, CommandState::Answered("gone".into()));
        assert_eq!(store.abandon_commands_blocking("gone".into()).unwrap(), 0);
    }

    #[test]
    fn oldest_answers_are_forgotten_and_open_commands_are_not() {
        let (_dir, store) = temporary();
        store.begin_command_blocking("open".into()).unwrap();
        for n in 0..5 {
            let id = format!("c{n}");
            store.answer_command_blocking(id, "{}".into()).unwrap();
        }
        store.store.call_blocking(|c| forget(c, 2)).unwrap();
        let known = |id: &'static str| store.store.call_blocking(move |c| state(c, id)).unwrap();
        assert_eq!(known("open"), CommandState::Begun);
        assert_eq!(known("c2"), CommandState::New);
        assert_eq!(known("c3"), CommandState::Answered("{}".into()));
    }
}
