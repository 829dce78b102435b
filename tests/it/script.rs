//! Scripts in both engines: calls, values, errors, names.

use std::sync::Arc;

use serde_json::json;
use wingman::script::host::Level;
use wingman::script::{Outcome, StopReason};
use wingman::wire::Code;
use wingman::wire::messages::executions::Stream;
use wingman::wire::messages::scripts::Language;

use crate::script_host::{LANGUAGES, TestHost, failure, result, run, start};

#[test]
fn both_engines_log_and_answer() {
    for language in LANGUAGES {
        let host = Arc::new(TestHost::default());
        let source = "log.info(\"hello\"); log.warn(\"careful\"); print(\"plain\"); result.set(42)";
        assert_eq!(run(&host, language, source), Outcome::Succeeded);
        assert_eq!(
            host.full_lines(),
            [
                (Stream::Stdout, Level::Info, "hello".to_owned()),
                (Stream::Stderr, Level::Warn, "careful".to_owned()),
                (Stream::Stdout, Level::Info, "plain".to_owned()),
            ]
        );
        assert_eq!(host.result(), Some(json!(42)));
    }
}

#[test]
fn snake_case_camel_case_and_the_namespace_name_the_same_function() {
    for language in LANGUAGES {
        let source = "result.set(wingman.crypto.hex_encode(crypto.hexDecode(\"00ff\")))";
        assert_eq!(result(language, source), json!("00ff"));
    }
}

#[test]
fn wrong_calls_get_the_same_text_in_both_engines() {
    let calls = [
        (
            "crypto.sha256(5)",
            "crypto.sha256: parameter \"data\": expected string or bytes, got integer 5",
        ),
        (
            "crypto.sha256()",
            "crypto.sha256: parameter \"data\": expected string or bytes, got nothing",
        ),
        (
            "args.get(\"a\", 1, 2)",
            "args.get: expected at most 2 arguments, got 3",
        ),
        (
            "util.sleep(-1)",
            "util.sleep: parameter \"duration\": expected milliseconds (a number of at least 0), got integer -1",
        ),
    ];
    for language in LANGUAGES {
        for (call, text) in calls {
            let (code, message) = failure(language, call);
            assert_eq!(code, Code::ScriptError);
            let name = match language {
                Language::Lua => "test.lua:1: ",
                Language::Rhai => "test.rhai:1: ",
            };
            assert_eq!(message, format!("{name}{text}"));
        }
    }
}

#[test]
fn a_script_that_does_not_parse_names_the_line() {
    for language in LANGUAGES {
        let host = Arc::new(TestHost::default());
        let source = "print(\"never\")\n\nlet = = 5";
        match run(&host, language, source) {
            Outcome::Failed { code, line, .. } => {
                assert_eq!((code, line), (Code::ScriptSyntax, Some(3)), "{language:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stop_ends_a_tight_loop() {
    for language in LANGUAGES {
        let host = Arc::new(TestHost::default());
        let source = match language {
            Language::Lua => "print('go') while true do end",
            Language::Rhai => "print(\"go\"); loop { }",
        };
        let running = start(&host, language, source, wingman::script::Profile::script());
        host.wait_for_line("go");
        host.stop(StopReason::Cancelled);
        assert_eq!(
            running.join().unwrap(),
            Outcome::Stopped(StopReason::Cancelled)
        );
    }
}
