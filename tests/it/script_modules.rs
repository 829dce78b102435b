//! What single modules promise: values, files, the web, storage, pictures.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use serde_json::json;
use wingman::script::{Host, Outcome, Profile, StopReason};
use wingman::wire::Code;
use wingman::wire::messages::executions::Stream;
use wingman::wire::messages::scripts::Language;

use crate::script_examples::{host_on, virtual_desktop};
use crate::script_host::{LANGUAGES, TestHost, failure, result, run, start};

#[test]
fn values_cross_without_loss() {
    let lua = "result.set({i = 3, f = 1.5, b = true, t = 'é', list = {1, 'two', {3}},
        none = json.list(), empty = json.decode('[]'), map = json.decode('{}'),
        back = json.decode('{\"n\":9007199254740992,\"x\":[null,1]}')})";
    let rhai = "result.set(#{i: 3, f: 1.5, b: true, t: \"é\", list: [1, \"two\", [3]],
        none: [], empty: json.decode(\"[]\"), map: json.decode(\"{}\"),
        back: json.decode(`{\"n\":9007199254740992,\"x\":[null,1]}`)})";
    let wanted = json!({"i": 3, "f": 1.5, "b": true, "t": "é", "list": [1, "two", [3]],
        "none": [], "empty": [], "map": {}, "back": {"n": 9_007_199_254_740_992_u64, "x": [null, 1]}});
    assert_eq!(result(Language::Rhai, rhai), wanted);
    assert_eq!(result(Language::Lua, lua), wanted);
    // A nil in a list of Lua is spelled `null`, since it would end the list.
    let source =
        "local l = json.decode('[null,1]') result.set({#l, l[1] == null, json.encode({null, 2})})";
    assert_eq!(result(Language::Lua, source), json!([2, true, "[null,2]"]));
    assert_eq!(
        result(
            Language::Rhai,
            "result.set(json.decode(\"9007199254740993\"))"
        ),
        json!(9_007_199_254_740_993_u64)
    );
    let (_, message) = failure(Language::Lua, "json.decode('9007199254740993')");
    assert!(
        message.contains("does not fit a number of Lua exactly"),
        "{message}"
    );
}

#[test]
fn bytes_that_are_no_text_cross_both_ways() {
    for language in LANGUAGES {
        let source = "result.set(crypto.hexEncode(crypto.base64Decode(crypto.base64Encode(crypto.hexDecode(\"00ff80\")))))";
        assert_eq!(result(language, source), json!("00ff80"));
    }
}

#[test]
fn hashes_are_the_published_ones() {
    for language in LANGUAGES {
        let source = "result.set(crypto.sha256(\"abc\") ); log.info(crypto.hmacSha256(\"key\", \"The quick brown fox jumps over the lazy dog\"))";
        let host = Arc::new(TestHost::default());
        assert_eq!(run(&host, language, source), Outcome::Succeeded);
        assert_eq!(
            host.result(),
            Some(json!(
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
            ))
        );
        assert_eq!(
            host.lines(),
            ["f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"]
        );
    }
}

#[test]
fn named_options_stand_for_the_remaining_parameters() {
    let dir = tempfile::tempdir().unwrap();
    for (language, source) in [
        (
            Language::Lua,
            "result.set({window.waitFor({title = 'xterm', timeout = 10}), window.waitFor('none', {timeout = 1}),
              (select(2, window.find({class_name = 'XTerm'})))})",
        ),
        (
            Language::Rhai,
            "result.set([window.waitFor(#{title: \"xterm\", timeout: 10}), window.waitFor(\"none\", #{timeout: 1}),
              window.find(#{class_name: \"XTerm\"})[1]])",
        ),
    ] {
        let host = host_on(&virtual_desktop(), dir.path());
        assert_eq!(run(&host, language, source), Outcome::Succeeded, "{:?}", host.lines());
        assert_eq!(host.result(), Some(json!([true, false, true])));
    }
    let (_, message) = failure(Language::Lua, "window.waitFor({titel = 'x'})");
    assert!(message.contains("no parameter \"titel\""), "{message}");
}

