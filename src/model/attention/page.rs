//! The bottom of a screen as rules see it, and how a rule is tried on it.

use unicode_width::UnicodeWidthChar;

use crate::base::limits;
use crate::wire::messages::attention::RuleTrial;

use super::input::ScreenFacts;
use super::rules::{Pattern, ProgramRules, Rule, Texts};

/// Rows without frames, lines and empty ones; the title.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Top first.
    rows: Vec<String>,
    /// The cursor's row up to the cursor, leading blanks cut.
    before_cursor: Option<String>,
    title: Option<String>,
}

/// Lines, frames and shades: how programs draw boxes.
fn is_frame(c: char) -> bool {
    ('\u{2500}'..='\u{259f}').contains(&c)
}

/// A row with its frame cut off and every run of blanks made one.
fn plain(row: &str) -> String {
    let mut text = String::new();
    for word in row.split_whitespace() {
        let word = if text.is_empty() {
            word.trim_start_matches(is_frame)
        } else {
            word
        };
        if !word.is_empty() {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(word);
        }
    }
    let cut = text
        .trim_end_matches(|c: char| is_frame(c) || c == ' ')
        .len();
    text.truncate(cut);
    text
}

/// The first `columns` columns of a row.
fn up_to(row: &str, columns: usize) -> String {
    let mut used = 0;
    let before = row.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    });
    before.collect()
}

impl Page {
    pub(super) fn new(facts: &ScreenFacts) -> Self {
        let cut =
            |row: &String| -> String { row.chars().take(limits::ATTENTION_ROW_LEN_MAX).collect() };
        let first = facts.rows.len().saturating_sub(limits::ATTENTION_ROWS_MAX);
        let before_cursor = facts.cursor.and_then(|(row, column)| {
            let row = facts.rows.get(row).map(cut)?;
            let shown = row.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>();
            let mut before = up_to(&row, column);
            before.extend(std::iter::repeat_n(
                ' ',
                column.saturating_sub(shown).min(1),
            ));
            Some(before.trim_start().to_owned())
        });
        let rows = facts.rows[first..].iter().map(|row| plain(&cut(row)));
        Self {
            rows: rows.filter(|row| !row.is_empty()).collect(),
            before_cursor,
            title: facts.title.as_deref().map(title_text),
        }
    }

    /// A page of which the title alone is known.
    pub(super) fn of_title(title: Option<&str>) -> Self {
        Self {
            title: title.map(title_text),
            ..Self::default()
        }
    }

    pub(super) fn rows(&self) -> &[String] {
        &self.rows
    }

    /// The text before the cursor, when there is any.
    pub(super) fn prompt(&self) -> Option<&str> {
        self.before_cursor
            .as_deref()
            .map(str::trim_end)
            .filter(|text| !text.is_empty())
    }

    fn last(&self, within: Option<usize>) -> &[String] {
        let count = within
            .unwrap_or(limits::ATTENTION_ROWS_MAX)
            .min(self.rows.len());
        &self.rows[self.rows.len() - count..]
    }

    /// The matched rows, or `None`.
    fn find(&self, pattern: &Pattern) -> Option<Vec<String>> {
        if let Some(texts) = &pattern.text {
            return joined(self.last(pattern.within), texts);
        }
        if pattern.of_title() {
            let title = self.title.as_deref()?;
            let found = holds(&pattern.title, |text| title.starts_with(text))
                && holds(&pattern.title_has, |text| title.contains(text));
            return found.then(|| vec![title.to_owned()]);
        }
        if pattern.cursor.is_some() || pattern.cursor_ends.is_some() {
            let before = self.before_cursor.as_deref()?;
            let found = holds(&pattern.cursor, |text| before.starts_with(text))
                && holds(&pattern.cursor_ends, |text| {
                    before.trim_end().ends_with(text)
                });
            return found.then(|| vec![before.trim_end().to_owned()]);
        }
        let fits = |row: &&String| {
            holds(&pattern.row, |text| row.starts_with(text))
                && holds(&pattern.has, |text| row.contains(text))
                && holds(&pattern.ends, |text| row.ends_with(text))
        };
        let row = self.last(pattern.within).iter().rev().find(fits)?;
        Some(vec![row.clone()])
    }
}

/// The title without padding.
fn title_text(title: &str) -> String {
    let words: Vec<&str> = title.split_whitespace().collect();
    words
        .join(" ")
        .chars()
        .take(limits::ATTENTION_ROW_LEN_MAX)
        .collect()
}

fn holds(texts: &Option<Texts>, mut test: impl FnMut(&str) -> bool) -> bool {
    texts
        .as_ref()
        .is_none_or(|texts| texts.iter().any(&mut test))
}

