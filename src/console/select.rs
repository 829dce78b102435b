//! A selection of text on a screen of lines: by cells, words or whole lines.

/// What a selection grows by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    #[default]
    Cell,
    Word,
    Line,
}

/// A place: line, then column.
pub type Place = (u64, u16);

/// From one cell to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    pub from: Place,
    pub to: Place,
    pub unit: Unit,
}

impl Selection {
    pub fn at(place: Place, unit: Unit) -> Self {
        Self {
            from: place,
            to: place,
            unit,
        }
    }

    /// First and last cell in reading order, grown by the unit. `line` gives a line's text.
    pub fn range(&self, line: &impl Fn(u64) -> String) -> (Place, Place) {
        let (mut first, mut last) = if self.from <= self.to {
            (self.from, self.to)
        } else {
            (self.to, self.from)
        };
        match self.unit {
            Unit::Cell => {}
            Unit::Line => {
                first.1 = 0;
                last.1 = u16::MAX;
            }
            Unit::Word => {
                first.1 = word(&line(first.0), first.1).0;
                last.1 = word(&line(last.0), last.1).1;
            }
        }
        (first, last)
    }

    /// The selected columns of a line, both included.
    pub fn columns(&self, at: u64, line: &impl Fn(u64) -> String) -> Option<(u16, u16)> {
        let (first, last) = self.range(line);
        if at < first.0 || at > last.0 {
            return None;
        }
        let from = if at == first.0 { first.1 } else { 0 };
        let to = if at == last.0 { last.1 } else { u16::MAX };
        Some((from, to))
    }

    /// The selected text, lines joined by line feeds.
    pub fn text(&self, line: &impl Fn(u64) -> String) -> String {
        let (first, last) = self.range(line);
        let mut text = String::new();
        for at in first.0..=last.0 {
            if at > first.0 {
                text.push('\n');
            }
            if let Some((from, to)) = self.columns(at, line) {
                text.push_str(slice(&line(at), from, to).trim_end());
            }
        }
        text
    }
}

/// The characters of a text that touch the columns from `from` to `to`.
fn slice(text: &str, from: u16, to: u16) -> String {
    cells(text)
        .filter(|(start, end, _)| *end > from && *start <= to)
        .map(|(.., c)| c)
        .collect()
}

/// Each character with its first column and the one behind it. Marks stay with what they mark.
fn cells(text: &str) -> impl Iterator<Item = (u16, u16, char)> + '_ {
    let mut at: u16 = 0;
    let mut before = 0;
    text.chars().map(move |c| {
        let width = unicode_width::UnicodeWidthChar::width(c).unwrap_or(0) as u16;
        if width == 0 {
            return (before, at.max(before + 1), c);
        }
        before = at;
        at = at.saturating_add(width);
        (before, at, c)
    })
}

/// First and last column of the word at a column: letters with what paths and names are made of.
fn word(text: &str, at: u16) -> (u16, u16) {
    let part = |c: char| c.is_alphanumeric() || "_-./~:@%+#?&=".contains(c);
    let mut found = (at, at);
    let mut run: Option<(u16, u16)> = None;
    for (start, end, c) in cells(text) {
        run = match run {
            Some((first, _)) if part(c) => Some((first, end - 1)),
            None if part(c) => Some((start, end - 1)),
            _ => None,
        };
        if let Some((first, last)) = run
            && first <= at
            && at <= last
        {
            found = (first, last);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: u64) -> String {
        ["cd /usr/src  ", "漢字 x", "last"][at as usize].into()
    }

    #[test]
    fn cells_words_and_lines_give_their_text() {
        let select = |from, to, unit| Selection { from, to, unit }.text(&line);
        assert_eq!(select((0, 3), (0, 6), Unit::Cell), "/usr");
        assert_eq!(select((0, 5), (0, 5), Unit::Word), "/usr/src");
        assert_eq!(select((1, 0), (1, 0), Unit::Line), "漢字 x");
        assert_eq!(select((2, 1), (0, 3), Unit::Cell), "/usr/src\n漢字 x\nla");
        assert_eq!(
            select((1, 1), (1, 1), Unit::Cell),
            "漢",
            "half of a wide character is all of it"
        );
        assert_eq!(select((0, 12), (0, 12), Unit::Word), "");
    }

    #[test]
    fn columns_are_those_of_each_line() {
        let selection = Selection {
            from: (2, 1),
            to: (0, 3),
            unit: Unit::Cell,
        };
        assert_eq!(selection.columns(0, &line), Some((3, u16::MAX)));
        assert_eq!(selection.columns(1, &line), Some((0, u16::MAX)));
        assert_eq!(selection.columns(2, &line), Some((0, 1)));
        assert_eq!(selection.columns(3, &line), None);
    }
}
