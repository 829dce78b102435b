//! What a reader sees of the grid: cells, styles, cursor and modes in terms of our own.

use alacritty_terminal::grid::Row;
use alacritty_terminal::index::Column;
use alacritty_terminal::term::cell::{Cell, Flags, Hyperlink};
use vte::ansi::{Color, NamedColor, Rgb};

/// A colour as a program named it; a palette decides what `Default` and `Palette` look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Paint {
    #[default]
    Default,
    /// One of the 256 colours of OSC 4.
    Palette(u8),
    Rgb(u8, u8, u8),
}

impl Paint {
    pub(super) fn of(color: Color) -> Self {
        match color {
            Color::Named(name) if (name as usize) < 16 => Paint::Palette(name as u8),
            Color::Named(_) => Paint::Default,
            Color::Indexed(index) => Paint::Palette(index),
            Color::Spec(Rgb { r, g, b }) => Paint::Rgb(r, g, b),
        }
    }

    pub(super) fn color(self, default: NamedColor) -> Color {
        match self {
            Paint::Default => Color::Named(default),
            Paint::Palette(index) => Color::Indexed(index),
            Paint::Rgb(r, g, b) => Color::Spec(Rgb { r, g, b }),
        }
    }
}

/// How a cell is underlined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Underline {
    #[default]
    None,
    Single,
    Double,
    Curly,
    Dotted,
    Dashed,
}

/// Colours and attributes of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Style {
    pub fg: Paint,
    pub bg: Paint,
    /// Colour of the underline; `Default` is the text's.
    pub underline_paint: Paint,
    pub underline: Underline,
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub inverse: bool,
    pub hidden: bool,
    pub strikeout: bool,
}

/// The flags of a cell that a style is made of.
pub(super) const STYLE_FLAGS: Flags = Flags::INVERSE
    .union(Flags::BOLD)
    .union(Flags::ITALIC)
    .union(Flags::DIM)
    .union(Flags::HIDDEN)
    .union(Flags::STRIKEOUT)
    .union(Flags::ALL_UNDERLINES);

impl Style {
    pub(super) fn of(cell: &Cell) -> Self {
        let flags = cell.flags;
        Self {
            fg: Paint::of(cell.fg),
            bg: Paint::of(cell.bg),
            underline_paint: cell.underline_color().map_or(Paint::Default, Paint::of),
            underline: underline(flags),
            bold: flags.contains(Flags::BOLD),
            dim: flags.contains(Flags::DIM),
            italic: flags.contains(Flags::ITALIC),
            inverse: flags.contains(Flags::INVERSE),
            hidden: flags.contains(Flags::HIDDEN),
            strikeout: flags.contains(Flags::STRIKEOUT),
        }
    }

    /// The flags and colours of this style on a blank cell.
    pub(super) fn cell(self) -> Cell {
        let mut cell = Cell {
            fg: self.fg.color(NamedColor::Foreground),
            bg: self.bg.color(NamedColor::Background),
            ..Cell::default()
        };
        cell.flags.set(Flags::BOLD, self.bold);
        cell.flags.set(Flags::DIM, self.dim);
        cell.flags.set(Flags::ITALIC, self.italic);
        cell.flags.set(Flags::INVERSE, self.inverse);
        cell.flags.set(Flags::HIDDEN, self.hidden);
        cell.flags.set(Flags::STRIKEOUT, self.strikeout);
        cell.flags.insert(match self.underline {
            Underline::None => Flags::empty(),
            Underline::Single => Flags::UNDERLINE,
            Underline::Double => Flags::DOUBLE_UNDERLINE,
            Underline::Curly => Flags::UNDERCURL,
            Underline::Dotted => Flags::DOTTED_UNDERLINE,
            Underline::Dashed => Flags::DASHED_UNDERLINE,
        });
        if self.underline_paint != Paint::Default {
            cell.set_underline_color(Some(self.underline_paint.color(NamedColor::Foreground)));
        }
        cell
    }
}

fn underline(flags: Flags) -> Underline {
    let kinds = [
        (Flags::UNDERLINE, Underline::Single),
        (Flags::DOUBLE_UNDERLINE, Underline::Double),
        (Flags::UNDERCURL, Underline::Curly),
        (Flags::DOTTED_UNDERLINE, Underline::Dotted),
        (Flags::DASHED_UNDERLINE, Underline::Dashed),
    ];
    let found = kinds.iter().find(|(flag, _)| flags.contains(*flag));
    found.map_or(Underline::None, |(_, kind)| *kind)
}

/// Whether nothing of a cell can be seen: a space in default colours.
pub(super) fn is_blank(cell: &Cell) -> bool {
    let bare = |cell: &Cell| {
        cell.extra.is_none()
            || cell.zerowidth().is_none_or(<[char]>::is_empty)
                && cell.underline_color().is_none()
                && cell.hyperlink().is_none()
    };
    cell.c == ' '
        && bare(cell)
        && !cell
            .flags
            .intersects(STYLE_FLAGS | Flags::WIDE_CHAR | Flags::WIDE_CHAR_SPACER)
        && matches!(cell.fg, Color::Named(NamedColor::Foreground))
        && matches!(cell.bg, Color::Named(NamedColor::Background))
}

