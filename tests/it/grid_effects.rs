//! What output makes a grid say: answers to queries, notifications, status, marks.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use wingman::terminal::grid::{
    Case, CursorShape, Damage, Effect, Extent, Form, Grid, NoticeSource, ProgramStatus, Progress,
    PromptMark, Role, Scrollback, Size, Underline, clipboard_answer,
};

use crate::grid_state::grid;

fn feed(grid: &mut Grid, bytes: impl AsRef<[u8]>) -> Vec<Effect> {
    let mut effects = Vec::new();
    grid.feed(bytes.as_ref(), &mut effects);
    effects
}

fn answer(query: &str) -> String {
    let mut grid = grid(80, 24, Role::Host);
    answer_of(&mut grid, query)
}

fn answer_of(grid: &mut Grid, query: &str) -> String {
    let replies = feed(grid, query).into_iter().map(|effect| match effect {
        Effect::Reply(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{query:?}: {other:?}"),
    });
    replies.collect()
}

#[test]
fn queries_are_answered_once() {
    for (query, expected) in [
        ("\x1b[c", "\x1b[?62;22c"),
        ("\x1b[0c", "\x1b[?62;22c"),
        ("\x1bZ", "\x1b[?62;22c"),
        ("\x1b[>c", "\x1b[>1;100;0c"),
        ("\x1b[=c", "\x1bP!|00000000\x1b\\"),
        ("\x1b[5n", "\x1b[0n"),
        ("\x1b[3;7H\x1b[6n", "\x1b[3;7R"),
        ("\x1b[2;5r\x1b[?6h\x1b[2;2H\x1b[6n", "\x1b[2;2R"),
        ("\x1b[3;7H\x1b[?6n", "\x1b[?3;7R"),
        ("\x1b[?15n", "\x1b[?13n"),
        ("\x1b[?996n", "\x1b[?997;1n"),
        ("\x1b[4$p", "\x1b[4;2$y"),
        ("\x1b[4h\x1b[4$p", "\x1b[4;1$y"),
        ("\x1b[12$p", "\x1b[12;0$y"),
        ("\x1b[?7$p", "\x1b[?7;1$y"),
        ("\x1b[?1049$p", "\x1b[?1049;2$y"),
        ("\x1b[?1006h\x1b[?1006$p", "\x1b[?1006;1$y"),
        ("\x1b[?1016$p", "\x1b[?1016;0$y"),
        ("\x1b[?1007$p", "\x1b[?1007;1$y"),
        ("\x1b[?2026$p", "\x1b[?2026;2$y"),
        (
            "\x1b[>q",
            concat!("\x1bP>|wingman ", env!("CARGO_PKG_VERSION"), "\x1b\\"),
        ),
        ("\x1b[1;31mx\x1bP$qm\x1b\\", "\x1bP1$r0;1;31m\x1b\\"),
        ("\x1b[3;9r\x1bP$qr\x1b\\", "\x1bP1$r3;9r\x1b\\"),
        ("\x1b[4 q\x1bP$q q\x1b\\", "\x1bP1$r4 q\x1b\\"),
        ("\x1bP$q\"p\x1b\\", "\x1bP1$r62;1\"p\x1b\\"),
        ("\x1bP$qz\x1b\\", "\x1bP0$r\x1b\\"),
        ("AB\x1b[7;1;1;1;1;2*y", "\x1bP7!~FF7D\x1b\\"),
        (
            "\x1bP+q4d73;zz\x1b\\",
            "\x1bP1+r4d73=1B5D35323B25703125733B257032257307\x1b\\\x1bP0+r\x1b\\",
        ),
        (
            "\x1bP+q544e\x1b\\",
            "\x1bP1+r544e=787465726D2D323536636F6C6F72\x1b\\",
        ),
        ("\x1b]11;?\x07", "\x1b]11;rgb:1212/1212/1212\x07"),
        ("\x1b]4;1;?\x1b\\", "\x1b]4;1;rgb:cdcd/3131/3131\x1b\\"),
        ("\x1b]4;196;?\x1b\\", "\x1b]4;196;rgb:ffff/0000/0000\x1b\\"),
        (
            "\x1b]10;#102030\x07\x1b]10;?\x07",
            "\x1b]10;rgb:1010/2020/3030\x07",
        ),
        ("\x1b[14t", "\x1b[4;384;640t"),
        ("\x1b[16t", "\x1b[6;16;8t"),
        ("\x1b[18t", "\x1b[8;24;80t"),
        ("\x1b[21t", ""),
        ("\x1b[?u", "\x1b[?0u"),
        ("\x1b[>5u\x1b[?u", "\x1b[?5u"),
        ("\x1b[>4;2m\x1b[?4m", "\x1b[>4;2m"),
        ("\x1b[?1;1;0S", "\x1b[?1;1;0S"),
        (
            "\x1b]99;i=a:p=?;\x1b\\",
            "\x1b]99;i=a:p=?;p=title,body\x1b\\",
        ),
        (
            "\x1b]7501;?\x07",
            "\x1b]7501;?:states=idle,working,done,blocked,error:kinds=permission,question,auth\x1b\\",
        ),
        ("\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\", ""),
    ] {
        assert_eq!(answer(query), expected, "{query:?}");
    }
}

#[test]
fn the_position_is_that_of_its_byte() {
    let mut grid = grid(80, 24, Role::Host);
    assert_eq!(
        answer_of(&mut grid, "ab\x1b[6ncd\x1b[6n\r\n\x1b[6n"),
        "\x1b[1;3R\x1b[1;5R\x1b[2;1R"
    );
}

#[test]
fn a_replayed_snapshot_asks_and_tells_nothing() {
    let mut host = grid(80, 24, Role::Host);
    feed(
        &mut host,
        "\x1b]2;title\x07\x1b[c\x1b]11;?\x07\x07\x1b]9;done\x07text",
    );
    let mut other = grid(80, 24, Role::Host);
    let effects = feed(&mut other, host.snapshot(Scrollback::All));
    let told = [Effect::Reset, Effect::Title(Some("title".into()))];
    assert_eq!(effects, told);
}

#[test]
fn notifications_come_from_three_sequences() {
    let notify = |source, title: Option<&str>, body: &str| Effect::Notify {
        source,
        title: title.map(str::to_owned),
        body: body.to_owned(),
    };
    for (bytes, expected) in [
        (
            "\x1b]9;Approval requested: touch x\x07",
            notify(NoticeSource::Osc9, None, "Approval requested: touch x"),
        ),
        (
            "\x1b]9;3 tests failed\x07",
            notify(NoticeSource::Osc9, None, "3 tests failed"),
        ),
        (
            "\x1b]777;notify;Claude Code;Claude needs your permission\x07",
            notify(
                NoticeSource::Osc777,
                Some("Claude Code"),
                "Claude needs your permission",
            ),
        ),
        (
            "\x1b]99;;Hello\x1b\\",
            notify(NoticeSource::Osc99, None, "Hello"),
        ),
        (
            "\x1b]99;i=1:d=0:p=title;Build\x1b\\\x1b]99;i=1:p=body:e=1;ZmFpbGVk\x1b\\",
            notify(NoticeSource::Osc99, Some("Build"), "failed"),
        ),
    ] {
        assert_eq!(
            feed(&mut grid(80, 24, Role::Mirror), bytes),
            [expected],
            "{bytes:?}"
        );
    }
}

#[test]
fn other_commands_become_effects() {
    for (bytes, expected) in [
        ("\x1b]9;4;1;40\x07", Effect::Progress(Progress::At(40))),
        ("\x1b]9;4;0\x07", Effect::Progress(Progress::Off)),
        ("\x1b]9;4;3\x07", Effect::Progress(Progress::Indeterminate)),
        (
            "\x1b]7;file://host/tmp\x1b\\",
            Effect::WorkingDirectory("file://host/tmp".into()),
        ),
        ("\x1b]133;A;k=i\x07", Effect::PromptMark(PromptMark::Prompt)),
        (
            "\x1b]133;D;2\x07",
            Effect::PromptMark(PromptMark::Done { exit: Some(2) }),
        ),
        (
            "\x1b]133;D\x07",
            Effect::PromptMark(PromptMark::Done { exit: None }),
        ),
        (
            "\x1b]52;c;aGk=\x07",
            Effect::ClipboardSet {
                selection: 'c',
                text: "hi".into(),
            },
        ),
        (
            "\x1b]52;p;aGk\x07",
            Effect::ClipboardSet {
                selection: 'p',
                text: "hi".into(),
            },
        ),
        (
            "\x1b]52;c;?\x1b\\",
            Effect::ClipboardQuery {
                selection: 'c',
                terminator: "\x1b\\".into(),
            },
        ),
        ("\x07", Effect::Bell),
        (
            "\x1b]0;\u{2733} Claude Code\x07",
            Effect::Title(Some("\u{2733} Claude Code".into())),
        ),
        ("\x1b[?1049h", Effect::AlternateScreen(true)),
        ("\x1b[?2026h", Effect::Synchronized(true)),
        ("\x1bc", Effect::Reset),
    ] {
        assert_eq!(
            feed(&mut grid(80, 24, Role::Host), bytes),
            [expected],
            "{bytes:?}"
        );
    }
    assert_eq!(clipboard_answer('c', "hi", "\x07"), b"\x1b]52;c;aGk=\x07");
}

#[test]
fn the_status_of_a_program_is_taken_apart() {
    let raw = "state=blocked:app=claude-code:kind=permission:msg=YXBwcm92ZSBCYXNoOiB0b3VjaCAvdmFyL3RtcC9lc2NfbWFya2Vy";
    let expected = ProgramStatus {
        state: Some("blocked".into()),
        app: Some("claude-code".into()),
        kind: Some("permission".into()),
        message: Some("approve Bash: touch /var/tmp/esc_marker".into()),
        raw: raw.into(),
    };
    let effects = feed(
        &mut grid(80, 24, Role::Mirror),
        format!("\x1b]7501;{raw}\x07"),
    );
    assert_eq!(effects, [Effect::ProgramStatus(expected)]);
    let clear = feed(
        &mut grid(80, 24, Role::Mirror),
        "\x1b]7501;state=clear\x1b\\",
    );
    let Effect::ProgramStatus(status) = &clear[0] else {
        panic!("{clear:?}");
    };
    assert_eq!(
        (status.state.as_deref(), &status.app),
        (Some("clear"), &None)
    );
}

#[test]
fn cells_say_how_they_look() {
    let mut grid = grid(20, 4, Role::Host);
    feed(
        &mut grid,
        "\x1b[1;4:3;38;2;1;2;3m世e\u{301}\x1b[0m\x1b]8;id=q;https://a.b\x07L\x1b]8;;\x07\x1b[3 q",
    );
    let row = grid.row(0);
    let widths: Vec<u8> = row.cells().take(4).map(|cell| cell.width()).collect();
    assert_eq!(widths, [2, 0, 1, 1]);
    let style = row.cell(0).unwrap().style();
    assert!(style.bold && style.underline == Underline::Curly);
    assert_eq!(row.cell(2).unwrap().marks(), ['\u{301}']);
    let link = row.cell(3).unwrap().link().unwrap();
    assert_eq!((link.address(), link.id()), ("https://a.b", "q"));
    assert_eq!(row.text(), "世e\u{301}L");
    let cursor = grid.cursor();
    assert_eq!(
        (cursor.row, cursor.column, cursor.shape),
        (0, 4, CursorShape::Underline)
    );
    assert!(cursor.blinking && cursor.visible);
}

#[test]
fn only_rows_that_changed_are_damaged() {
    let mut grid = grid(20, 5, Role::Host);
    assert_eq!(grid.take_damage().rows, [0, 1, 2, 3, 4]);
    assert_eq!(grid.take_damage(), Damage::default());
    feed(&mut grid, "\x1b[3;1Hx\x1b[5;1H\x1b[41m \x1b[m");
    assert_eq!(grid.take_damage().rows, [2, 4]);
    feed(&mut grid, "\x1b[3;1Hx");
    assert_eq!(grid.take_damage(), Damage::default());
    feed(&mut grid, "\r\n\n\n\n");
    assert_eq!(grid.take_damage().scrolled, 2);
}

#[test]
fn text_and_search_join_lines_that_wrapped() {
    let mut grid = grid(10, 3, Role::Host);
    feed(
        &mut grid,
        "one\r\ntwo needle in a haystack\r\nНАЙДИ меня\r\nend",
    );
    assert_eq!(
        grid.text(Extent::All, Form::Joined),
        "one\ntwo needle in a haystack\nНАЙДИ меня\nend\n"
    );
    assert_eq!(
        grid.text(Extent::Screen, Form::Plain),
        "tack\nНАЙДИ меня\nend\n"
    );
    let found = grid.search("needle", Case::Sensitive);
    assert_eq!(found.len(), 1);
    let place = found[0];
    assert_eq!(
        (place.line, place.column, place.last_line, place.end),
        (1, 4, 1, 10)
    );
    let over = grid.search("IN A HAY", Case::Insensitive)[0];
    assert_eq!(
        (over.line, over.column, over.last_line, over.end),
        (2, 1, 2, 9)
    );
    let over = grid.search("haystack", Case::Sensitive)[0];
    assert_eq!((over.line, over.last_line, over.end), (2, 3, 4));
    assert_eq!(grid.search("найди", Case::Insensitive)[0].line, 4);
    assert!(grid.search("найди", Case::Sensitive).is_empty());
}

#[test]
fn exported_scrollback_comes_back_in_another_grid() {
    let mut first = grid(20, 4, Role::Host);
    for n in 0..100 {
        feed(
            &mut first,
            format!(
                "\x1b[3{}mline {n} is longer than the width\x1b[m\r\n",
                n % 8
            ),
        );
    }
    let blocks = first.export_history(0);
    let mut second = grid(20, 4, Role::Mirror);
    feed(&mut second, first.snapshot(Scrollback::None));
    second.import_history(&blocks).unwrap();
    assert_eq!(second.checksum(), first.checksum());
    assert_eq!(second.first_line(), first.first_line());
    let mut narrow = grid(10, 4, Role::Mirror);
    narrow.import_history(&blocks).unwrap();
    first.resize(Size { cols: 10, rows: 4 });
    assert_eq!(
        narrow.history_row(5).unwrap().view().text(),
        first.history_row(5).unwrap().view().text()
    );
}

/// Names of the functions of the block that `start` opens.
fn functions(source: &str, start: &str) -> BTreeSet<String> {
    let block = &source[source.find(start).unwrap()..];
    let block = &block[..block.find("\n}").unwrap()];
    let names = block.lines().filter_map(|line| {
        let rest = line.strip_prefix("    fn ")?;
        Some(rest[..rest.find(['(', '<'])?].to_owned())
    });
    names.collect()
}

#[test]
fn the_handler_takes_every_call_of_the_parser() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let vte = packages
        .iter()
        .find(|package| package["name"] == "vte")
        .unwrap();
    let manifest = Path::new(vte["manifest_path"].as_str().unwrap());
    let theirs = std::fs::read_to_string(manifest.with_file_name("src/ansi.rs")).unwrap();
    let theirs = functions(&theirs, "pub trait Handler {");
    let ours = include_str!("../../src/terminal/grid/handler.rs");
    assert_eq!(functions(ours, "impl Handler for Dispatch"), theirs);
    assert!(theirs.len() > 60);
}