#[test]
fn files_stay_in_their_folder() {
    for language in LANGUAGES {
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join("scripts");
        let root = outer.path().join("shared");
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(&root).unwrap();
        std::fs::write(outer.path().join("secret"), "secret").unwrap();
        link(&outer.path().join("secret"), &dir.join("link"));
        link(outer.path(), &dir.join("up"));
        let host = || {
            let mut host = TestHost::in_dir(&dir);
            host.roots.push(root.clone());
            Arc::new(host)
        };
        let full = |path: &std::path::Path| path.to_string_lossy().into_owned();
        for path in [
            "../secret".to_owned(),
            "a/../../secret".to_owned(),
            full(&outer.path().join("secret")),
            full(&root.join("../secret")),
            "link".to_owned(),
            "up/secret".to_owned(),
            String::new(),
        ] {
            for call in ["read", "exists", "remove", "removeAll", "listDir", "mkdir"] {
                let source = format!("file.{call}(\"{path}\")");
                match run(&host(), language, &source) {
                    Outcome::Failed { message, .. } => {
                        assert!(message.ends_with("[path_denied]"), "{source}: {message}");
                    }
                    other => panic!("{source}: {other:?}"),
                }
            }
        }
        for source in ["file.removeAll(\".\")", "file.move(\".\", \"x\")"] {
            assert!(
                matches!(run(&host(), language, source), Outcome::Failed { .. }),
                "{source}"
            );
        }
        let good = format!(
            "file.mkdir(\"a/b\"); file.write(\"a/b/c.txt\", \"one\"); file.append(\"a/b/c.txt\", \"two\"); \
             file.copy(\"a/b/c.txt\", \"{0}/d.txt\"); result.set(file.read(\"{0}/d.txt\"))",
            full(&root)
        );
        let host = host();
        assert_eq!(
            run(&host, language, &good),
            Outcome::Succeeded,
            "{:?}",
            host.lines()
        );
        assert_eq!(host.result(), Some(json!("onetwo")));
        assert_eq!(
            std::fs::read(outer.path().join("secret")).unwrap(),
            b"secret"
        );
    }
}

#[cfg(unix)]
fn link(to: &std::path::Path, at: &std::path::Path) {
    std::os::unix::fs::symlink(to, at).unwrap();
}

#[test]
fn a_script_without_a_folder_has_no_files() {
    for language in LANGUAGES {
        let (_, message) = failure(language, "file.read(\"x\")");
        assert!(message.contains("has no folder"), "{message}");
    }
}

/// Answers requests until the listener goes; what it does not answer hangs.
fn serve(answers: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            if !answers {
                silent.push(stream);
                continue;
            }
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let first = head.lines().next().unwrap_or_default();
            let body = format!("{first} {}", String::from_utf8_lossy(&body));
            let status = if first.contains("/missing") {
                "404 Not Found"
            } else {
                "200 OK"
            };
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\nX-Seen: {}\r\n\r\n{body}",
                body.len(),
                head.to_lowercase().contains("x-mine: yes")
            );
        }
    });
    format!("http://{address}")
}

