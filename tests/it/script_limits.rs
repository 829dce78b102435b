//! Hostile scripts: every one is stopped, bounded or refused, and the process lives on.

use std::sync::Arc;
use std::time::Duration;

use wingman::script::profile::{Imports, Limits};
use wingman::script::{Outcome, Profile, StopReason};
use wingman::wire::Code;
use wingman::wire::messages::scripts::Language;

use crate::script_host::{LANGUAGES, TestHost, failure, run, start};

/// Scripts that never end by themselves, after printing `go`.
const ENDLESS_LUA: &[(&str, &str)] = &[
    ("tight loop", "while true do end"),
    (
        "pcall loop",
        "while true do pcall(function() while true do end end) end",
    ),
    ("pcall of sleep", "while true do pcall(util.sleep, 1e9) end"),
    ("sleep", "util.sleep(1e9)"),
    (
        "recursive pcall",
        "local function f() pcall(f) end while true do f() end",
    ),
    (
        "xpcall handler",
        "while true do xpcall(error, function() while true do end end) end",
    ),
    (
        "coroutines",
        "while true do pcall(coroutine.wrap(function() while true do end end)) end",
    ),
    (
        "coroutine that yields",
        "local f = coroutine.wrap(function() while true do coroutine.yield() end end) while true do f() end",
    ),
    (
        "pattern",
        "string.find(string.rep('a', 200000), '.-.-.-.-.-.-b')",
    ),
    (
        "gsub",
        "local s = string.rep('a', 1000000) while true do string.gsub(s, '.', function(c) return c end) end",
    ),
    (
        "plain search",
        "local s = string.rep('a', 20000000) string.find(s, string.rep('a', 10000000) .. 'b', 1, true)",
    ),
    (
        "split",
        "local s = string.rep('a', 20000000) string.split(s, string.rep('a', 10000000) .. 'b')",
    ),
    (
        "sort without order",
        "local t = {} for i = 1, 100000 do t[i] = i end while true do pcall(table.sort, t, function(a, b) return true end) end",
    ),
    (
        "sort of long texts",
        "local a = string.rep('a', 10000000) local t = {} for i = 1, 200000 do t[i] = i % 2 == 0 and a .. 'x' or t[i - 2] or a .. 'y' if i > 2 then t[i] = t[i - 2] end end table.sort(t) while true do table.sort(t) end",
    ),
    ("table.move", "table.move({}, 1, 1e15, 2)"),
    (
        "recursion",
        "local function f() return f() + 1 end while true do pcall(f) end",
    ),
    (
        "metamethods",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do pcall(function() return t[1] end) end",
    ),
    (
        "__eq and __lt",
        "local m = {} m.__lt = function(a, b) while true do end end local a, b = setmetatable({}, m), setmetatable({}, m) while true do pcall(function() return a < b end) end",
    ),
    (
        "__tostring",
        "local t = setmetatable({}, {__tostring = function() while true do end end}) while true do pcall(tostring, t) end",
    ),
    (
        "__iter",
        "for _ in setmetatable({}, {__iter = function() return function() return 1 end end}) do end",
    ),
    ("host calls", "while true do pcall(kv.get, 'x') end"),
    ("refused host calls", "while true do pcall(kv.get) end"),
    (
        "memory errors caught",
        "while true do pcall(function() local t = {} while true do t[#t + 1] = string.rep('x', 1000000) .. #t end end) end",
    ),
];

