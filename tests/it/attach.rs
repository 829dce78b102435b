//! Consoles at real sessions, over local IPC and through a server: resumed, leased, slow, gone.

use std::time::Duration;

use wingman::base::ids::ConsoleId;
use wingman::client::{Caller, Paths, Wanted, connect, find};
use wingman::wire::messages::sessions::{
    AttachMode, AttachParams, AttachReply, Control, Create, CreateParams, LeaseMode,
};
use wingman::wire::{Piece, PieceKind, StreamEnd};

use crate::support::{Host, wait_for};

/// Writes numbered lines, some hundred bytes at a time, for ever.
const LINES: &str = "import os, time\ni = 0\nwhile True:\n    os.write(1, b''.join(b'line %d\\n' % (i + n) for n in range(20)))\n    i += 20\n    time.sleep(0.001)\n";

async fn caller(host: &Host, server: Option<&str>) -> Caller {
    let paths = Paths::resolve(Some(host.data_dir())).expect("paths");
    let wanted = Wanted {
        server: server.map(str::to_owned),
        ..Wanted::default()
    };
    connect(find(&wanted, &paths).expect("a place"))
        .await
        .expect("connect")
}

async fn local(host: &Host) -> Caller {
    caller(host, Some("local")).await
}

async fn session(caller: &Caller, name: &str, command: &[&str]) {
    let params = CreateParams {
        name: Some(name.to_owned()),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        cols: 80,
        rows: 24,
        ..CreateParams::default()
    };
    caller.call::<Create>(&params).await.expect("create");
}

fn params(name: &str) -> AttachParams {
    AttachParams {
        session_id: name.to_owned(),
        cols: 80,
        rows: 24,
        mode: AttachMode::Control,
        since: None,
        exclusive: false,
        takeover: false,
        console_id: None,
        label: "test".to_owned(),
        location: Default::default(),
        acks: false,
    }
}

/// What a console has of a session.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    /// Position of the first of them.
    start: Option<u64>,
    screens: usize,
}

impl Received {
    fn since(&self) -> Option<u64> {
        self.start.map(|start| start + self.bytes.len() as u64)
    }

    fn take(&mut self, piece: &Piece) {
        match piece.kind {
            PieceKind::Bytes => self.bytes.extend_from_slice(&piece.body),
            PieceKind::Control => match control(piece) {
                Control::Attached {
                    since, truncated, ..
                } => {
                    if let Some(expected) = self.since() {
                        assert_eq!(since, expected, "the stream goes on where it was cut");
                        assert!(!truncated);
                    }
                    self.start = self.start.or(Some(since));
                }
                Control::Screen { .. } => self.screens += 1,
                _ => {}
            },
            PieceKind::Snapshot | PieceKind::Screen => {}
        }
    }

    /// Every line follows the one before.
    fn check(&self) -> u64 {
        let text = String::from_utf8(self.bytes.clone()).expect("text");
        let mut lines: Vec<&str> = text.split("\r\n").collect();
        // The first and the last may be parts.
        lines.remove(0);
        lines.pop();
        let numbers: Vec<u64> = lines
            .iter()
            .map(|line| {
                line.strip_prefix("line ")
                    .and_then(|n| n.parse().ok())
                    .unwrap_or_else(|| panic!("{line:?}"))
            })
            .collect();
        for pair in numbers.windows(2) {
            assert_eq!(pair[1], pair[0] + 1);
        }
        numbers.len() as u64
    }
}

fn control(piece: &Piece) -> Control {
    serde_json::from_slice(&piece.body).expect("a control piece")
}

async fn send(stream: &StreamEnd, piece: Piece) {
    stream.send.send(piece).await.expect("the stream is open");
}

async fn type_in(stream: &StreamEnd, text: &str) {
    send(
        stream,
        Piece::new(PieceKind::Bytes, text.as_bytes().to_vec()),
    )
    .await;
}

async fn tell(stream: &StreamEnd, control: &Control) {
    send(
        stream,
        Piece::new(
            PieceKind::Control,
            serde_json::to_vec(control).expect("JSON"),
        ),
    )
    .await;
}

async fn next(stream: &mut StreamEnd) -> Piece {
    tokio::time::timeout(Duration::from_secs(60), stream.recv.recv())
        .await
        .expect("a piece in time")
        .expect("the stream is open")
}

/// Reads until a control piece fits; what came before it is given to `other`.
async fn until<T>(stream: &mut StreamEnd, mut fits: impl FnMut(&Control) -> Option<T>) -> T {
    loop {
        let piece = next(stream).await;
        if piece.kind == PieceKind::Control
            && let Some(found) = fits(&control(&piece))
        {
            return found;
        }
    }
}