/// Looks for a text in rows joined by a blank; answers the rows that it covers.
fn joined(rows: &[String], texts: &Texts) -> Option<Vec<String>> {
    let whole = rows.join(" ");
    let (start, len) = texts
        .iter()
        .find_map(|text| whole.rfind(text).map(|at| (at, text.len())))?;
    let mut at = 0;
    let mut covered = Vec::new();
    for row in rows {
        let end = at + row.len();
        if start < end && start + len > at {
            covered.push(row.clone());
        }
        at = end + 1;
    }
    Some(covered)
}

/// A condition in words, for `explain`.
fn describe(pattern: &Pattern) -> String {
    let places = [
        ("text", &pattern.text),
        ("row", &pattern.row),
        ("has", &pattern.has),
        ("ends", &pattern.ends),
        ("cursor", &pattern.cursor),
        ("cursor_ends", &pattern.cursor_ends),
        ("title", &pattern.title),
        ("title_has", &pattern.title_has),
    ];
    let mut words = Vec::new();
    for (place, texts) in places {
        if let Some(texts) = texts {
            let texts: Vec<String> = texts
                .iter()
                .take(3)
                .map(|text| format!("“{text}”"))
                .collect();
            words.push(format!("{place} {}", texts.join(" or ")));
        }
    }
    if let Some(within) = pattern.within {
        words.push(format!("within {within} rows"));
    }
    words.join(", ")
}

/// Tries one rule; the trial says what held and what did not.
pub(super) fn try_rule(program: &ProgramRules, rule: &Rule, page: &Page) -> RuleTrial {
    let mut trial = RuleTrial {
        program: program.name.clone(),
        rule: rule.name.clone(),
        matched: false,
        rows: Vec::new(),
        failed: None,
    };
    for pattern in &rule.all {
        match page.find(pattern) {
            Some(rows) => trial
                .rows
                .extend(rows.iter().map(|row| super::claim::bounded(row))),
            None => {
                trial.failed = Some(describe(pattern));
                return trial;
            }
        }
    }
    if let Some(pattern) = rule
        .none
        .iter()
        .find(|pattern| page.find(pattern).is_some())
    {
        trial.failed = Some(format!("not: {}", describe(pattern)));
        return trial;
    }
    trial.rows.truncate(limits::ATTENTION_EVIDENCE_MAX);
    trial.matched = true;
    trial
}

/// Whether the page alone shows that this program runs.
pub(super) fn identifies(program: &ProgramRules, page: &Page) -> bool {
    program
        .identify
        .iter()
        .any(|pattern| page.find(pattern).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(rows: &[&str]) -> Page {
        Page::new(&ScreenFacts {
            rows: rows.iter().map(|row| (*row).to_owned()).collect(),
            ..ScreenFacts::default()
        })
    }

    fn one(text: &str) -> Option<Texts> {
        Some(Texts::One(text.to_owned()))
    }

    #[test]
    fn frames_and_lines_are_not_text() {
        let page = page(&[
            "╭──────╮",
            "│ │ touch  x │ │",
            "╰──────╯",
            "",
            "── input ──",
            "❯\u{a0}\u{a0}go",
        ]);
        assert_eq!(page.rows(), ["touch x", "input", "❯ go"]);
    }

    #[test]
    fn a_text_may_wrap_but_not_leave_its_rows() {
        let page = page(&["one", "Enter to select · Esc", "to cancel"]);
        let text = |within| Pattern {
            text: one("Esc to cancel"),
            within: Some(within),
            ..Pattern::default()
        };
        assert_eq!(
            page.find(&text(2)).unwrap(),
            ["Enter to select · Esc", "to cancel"]
        );
        assert!(page.find(&text(1)).is_none());
    }

    #[test]
    fn a_row_holds_all_its_texts_at_once() {
        let page = page(&["⠏ Thinking... (esc to cancel, 3s)", "⠏ other"]);
        let pattern = |row: &str, has: &str| Pattern {
            row: one(row),
            has: one(has),
            ..Pattern::default()
        };
        assert!(page.find(&pattern("⠏", "esc to cancel")).is_some());
        assert!(page.find(&pattern("⠏ other", "esc to cancel")).is_none());
    }

    #[test]
    fn the_cursor_cuts_its_row_by_columns() {
        let facts = ScreenFacts {
            rows: vec!["日本 [Y/n] y".into()],
            cursor: Some((0, 11)),
            ..ScreenFacts::default()
        };
        let page = Page::new(&facts);
        assert_eq!(page.prompt(), Some("日本 [Y/n]"));
        let beyond = ScreenFacts {
            cursor: Some((7, 0)),
            ..facts
        };
        assert_eq!(Page::new(&beyond).prompt(), None);
    }

    #[test]
    fn rows_and_their_length_are_bounded() {
        let rows = vec!["x".repeat(10_000); 1_000];
        let page = Page::new(&ScreenFacts {
            rows,
            ..ScreenFacts::default()
        });
        assert_eq!(page.rows().len(), limits::ATTENTION_ROWS_MAX);
        assert!(
            page.rows()
                .iter()
                .all(|row| row.len() <= limits::ATTENTION_ROW_LEN_MAX)
        );
    }
}