#[test]
fn http_answers_with_status_body_and_headers() {
    let server = serve(true);
    for (language, source) in [
        (
            Language::Lua,
            "local a = http.post(args.get('url') .. '/x', 'hi', {headers = {['x-mine'] = 'yes'}})
             local b = http.get(args.get('url') .. '/missing')
             result.set({a.status, a.body, a.success, a.headers['x-seen'], b.status, b.success})",
        ),
        (
            Language::Rhai,
            "let a = http.post(args.get(\"url\") + \"/x\", \"hi\", #{headers: #{\"x-mine\": \"yes\"}});
             let b = http.get(args.get(\"url\") + \"/missing\");
             result.set([a.status, a.body, a.success, a.headers[\"x-seen\"], b.status, b.success])",
        ),
    ] {
        let mut host = TestHost::default();
        host.args.insert("url".to_owned(), server.clone());
        let host = Arc::new(host);
        assert_eq!(run(&host, language, source), Outcome::Succeeded, "{:?}", host.lines());
        let wanted = json!([200, "POST /x HTTP/1.1 hi", true, "true", 404, false]);
        assert_eq!(host.result(), Some(wanted));
    }
}

#[test]
fn a_stop_does_not_wait_for_a_silent_server() {
    let server = serve(false);
    for language in LANGUAGES {
        let mut host = TestHost::default();
        host.args.insert("url".to_owned(), server.clone());
        let host = Arc::new(host);
        let source = "log.info(\"go\"); http.get(args.get(\"url\"), nothing)";
        let source = source.replace(", nothing", "");
        let running = start(&host, language, &source, Profile::script());
        host.wait_for_line("go");
        host.stop(StopReason::Cancelled);
        // The request's own timeout of 30 s would end it as succeeded.
        assert_eq!(
            running.join().unwrap(),
            Outcome::Stopped(StopReason::Cancelled)
        );
    }
}

#[test]
fn storage_tells_absent_from_empty() {
    for (language, source) in [
        (
            Language::Lua,
            "kv.set('a', '') kv.rpush('l', 1) kv.rpush('l', 'two')
             result.set({kv.get('a'), kv.get('b') == nil, kv.get('b', 'none'), kv.set('a', 1, {nx = true}),
               kv.incr('n'), kv.incr('n', 5), kv.ttl('a'), kv.ttl('b'), kv.lrange('l'), kv.delete({'a', 'l'}), kv.exists('a')})",
        ),
        (
            Language::Rhai,
            "kv.set(\"a\", \"\"); kv.rpush(\"l\", 1); kv.rpush(\"l\", \"two\");
             result.set([kv.get(\"a\"), kv.get(\"b\") == (), kv.get(\"b\", \"none\"), kv.set(\"a\", 1, #{nx: true}),
               kv.incr(\"n\"), kv.incr(\"n\", 5), kv.ttl(\"a\"), kv.ttl(\"b\"), kv.lrange(\"l\"), kv.delete([\"a\", \"l\"]), kv.exists(\"a\")])",
        ),
    ] {
        let wanted = json!(["", true, "none", false, 1, 6, -1, -2, ["1", "two"], true, false]);
        assert_eq!(result(language, source), wanted);
    }
}

#[test]
fn pictures_count_against_the_memory_limit_and_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    for (language, source) in [
        (Language::Lua, "for i = 1, 60 do screen.grab() end"),
        (Language::Rhai, "for i in 0..60 { screen.grab(); }"),
    ] {
        let host = host_on(&virtual_desktop(), dir.path());
        let mut profile = Profile::script();
        profile.limits.memory = 12 * 1024 * 1024;
        match start(&host, language, source, profile).join().unwrap() {
            Outcome::Failed { code, .. } => assert_eq!(code, Code::ScriptMemory),
            other => panic!("{other:?}"),
        }
        let host = host_on(&virtual_desktop(), dir.path());
        let source = source.replace("60", "65");
        match run(&host, language, &source) {
            Outcome::Failed { message, .. } => assert!(message.ends_with("[busy]"), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_error_is_caught_as_text_and_uncaught_goes_to_stderr_with_its_calls() {
    for (language, source) in [
        (
            Language::Lua,
            "local ok, why = pcall(screen.getPixel, 1, 2)\nlog.info(why:match('%[(.-)%]'))\nlocal function f() error('broken') end\nf()",
        ),
        (
            Language::Rhai,
            "try { screen.getPixel(1, 2) } catch (why) { log.info(why.split(\"[\")[1].split(\"]\")[0]) }\n\nfn f() { throw \"broken\" }\nf()",
        ),
    ] {
        let host = Arc::new(TestHost::default());
        let outcome = run(&host, language, source);
        let Outcome::Failed {
            code,
            message,
            line,
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        assert_eq!((code, line), (Code::ScriptError, Some(3)));
        assert!(message.ends_with(":3: broken"), "{message}");
        let lines = host.full_lines();
        assert_eq!(lines[0].2, "display_unavailable");
        assert_eq!(
            (lines[1].0, lines[1].2.as_str()),
            (Stream::Stderr, message.as_str())
        );
        assert!(
            lines[2..].iter().any(|line| line.2.contains(":4")),
            "{lines:?}"
        );
    }
}

#[test]
fn no_desktop_is_told_as_such() {
    for language in LANGUAGES {
        let host = Arc::new(TestHost::default());
        assert!(host.desktop().is_err());
        let (code, message) = failure(language, "screen.getScreenWidth()");
        assert_eq!(code, Code::ScriptError);
        assert!(
            message
                .ends_with("screen.getScreenWidth: this test has no desktop [display_unavailable]"),
            "{message}"
        );
    }
}