async fn until_text(stream: &mut StreamEnd, wanted: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        let piece = next(stream).await;
        if piece.kind != PieceKind::Control {
            seen.extend_from_slice(&piece.body);
        }
    }
}

/// Attaches as soon as the workstation is there, which may just be starting again.
/// The same stream for a console that acknowledges all that comes, after what it has taken already.
fn acknowledging(mut end: StreamEnd, mut taken: u64) -> StreamEnd {
    let (ours, mut theirs) = StreamEnd::pair();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                typed = theirs.recv.recv() => match typed {
                    Some(piece) => send(&end, piece).await,
                    None => return,
                },
                piece = end.recv.recv() => {
                    let Some(piece) = piece else { return };
                    if piece.kind.is_acknowledged() {
                        taken += piece.body.len() as u64;
                        tell(&end, &Control::Ack { bytes: taken }).await;
                    }
                    if theirs.send.send(piece).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    ours
}

async fn attach_in_time(caller: &Caller, params: &AttachParams) -> StreamEnd {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match caller.attach(params).await {
            Ok((_, stream)) => return stream,
            Err(fault) => assert!(tokio::time::Instant::now() < deadline, "{fault}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Cuts at random pieces and comes back, so often.
async fn cut_and_resume(caller: &Caller, name: &str, cuts: usize, received: &mut Received) {
    let mut seed = 0x5eed_u64;
    for _ in 0..cuts {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut asked = params(name);
        asked.since = received.since();
        let mut stream = attach_in_time(caller, &asked).await;
        for _ in 0..=(seed >> 33) % 4 {
            let piece = next(&mut stream).await;
            received.take(&piece);
        }
        // Dropping it is the cut: what is under way is lost with it.
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cuts_lose_and_double_no_byte() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    session(&caller, "lines", &["python3", "-c", LINES]).await;
    let mut received = Received::default();
    cut_and_resume(&caller, "lines", 1_000, &mut received).await;
    assert_eq!(received.screens, 0, "this console reads fast enough");
    assert!(received.check() > 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_through_a_server_and_restarts_of_the_agent_lose_no_byte() {
    let host = Host::new();
    let _server = host.start_server();
    host.join_agent();
    let mut agent = host.start_agent();
    host.wait_until_online();
    let caller = caller(&host, None).await;
    session(&local(&host).await, "lines", &["python3", "-c", LINES]).await;
    let mut received = Received::default();
    for _ in 0..5 {
        cut_and_resume(&caller, "lines", 40, &mut received).await;
        agent.kill();
        agent = host.start_agent();
        host.wait_until_online();
    }
    cut_and_resume(&caller, "lines", 40, &mut received).await;
    assert!(received.check() > 500);
    drop(agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn console_that_stops_reading_stalls_nobody_and_gets_a_screen() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    session(
        &caller,
        "flood",
        &["sh", "-c", "read x; seq 1 400000; echo THE-END; cat"],
    )
    .await;
    let (_, mut stuck) = caller.attach(&params("flood")).await.expect("attach");
    let (_, mut reading) = caller.attach(&params("flood")).await.expect("attach");
    type_in(&reading, "\r").await;
    until_text(&mut reading, "THE-END").await;
    // The program is not held up by the one that does not read.
    assert!(
        host.run(&["wait", "flood", "--for", "THE-END", "--timeout", "60s"])
            .status
            .success()
    );
    let screen = until(&mut stuck, |control| match control {
        Control::Screen { length, .. } => Some(*length),
        _ => None,
    })
    .await;
    assert!(screen > 0);
    until_text(&mut stuck, "THE-END").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forgetting_a_session_sends_no_console_away() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    session(&caller, "brief", &["cat"]).await;
    let (_, mut console) = caller.attach(&params("brief")).await.expect("attach");
    assert!(host.run(&["kill", "brief"]).status.success());
    until(&mut console, |control| match control {
        Control::Exit { .. } => Some(()),
        _ => None,
    })
    .await;
    assert!(host.run(&["kill", "brief"]).status.success());
    // The stream ends; nothing tells the console to leave.
    while let Some(piece) = console.recv.recv().await {
        if piece.kind == PieceKind::Control {
            let control = control(&piece);
            assert!(!matches!(control, Control::Error { .. }), "{control:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_and_echoes_in_turn_all_come_to_their_end() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    let script = "while read -r round lines; do seq 1 $lines; echo END-$round-; done";
    session(&caller, "turns", &["sh", "-c", script]).await;
    let (_, console) = caller.attach(&params("turns")).await.expect("attach");
    turns(console, "a").await;
    let params = AttachParams {
        acks: true,
        ..params("turns")
    };
    let (_, console) = caller.attach(&params).await.expect("attach");
    turns(acknowledging(console, 0), "b").await;
}

async fn turns(mut console: StreamEnd, who: &str) {
    let lengths = [2, 20_000, 5, 90_000, 300, 6_000, 1, 60_000];
    for (round, lines) in lengths.iter().cycle().take(48).enumerate() {
        type_in(&console, &format!("{who}{round} {lines}\r")).await;
        until_text(&mut console, &format!("END-{who}{round}-")).await;
    }
}

/// Over local IPC and through a server alike.
#[tokio::test(flavor = "multi_thread")]
async fn little_is_under_way_to_a_console_that_acknowledges_and_all_comes_in_the_end() {
    let host = Host::new();
    let _server = host.start_server();
    host.join_agent();
    let _agent = host.start_agent();
    host.wait_until_online();
    for (name, caller) in [
        ("near", local(&host).await),
        ("far", caller(&host, None).await),
    ] {
        let script = "read x; seq 1 2000000; echo THE-END; cat";
        session(&local(&host).await, name, &["sh", "-c", script]).await;
        let params = AttachParams {
            acks: true,
            ..params(name)
        };
        let (_, mut console) = caller.attach(&params).await.expect("attach");
        type_in(&console, "\r").await;
        // It reads all that comes and says nothing: then nothing more comes.
        let mut taken = 0;
        while let Ok(piece) =
            tokio::time::timeout(Duration::from_millis(500), console.recv.recv()).await
        {
            let piece = piece.expect("the stream is open");
            if piece.kind.is_acknowledged() {
                taken += piece.body.len();
            }
        }
        assert!((1..80_000).contains(&taken), "{name}: {taken}");
        let bytes = taken as u64;
        tell(&console, &Control::Ack { bytes }).await;
        let mut console = acknowledging(console, bytes);
        until_text(&mut console, "THE-END").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn size_follows_who_types_and_comes_back_when_a_small_console_leaves() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    session(&caller, "size", &["cat"]).await;
    let mut big = params("size");
    (big.cols, big.rows) = (100, 30);
    let (_, mut big) = caller.attach(&big).await.expect("attach");
    let mut small = params("size");
    (small.cols, small.rows) = (60, 15);
    let (_, small) = caller.attach(&small).await.expect("attach");
    let resized = |wanted: (u16, u16)| {
        move |control: &Control| match control {
            // Of several changes at once only the last one's screen is sent.
            Control::Resize { cols, rows, .. } | Control::Screen { cols, rows, .. } => {
                ((*cols, *rows) == wanted).then_some(())
            }
            _ => None,
        }
    };
    type_in(&small, "x").await;
    until(&mut big, resized((60, 15))).await;
    drop(small);
    until(&mut big, resized((100, 30))).await;
    let mut watcher = params("size");
    watcher.mode = AttachMode::Observe;
    (watcher.cols, watcher.rows) = (20, 5);
    let (_, mut watcher) = caller.attach(&watcher).await.expect("attach");
    type_in(&watcher, "never").await;
    let code = until(&mut watcher, |control| match control {
        Control::Error { code, .. } => Some(code.clone()),
        _ => None,
    })
    .await;
    assert_eq!(code, "lease_held");
    assert!(!String::from_utf8_lossy(&host.run(&["read", "size"]).stdout).contains("never"));
    assert_eq!(host.json(&["ls", "--json"])["sessions"][0]["cols"], 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_refuses_what_was_typed_for_the_old_lease_and_tells_everybody() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    session(&caller, "lease", &["cat"]).await;
    let mut first = params("lease");
    first.exclusive = true;
    let (reply, mut first): (AttachReply, StreamEnd) = caller.attach(&first).await.expect("attach");
    assert_eq!(reply.lease.mode, LeaseMode::Exclusive);
    assert_eq!(reply.lease.holder.as_ref(), Some(&reply.console_id));
    let (_, mut second) = caller.attach(&params("lease")).await.expect("attach");
    type_in(&second, "x").await;
    let error = |control: &Control| match control {
        Control::Error { code, .. } => Some(code.clone()),
        _ => None,
    };
    assert_eq!(until(&mut second, error).await, "lease_held");
    let sent = host.run(&["send", "lease", "no"]);
    assert!(String::from_utf8_lossy(&sent.stderr).contains("lease_held"));
    tell(&second, &Control::Take { takeover: false }).await;
    assert_eq!(until(&mut second, error).await, "lease_held");
    tell(&second, &Control::Take { takeover: true }).await;
    let generation = until(&mut first, |control| match control {
        Control::Lease { lease } => {
            Some(lease.generation).filter(|new| *new > reply.lease.generation)
        }
        _ => None,
    })
    .await;
    type_in(&first, "late").await;
    assert_eq!(until(&mut first, error).await, "lease_stale");
    tell(&first, &Control::Generation { generation }).await;
    type_in(&first, "late").await;
    assert_eq!(until(&mut first, error).await, "lease_held");
    type_in(&second, "mine\r").await;
    until_text(&mut second, "mine").await;
    // The holder leaves: shared again.
    drop(second);
    let events = wait_for("the lease to be free again", || {
        let events = host.run(&["debug", "events", "--json"]);
        let text = String::from_utf8_lossy(&events.stdout).into_owned();
        let session = &host.json(&["ls", "--json"])["sessions"][0];
        (session["lease"]["mode"] == "shared").then_some(text)
    });
    assert!(events.contains("session.lease_changed"), "{events}");
    assert!(!events.contains("mine"), "what is typed is never an event");
}

#[tokio::test(flavor = "multi_thread")]
async fn console_that_comes_back_with_its_id_keeps_an_exclusive_lease() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    session(&caller, "keep", &["cat"]).await;
    let id = ConsoleId::random();
    let mut mine = params("keep");
    mine.exclusive = true;
    mine.console_id = Some(id.clone());
    let (_, stream) = caller.attach(&mine).await.expect("attach");
    drop(stream);
    wait_for("the console to be gone", || {
        (host.json(&["ls", "--json"])["sessions"][0]["attached"] == 0).then_some(())
    });
    mine.exclusive = false;
    let (reply, mut stream) = caller.attach(&mine).await.expect("attach");
    assert_eq!(reply.lease.holder, Some(id));
    type_in(&stream, "still mine\r").await;
    until_text(&mut stream, "still mine").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_told_that_somebody_types_and_all_of_it_arrives() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    session(&caller, "both", &["sh", "-c", "stty -echo; cat"]).await;
    let (one, one_end) = caller.attach(&params("both")).await.expect("attach");
    let (_, mut two_end) = caller.attach(&params("both")).await.expect("attach");
    type_in(&one_end, "from one\r").await;
    let who = until(&mut two_end, |control| match control {
        Control::Typing { console_id, .. } => Some(console_id.clone()),
        _ => None,
    })
    .await;
    assert_eq!(who, one.console_id);
    type_in(&two_end, "from two\r").await;
    until_text(&mut two_end, "from two").await;
    let shown = String::from_utf8_lossy(&host.run(&["read", "both"]).stdout).into_owned();
    assert!(
        shown.contains("from one") && shown.contains("from two"),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_brings_modes_and_colours_back_after_the_ring_has_wrapped() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    let script = "printf '\\033[?1049h\\033[?1003h\\033[?1006h\\033[?2004h\\033[38;5;208m'; seq 1 200000; printf 'COLOURED'; cat";
    session(&caller, "modes", &["sh", "-c", script]).await;
    assert!(
        host.run(&["wait", "modes", "--for", "COLOURED", "--timeout", "60s"])
            .status
            .success()
    );
    let mut asked = params("modes");
    asked.since = Some(10);
    let (reply, mut stream) = caller.attach(&asked).await.expect("attach");
    assert!(reply.truncated, "so old bytes are gone");
    let mut snapshot = Vec::new();
    while (snapshot.len() as u64) < reply.snapshot_bytes {
        let piece = next(&mut stream).await;
        if piece.kind == PieceKind::Snapshot {
            snapshot.extend_from_slice(&piece.body);
        }
    }
    let mut reader = vt100::Parser::new(24, 80, 0);
    reader.process(&snapshot);
    let screen = reader.screen();
    assert!(screen.alternate_screen() && screen.bracketed_paste());
    assert_eq!(
        screen.mouse_protocol_mode(),
        vt100::MouseProtocolMode::AnyMotion
    );
    assert_eq!(
        screen.mouse_protocol_encoding(),
        vt100::MouseProtocolEncoding::Sgr
    );
    assert!(screen.contents().contains("COLOURED"));
    let (row, col) = screen.cursor_position();
    assert_eq!(
        screen.cell(row, col - 1).expect("a cell").fgcolor(),
        vt100::Color::Idx(208)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn detach_ends_consoles_and_not_their_session() {
    let host = Host::new();
    let _agent = host.start_agent();
    let caller = local(&host).await;
    session(&caller, "stay", &["cat"]).await;
    let (_, mut stream) = caller.attach(&params("stay")).await.expect("attach");
    wait_for("the console to be listed", || {
        (host.json(&["ls", "--json"])["sessions"][0]["attached"] == 1).then_some(())
    });
    assert_eq!(host.json(&["detach", "stay", "--json"])["detached"], 1);
    while let Some(piece) = stream.recv.recv().await {
        assert!(matches!(
            piece.kind,
            PieceKind::Control | PieceKind::Snapshot | PieceKind::Bytes
        ));
    }
    let session = &host.json(&["ls", "--json"])["sessions"][0];
    assert_eq!(session["attached"], 0);
    assert!(session.get("exit_code").is_none());
}