const ENDLESS_RHAI: &[(&str, &str)] = &[
    ("tight loop", "loop { }"),
    ("while", "let x = 0; while true { x += 1; }"),
    ("try loop", "loop { try { loop { } } catch { } }"),
    ("sleep", "util.sleep(1000000000)"),
    ("the language's own sleep", "sleep(1000000)"),
    (
        "try of sleep",
        "loop { try { util.sleep(1000000000) } catch { } }",
    ),
    (
        "range",
        "let x = 0; for i in 0..9223372036854775807 { x = i; }",
    ),
    (
        "closures",
        "let a = []; a.pad(10000, 1); let b = a; loop { a.map(|x| b.filter(|y| y == x)); }",
    ),
    (
        "sort without order",
        "let a = []; for i in 0..2000 { a.push(i); } loop { try { a.sort(|x, y| 1); } catch { } }",
    ),
    ("host calls", "loop { try { kv.get(\"x\") } catch { } }"),
    ("refused host calls", "loop { try { kv.get() } catch { } }"),
    (
        "long texts",
        "let s = \"aaaaaaaaaa\"; loop { let t = s; for i in 0..20 { t += t; } t.contains(\"ab\"); }",
    ),
];

fn stops(language: Language, name: &str, body: &str) {
    let host = Arc::new(TestHost::default());
    let source = match language {
        Language::Lua => format!("print('go') {body}"),
        Language::Rhai => format!("print(\"go\"); {body}"),
    };
    let running = start(&host, language, &source, Profile::script());
    host.wait_for_line("go");
    std::thread::sleep(Duration::from_millis(20));
    host.stop(StopReason::Cancelled);
    let outcome = running.join().unwrap();
    assert_eq!(
        outcome,
        Outcome::Stopped(StopReason::Cancelled),
        "{language:?}: {name}"
    );
}

#[test]
fn every_endless_lua_script_is_stopped() {
    for (name, body) in ENDLESS_LUA {
        stops(Language::Lua, name, body);
    }
}

#[test]
fn every_endless_rhai_script_is_stopped() {
    for (name, body) in ENDLESS_RHAI {
        stops(Language::Rhai, name, body);
    }
}

#[test]
fn host_calls_are_refused_after_a_stop() {
    for language in LANGUAGES {
        let host = Arc::new(TestHost::default());
        let source = match language {
            Language::Lua => "print('go') pcall(util.sleep, 1e9) kv.set('after', 1) print('after')",
            Language::Rhai => {
                "print(\"go\"); try { util.sleep(1000000000) } catch { } kv.set(\"after\", 1); print(\"after\")"
            }
        };
        let running = start(&host, language, source, Profile::script());
        host.wait_for_line("go");
        host.stop(StopReason::Cancelled);
        assert_eq!(
            running.join().unwrap(),
            Outcome::Stopped(StopReason::Cancelled)
        );
        use wingman::script::Host;
        assert_eq!(host.kv().get("after").unwrap(), None);
    }
}

#[test]
fn the_profiles_timeout_ends_a_run() {
    for (language, source) in [
        (Language::Lua, "while true do pcall(util.sleep, 1e9) end"),
        (
            Language::Rhai,
            "loop { try { util.sleep(1000000000) } catch { } }",
        ),
    ] {
        let host = Arc::new(TestHost::default());
        let mut profile = Profile::script();
        profile.limits.timeout = Some(Duration::from_millis(30));
        let outcome = start(&host, language, source, profile).join().unwrap();
        assert_eq!(outcome, Outcome::Stopped(StopReason::TimedOut));
    }
}