/// The target of an OSC 8 link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link(pub(super) Hyperlink);

impl Link {
    /// The address, at most `GRID_LINK_LEN_MAX` bytes.
    pub fn address(&self) -> &str {
        self.0.uri()
    }

    /// What groups the parts of one link; empty when the program gave none.
    pub fn id(&self) -> &str {
        self.0.id()
    }
}

/// One cell.
#[derive(Clone, Copy, Debug)]
pub struct CellView<'a>(&'a Cell);

impl<'a> CellView<'a> {
    /// Whether nothing is to be seen there, no colour either.
    pub fn is_blank(&self) -> bool {
        is_blank(self.0)
    }

    /// The character, a space where nothing was written.
    pub fn character(&self) -> char {
        self.0.c
    }

    /// Combining marks on the character.
    pub fn marks(&self) -> &'a [char] {
        self.0.zerowidth().unwrap_or_default()
    }

    /// Columns of the character: 1, 2, or 0 for the second column of one that takes two.
    pub fn width(&self) -> u8 {
        if self.0.flags.contains(Flags::WIDE_CHAR) {
            2
        } else {
            u8::from(!self.0.flags.contains(Flags::WIDE_CHAR_SPACER))
        }
    }

    pub fn style(&self) -> Style {
        Style::of(self.0)
    }

    pub fn link(&self) -> Option<Link> {
        self.0.hyperlink().map(Link)
    }

    /// Appends character and marks; nothing for the second column of a wide character.
    pub fn push_to(&self, text: &mut String) {
        if self.width() > 0 {
            text.push(self.character());
            text.extend(self.marks());
        }
    }
}

/// One row, a cell for each column.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a>(pub(super) &'a [Cell]);

impl<'a> RowView<'a> {
    pub(super) fn of(row: &'a Row<Cell>) -> Self {
        Self(&row[Column(0)..Column(row.len())])
    }

    pub fn cells(&self) -> impl ExactSizeIterator<Item = CellView<'a>> + use<'a> {
        self.0.iter().map(CellView)
    }

    pub fn cell(&self, column: u16) -> Option<CellView<'a>> {
        self.0.get(usize::from(column)).map(CellView)
    }

    /// Whether the text runs on in the next row.
    pub fn wrapped(&self) -> bool {
        self.0
            .last()
            .is_some_and(|cell| cell.flags.contains(Flags::WRAPLINE))
    }

    /// The text without the blanks at its end.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.0.len());
        for cell in self.cells() {
            cell.push_to(&mut text);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text
    }
}

/// A row of the scrollback, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedRow(pub(super) Vec<Cell>);

impl OwnedRow {
    pub fn view(&self) -> RowView<'_> {
        RowView(&self.0)
    }
}

/// Shape of the cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CursorShape {
    #[default]
    Block,
    Underline,
    Beam,
}

/// Where the cursor is and how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CursorView {
    /// From 0, at the top.
    pub row: u16,
    /// From 0; the last column also while a wrap is due.
    pub column: u16,
    pub visible: bool,
    pub shape: CursorShape,
    pub blinking: bool,
}

/// Which pointer events a program asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MouseMode {
    #[default]
    Off,
    /// `?9`: presses alone.
    X10,
    /// `?1000`: presses and releases.
    Click,
    /// `?1002`: also motion while a button is down.
    Drag,
    /// `?1003`: all motion.
    Motion,
}

/// How pointer events are spelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MouseEncoding {
    #[default]
    X10,
    /// `?1005`.
    Utf8,
    /// `?1006`.
    Sgr,
    /// `?1015`.
    Urxvt,
}

/// The modes that readers of the grid and senders of input need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Modes {
    pub alternate_screen: bool,
    pub application_cursor: bool,
    pub application_keypad: bool,
    pub bracketed_paste: bool,
    pub focus_reporting: bool,
    pub mouse: MouseMode,
    pub mouse_encoding: MouseEncoding,
    /// `?1007`: the wheel sends arrow keys on the alternate screen.
    pub alternate_scroll: bool,
    /// Flags of the kitty keyboard protocol, 0 when it is off.
    pub kitty_flags: u8,
    /// xterm's modifyOtherKeys, 0 to 2.
    pub modify_other_keys: u8,
    /// A synchronized update is under way.
    pub synchronized: bool,
    /// `?5`: colours of the whole screen are swapped.
    pub reverse_screen: bool,
    pub auto_wrap: bool,
    pub origin: bool,
    pub insert: bool,
    /// LF also returns to the first column.
    pub newline: bool,
}
