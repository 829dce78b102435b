//! Watchers: consoles that are told small output beside their agent.

use std::future::poll_fn;
use std::time::Duration;

use wingman::terminal::holder::{Early, Watcher, socket_of};

use super::*;

fn watch(session: &Session) -> Watcher {
    Watcher::connect(&socket_of(&session.folder)).unwrap()
}

async fn next(watcher: &mut Watcher) -> Option<Early> {
    let next = poll_fn(|context| watcher.poll_next(context));
    tokio::time::timeout(Duration::from_secs(30), next)
        .await
        .expect("the holder tells something")
}

/// Types what comes back by the terminal's echo until a watcher that has just come sees some of it: a
/// connection counts once its holder has heard its first frame. Answers where that ended.
async fn until_watched(agent: &Agent, watcher: &mut Watcher) -> u64 {
    loop {
        agent.input("?");
        let told = poll_fn(|context| watcher.poll_next(context));
        match tokio::time::timeout(Duration::from_millis(200), told).await {
            Ok(Some(Early::Output { offset, bytes })) => return offset + bytes.len() as u64,
            Ok(other) => panic!("{other:?}"),
            Err(_) => {}
        }
    }
}

#[tokio::test]
async fn watcher_sees_an_echo_a_change_of_size_and_the_end() {
    let session = Session::start(&["cat"]);
    let agent = session.attach();
    let mut watcher = watch(&session);
    let mut end = until_watched(&agent, &mut watcher).await;
    // What was typed before may come in several parts.
    agent.input("key");
    let mut seen = Vec::new();
    while !seen.ends_with(b"key") {
        match next(&mut watcher).await {
            Some(Early::Output { offset, bytes }) => {
                assert_eq!(offset, end);
                end += bytes.len() as u64;
                seen.extend_from_slice(&bytes);
            }
            other => panic!("{other:?}"),
        }
    }
    let size = PtySize {
        cols: 100,
        rows: 30,
    };
    agent.writer.resize(size).unwrap();
    assert_eq!(next(&mut watcher).await, Some(Early::Resized(size)));
    agent.input("\x04\x04");
    drop(agent);
    while next(&mut watcher).await.is_some() {}
}

#[tokio::test]
async fn flood_is_left_out_and_what_is_told_stands_where_it_says() {
    let script = "stty -echo; read x; seq 1 200000; while read x; do echo \"it was $x\"; done";
    let session = Session::shell(script);
    let mut agent = session.attach();
    let mut watcher = watch(&session);
    // Until the holder has heard it, and the shell reads.
    std::thread::sleep(Duration::from_millis(100));
    agent.input("\n");
    let all = agent.output_until("200000\r\n").into_bytes();
    let mut told = 0;
    // Small output is told again once the pause between two screens has passed.
    loop {
        let next = poll_fn(|context| watcher.poll_next(context));
        match tokio::time::timeout(Duration::from_millis(100), next).await {
            Ok(Some(Early::Output { bytes, .. })) if bytes.ends_with(b"it was small\r\n") => break,
            Ok(Some(Early::Output { offset, .. })) if offset >= all.len() as u64 => {}
            Ok(Some(Early::Output { offset, bytes })) => {
                let at = usize::try_from(offset).unwrap();
                assert_eq!(&all[at..at + bytes.len()], &bytes[..]);
                told += bytes.len();
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => agent.input("small\n"),
        }
    }
    assert!(told < all.len() / 2, "{told} of {}", all.len());
}

#[tokio::test]
async fn watchers_are_few_and_the_oldest_one_gives_way() {
    let session = Session::start(&["cat"]);
    let agent = session.attach();
    let mut watchers: Vec<Watcher> = Vec::new();
    for _ in 0..=limits::HOLDER_WATCHERS_MAX {
        let mut watcher = watch(&session);
        until_watched(&agent, &mut watcher).await;
        watchers.push(watcher);
    }
    let first = &mut watchers[0];
    while next(first).await.is_some() {}
    agent.input("last");
    let mut seen = Vec::new();
    while !seen.ends_with(b"last") {
        match next(&mut watchers[1]).await {
            Some(Early::Output { bytes, .. }) => seen.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn watcher_that_reads_nothing_holds_nobody_up() {
    let script = "stty -echo; for i in $(seq 1 2000); do echo 0123456789; done; echo THE-END; \
                  while read x; do echo \"it was $x\"; done";
    let session = Session::shell(script);
    let mut silent = watch(&session);
    let mut agent = session.attach();
    agent.output_until("THE-END\r\n");
    // What it missed it does not get; what comes later it does, unless its connection has ended.
    loop {
        agent.input("again\n");
        let told = poll_fn(|context| silent.poll_next(context));
        match tokio::time::timeout(Duration::from_millis(200), told).await {
            Ok(Some(Early::Output { bytes, .. })) if bytes.ends_with(b"it was again\r\n") => break,
            Ok(None) => break,
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

#[test]
fn an_agent_is_heard_however_many_watchers_call() {
    let session = Session::start(&["cat"]);
    let folder = session.folder.clone();
    let (stop, stopped) = mpsc::channel::<()>();
    let calling = std::thread::spawn(move || {
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            RawAgent::open(&folder).send(&[ToHolder::Watch { protocol: PROTOCOL }]);
        }
    });
    for round in 0..100 {
        let connected = connect(&session.folder);
        assert!(connected.is_ok(), "round {round}: {:?}", connected.err());
    }
    stop.send(()).unwrap();
    calling.join().unwrap();
}
