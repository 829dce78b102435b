//! What is typed: into the terminal past its holder, or through it.

use super::*;

#[test]
fn twenty_kilobytes_in_one_input_arrive_whole_in_a_raw_program() {
    let session = Session::shell("stty raw -echo; echo ready; exec head -c 20480");
    let mut agent = session.attach();
    agent.output_until("ready");
    let text: String = (0..20_480)
        .map(|at| char::from(b'a' + (at % 26) as u8))
        .collect();
    agent.input(&text);
    let mut got = String::new();
    while got.trim_start().len() < text.len() {
        agent.next_of(|frame| match frame {
            FromHolder::Output { bytes, .. } => {
                got.push_str(std::str::from_utf8(bytes).unwrap());
                Some(())
            }
            _ => None,
        });
    }
    assert_eq!(got.trim_start(), text);
    agent.writer.close();
    assert_eq!(session.wait_ended(), ProcessExit::Code(0));
}

/// Input goes past the holder while none waits there, through it otherwise: whichever way each part took,
/// the program reads them in order.
#[test]
fn input_stays_in_order_on_both_ways_to_a_program_that_reads_late() {
    let session = Session::shell("stty raw -echo; echo ready; sleep 1; exec cat");
    let mut agent = session.attach();
    agent.output_until("ready");
    let numbers: String = (0..20_000).map(|n| format!("{n:05}\n")).collect();
    let mut sent = String::new();
    for part in numbers.as_bytes().chunks(777) {
        agent.writer.input(part).unwrap();
        sent.push_str(std::str::from_utf8(part).unwrap());
        if sent.len().is_multiple_of(10) {
            agent.writer.reply(0, b"reply\n").unwrap();
            sent.push_str("reply\n");
        }
    }
    agent.input("end of it");
    sent.push_str("end of it");
    let read = agent.output_until("end of it");
    assert_eq!(read.trim_start_matches("\r\n"), sent);
    // The way past the holder is open again: nothing waits.
    wait_for("all input to be taken", || {
        (agent.stat().input_pending == 0).then_some(())
    });
    agent.input("and more");
    agent.output_until("and more");
}

#[test]
fn terminal_hangs_up_with_its_holder_though_the_agent_has_its_input() {
    let session = Session::shell("echo ready; exec cat");
    let mut agent = session.attach();
    agent.output_until("ready");
    let Meta { holder, child, .. } = session.meta();
    kill_process(Pid::from_raw(holder as i32).unwrap(), Signal::KILL).unwrap();
    while agent.reader.next().unwrap().is_some() {}
    drop(agent.reader);
    wait_for("the program to be told", || {
        (!is_running(child)).then_some(())
    });
    assert!(matches!(agent.writer.input(b"x"), Err(HolderError::Closed)));
}

#[test]
fn input_beyond_the_bound_is_refused_as_a_whole() {
    // The program takes nothing, so all of it waits.
    let session = Session::shell("stty raw -echo; echo ready; kill -STOP $$");
    let mut agent = session.attach();
    agent.output_until("ready");
    let half = vec![b'x'; limits::HOLDER_INPUT_LEN_MAX / 2 + 1];
    agent.writer.input(&half).unwrap();
    assert!(agent.stat().input_pending > 0);
    let full = vec![b'y'; limits::HOLDER_INPUT_LEN_MAX];
    agent.writer.input(&full).unwrap();
    let code = agent.next_of(|frame| match frame {
        FromHolder::Error { code, .. } => Some(code),
        _ => None,
    });
    assert_eq!(code, ErrorCode::InputQueueFull);
    assert!(agent.stat().input_pending as usize <= half.len());
    let long = vec![0; limits::HOLDER_INPUT_LEN_MAX + 1];
    assert!(matches!(
        agent.writer.input(&long),
        Err(HolderError::TooLong { .. })
    ));
}