#[test]
fn the_instruction_limit_ends_a_run() {
    for (language, source) in [
        (Language::Lua, "while true do pcall(function() end) end"),
        (Language::Rhai, "loop { try { let x = 1; } catch { } }"),
    ] {
        let host = Arc::new(TestHost::default());
        let mut profile = Profile::script();
        profile.limits.instructions = Some(10_000);
        match start(&host, language, source, profile).join().unwrap() {
            Outcome::Failed { code, .. } => assert_eq!(code, Code::ScriptInstructions),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_script_that_allocates_without_end_fails_within_its_limit() {
    let hungry = [
        (
            Language::Lua,
            "local t = {} while true do t[#t + 1] = string.rep('x', 100000) .. #t end",
        ),
        (Language::Lua, "local s = 'x' while true do s = s .. s end"),
        (Language::Lua, "local t = {} while true do t = {t} end"),
        (Language::Lua, "local t = {} for i = 1, 1e9 do t[i] = i end"),
        (Language::Lua, "buffer.create(1000000000)"),
        (Language::Lua, "table.create(50000000, 1)"),
        // One table in many places becomes a huge value on its way to the host.
        (
            Language::Lua,
            "local t = {string.rep('x', 1000)} for i = 1, 40 do t = {t, t} end json.encode(t)",
        ),
        (
            Language::Lua,
            "while true do local t = json.decode('[' .. string.rep('1,', 1000000) .. '1]') x = {x, t} end",
        ),
        (
            Language::Rhai,
            "let t = []; loop { let s = \"x\"; s.pad(100000, 'x'); t.push(s); }",
        ),
        (
            Language::Rhai,
            "let t = []; loop { let a = []; a.pad(100000, 1); t.push(a); }",
        ),
        (
            Language::Rhai,
            "let t = []; loop { let b = blob(1000000, 1); t.push(b); }",
        ),
        (
            Language::Rhai,
            "let t = #{}; let i = 0; loop { i += 1; let b = blob(1000000, 1); t[\"key\" + i] = b; }",
        ),
        (
            Language::Rhai,
            "fn grow(a) { let b = a; b.pad(500000, \"x\"); grow(b); } grow([])",
        ),
    ];
    for (language, source) in hungry {
        let host = Arc::new(TestHost::default());
        let mut profile = Profile::script();
        profile.limits.memory = 24 * 1024 * 1024;
        let outcome = start(&host, language, source, profile).join().unwrap();
        let Outcome::Failed { code, message, .. } = outcome else {
            panic!("{source}: {outcome:?}");
        };
        // Rhai's bound on a single value may come before the bound on all of them.
        let single = message.contains("exceeds")
            || message.contains("Size of")
            || message.contains("too large");
        assert!(
            code == Code::ScriptMemory || single,
            "{source}: {code} {message}"
        );
    }
}

#[test]
fn deep_values_and_deep_sources_are_refused() {
    let deep_list = "[".repeat(100_000);
    let cases = [
        (
            Language::Lua,
            "local t = {} for i = 1, 100 do t = {t} end json.encode(t)".to_owned(),
        ),
        (
            Language::Lua,
            "local t = {} t.t = t json.encode(t)".to_owned(),
        ),
        (Language::Lua, format!("json.decode('{deep_list}')")),
        (Language::Lua, "(".repeat(100_000)),
        (
            Language::Lua,
            "local function f() return f() + 1 end f()".to_owned(),
        ),
        (
            Language::Rhai,
            "let t = []; for i in 0..100 { t = [t]; } json.encode(t)".to_owned(),
        ),
        (Language::Rhai, format!("json.decode(\"{deep_list}\")")),
        (Language::Rhai, format!("parse_json(\"{deep_list}\")")),
        (Language::Rhai, "(".repeat(100_000)),
        (Language::Rhai, "fn f(x) { f(x + 1) + 1 } f(1)".to_owned()),
    ];
    for (language, source) in cases {
        let (code, _) = failure(language, &source);
        assert!(
            matches!(code, Code::ScriptError | Code::ScriptSyntax),
            "{code}: {}",
            &source[..60.min(source.len())]
        );
    }
}

#[test]
fn what_reaches_out_of_the_script_is_not_there() {
    for name in [
        "os",
        "io",
        "debug",
        "loadstring",
        "load",
        "dofile",
        "loadfile",
        "package",
        "collectgarbage",
        "getfenv",
        "setfenv",
        "newproxy",
    ] {
        let (_, message) = failure(Language::Lua, &format!("assert({name} ~= nil, 'absent')"));
        assert!(message.ends_with("absent"), "{name}: {message}");
    }
    let (code, _) = failure(Language::Rhai, "eval(\"1\")");
    assert_eq!(code, Code::ScriptSyntax);
}

#[test]
fn a_script_cannot_change_what_it_was_given() {
    for source in ["string.find = nil", "log.info = print", "math.max = nil"] {
        let (_, message) = failure(Language::Lua, source);
        assert!(message.contains("readonly"), "{message}");
    }
    let (_, message) = failure(Language::Rhai, "log = 5");
    assert!(message.contains("log"), "{message}");
}

#[test]
fn a_rule_profile_shows_every_dependency() {
    let profile = Profile::rule(vec!["log".to_owned(), "result.set".to_owned()]);
    let outcome = |source: &str| {
        let host = Arc::new(TestHost::default());
        let running = start(&host, Language::Rhai, source, profile.clone());
        running.join().unwrap()
    };
    assert_eq!(
        outcome("log.info(\"x\"); if 1 < 2 { result.set(1) }"),
        Outcome::Succeeded
    );
    for (source, code) in [
        ("loop { }", Code::ScriptSyntax),
        ("while true { }", Code::ScriptSyntax),
        ("let f = |x| x;", Code::ScriptSyntax),
        ("let f = Fn(\"g\");", Code::ScriptSyntax),
        ("fn g(x) { x } let f = g; f.call(1)", Code::ScriptSyntax),
        ("fn g(x) { x } let a = [1].map(g);", Code::ScriptError),
        ("import \"x\" as x;", Code::ScriptSyntax),
        ("eval(\"1\")", Code::ScriptSyntax),
        ("kv.get(\"x\")", Code::ScriptError),
    ] {
        match outcome(source) {
            Outcome::Failed {
                code: found,
                message,
                ..
            } => {
                assert_eq!(found, code, "{source}: {message}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
    let host = Arc::new(TestHost::default());
    match start(&host, Language::Lua, "log.info('x')", profile.clone())
        .join()
        .unwrap()
    {
        Outcome::Failed { code, .. } => assert_eq!(code, Code::ScriptForbidden),
        other => panic!("{other:?}"),
    }
}

#[test]
fn imports_come_from_the_scripts_own_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    file(
        "tools.lua",
        "print('loaded') return {double = function(x) return x * 2 end}",
    );
    file("round.lua", "return require('round')");
    file("tools.rhai", "print(\"loaded\"); fn double(x) { x * 2 }");
    file("round.rhai", "import \"round\" as r;");
    let with_dir = || Arc::new(TestHost::in_dir(dir.path()));
    for (language, source) in [
        (
            Language::Lua,
            "result.set(require('tools').double(require('tools').double(1)))",
        ),
        (
            Language::Rhai,
            "import \"tools\" as a; import \"tools\" as b; result.set(a::double(b::double(1)))",
        ),
    ] {
        let host = with_dir();
        assert_eq!(run(&host, language, source), Outcome::Succeeded);
        assert_eq!(host.result(), Some(serde_json::json!(4)));
        assert_eq!(host.lines(), ["loaded"]);
    }
    for (language, source, text) in [
        (Language::Lua, "require('../other')", "may not leave"),
        (Language::Lua, "require('absent')", "absent"),
        (Language::Lua, "require('round')", "itself"),
        (Language::Rhai, "import \"../other\" as o;", "may not leave"),
        (Language::Rhai, "import \"round\" as o;", "itself"),
    ] {
        match run(&with_dir(), language, source) {
            Outcome::Failed { message, .. } => assert!(message.contains(text), "{message}"),
            other => panic!("{other:?}"),
        }
    }
    let host = with_dir();
    let mut profile = Profile::script();
    profile.imports = Imports::Refused;
    profile.limits = Limits::default();
    let refused = start(&host, Language::Lua, "require('tools')", profile)
        .join()
        .unwrap();
    assert!(matches!(refused, Outcome::Failed { .. }));
}
