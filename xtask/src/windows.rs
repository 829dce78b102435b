//! `cargo xtask windows`: the same binary for Windows, built here.
//!
//! An installed rustup target is preferred. Without one Debian's compiler builds the standard
//! library from Debian's sources (`-Zbuild-std`), which needs nothing but Debian packages.
//! The C++ of Luau is linked in, so that the executable needs no DLL beside it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pe::{self, Subsystem};
use crate::shell::{self, Failure, Result, ask, cargo, output, say, target_dir};
use crate::{setup, wine};

const TARGET: &str = "x86_64-pc-windows-gnu";
/// The flag of a quick build.
pub const UNOPTIMIZED: &str = "--unoptimized";
const GCC: &str = "x86_64-w64-mingw32-gcc-win32";
const GXX: &str = "x86_64-w64-mingw32-g++-win32";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
/// The oldest compiler that the workspace accepts, as (major, minor).
const RUSTC_OLDEST: (u32, u32) = (1, 88);

/// Builds both executables; with `--run` shows that they work. `--unoptimized` compiles the dependencies
/// in half the time, for a build that only shows whether everything compiles and links.
pub fn run(args: &[String]) -> Result<()> {
    let known = ["--release", "--run", UNOPTIMIZED];
    if let Some(odd) = args.iter().find(|arg| !known.contains(&arg.as_str())) {
        return Err(Failure::usage(format!("windows does not take {odd}")));
    }
    let given = |flag: &str| args.iter().any(|arg| arg == flag);
    let folder = build(given("--release"), given(UNOPTIMIZED))?;
    if given("--run") {
        setup::ensure("to run a Windows program", setup::WINE)?;
        setup::ensure("for a desktop of our own", setup::DESKTOP)?;
        wine::run(&folder)?;
    }
    Ok(())
}

/// Builds `wingman.exe` and its GUI twin `wingmanw.exe`; answers their folder.
fn build(release: bool, unoptimized: bool) -> Result<PathBuf> {
    setup::ensure("to build for Windows", setup::MINGW)?;
    let out = target_dir().join("windows-gnu");
    let mut command = cargo();
    command.env("CARGO_TARGET_DIR", &out);
    command.args([
        "build",
        "--package",
        "wingman",
        "--bin",
        "wingman",
        "--target",
        TARGET,
    ]);
    if release {
        command.arg("--release");
    }
    if unoptimized {
        command.args(["--config", r#"profile.dev.package."*".opt-level=0"#]);
    }
    if !rustup_target_installed() {
        setup::ensure("to build for Windows", setup::RUST_WEB)?;
        check_debian_rustc()?;
        command
            .arg("-Zbuild-std=std,panic_unwind")
            .env("RUSTC", DEBIAN_RUSTC)
            .env("RUSTC_BOOTSTRAP", "1");
    }
    let libraries = gcc_folder()?;
    // Debian has two thread flavours of the compiler under one name; here it is always the same one.
    command
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", GCC)
        .env("CC_x86_64_pc_windows_gnu", GCC)
        .env("CXX_x86_64_pc_windows_gnu", GXX)
        .env("CXXSTDLIB_x86_64_pc_windows_gnu", "static=stdc++")
        .env(
            "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUSTFLAGS",
            format!(
                "-Lnative={} -Clink-arg=-static-libgcc -Clink-arg=-static",
                libraries.display()
            ),
        );
    shell::run(&mut command)?;

    let profile = if release { "release" } else { "debug" };
    let folder = out.join(TARGET).join(profile);
    let console = folder.join("wingman.exe");
    let twin = folder.join("wingmanw.exe");
    pe::check(&console, Subsystem::Console)?;
    pe::copy_as(&console, &twin, Subsystem::Gui)?;
    pe::check(&twin, Subsystem::Gui)?;
    say(format_args!(
        "built {} and its GUI twin wingmanw.exe",
        console.display()
    ));
    Ok(folder)
}

fn rustup_target_installed() -> bool {
    ask("rustup", &["target", "list", "--installed"])
        .is_some_and(|list| list.lines().any(|line| line.trim() == TARGET))
}

/// Another package than rustc-web may have brought /usr/bin/rustc, too old for the workspace.
fn check_debian_rustc() -> Result<()> {
    let version = output(Command::new(DEBIAN_RUSTC).arg("--version"))?;
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse::<u32>().ok());
    if let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next())
        && (major, minor) >= RUSTC_OLDEST
    {
        return Ok(());
    }
    Err(Failure::unavailable(format!(
        "{DEBIAN_RUSTC} is {version:?}; install rustc-web and rust-web-src, or \
         `rustup target add {TARGET}`"
    )))
}

/// Where the cross compiler keeps libstdc++ and libgcc of the Win32 threads flavour.
fn gcc_folder() -> Result<PathBuf> {
    let file = output(Command::new(GCC).arg("-print-libgcc-file-name"))?;
    let folder = Path::new(&file).parent().map(Path::to_path_buf);
    folder.ok_or_else(|| Failure::new(format!("{GCC} does not say where libgcc is")))
}

/// A system DLL of Windows 10 that Debian's Wine lacks, in a few lines of C.
struct SystemDll {
    name: &'static str,
    source: &'static str,
    library: &'static str,
}

const WINE_LACKS: [SystemDll; 3] = [
    // Rust's standard library takes its random numbers from here.
    SystemDll {
        name: "bcryptprimitives",
        source: "\
#include <windows.h>
#include <bcrypt.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T len)
{
    return BCryptGenRandom(NULL, data, (ULONG)len, BCRYPT_USE_SYSTEM_PREFERRED_RNG) == 0;
}
",
        library: "-lbcrypt",
    },
    // Windows Graphics Capture, which Wine lacks as a whole, wants its message queue from here.
    SystemDll {
        name: "coremessaging",
        source: "\
#include <windows.h>
__declspec(dllexport) HRESULT WINAPI CreateDispatcherQueueController(void *options, void **made)
{
    (void)options;
    (void)made;
    return E_NOTIMPL;
}
",
        library: "-lkernel32",
    },
    // Wine's console host ends at once when it is asked to keep the cursor where it is, as portable-pty
    // always asks; this one, which portable-pty prefers to the system's, leaves that wish out.
    SystemDll {
        name: "conpty",
        source: "\
#include <windows.h>
static FARPROC of(const char *name)
{
    return GetProcAddress(GetModuleHandleA(\"kernel32\"), name);
}
__declspec(dllexport) HRESULT WINAPI CreatePseudoConsole(COORD size, HANDLE in, HANDLE out,
                                                         DWORD flags, HANDLE *made)
{
    typedef HRESULT(WINAPI * Function)(COORD, HANDLE, HANDLE, DWORD, HANDLE *);
    const DWORD inherit_cursor = 1;
    return ((Function)of(\"CreatePseudoConsole\"))(size, in, out, flags & ~inherit_cursor, made);
}
__declspec(dllexport) HRESULT WINAPI ResizePseudoConsole(HANDLE console, COORD size)
{
    typedef HRESULT(WINAPI * Function)(HANDLE, COORD);
    return ((Function)of(\"ResizePseudoConsole\"))(console, size);
}
__declspec(dllexport) void WINAPI ClosePseudoConsole(HANDLE console)
{
    typedef void(WINAPI * Function)(HANDLE);
    ((Function)of(\"ClosePseudoConsole\"))(console);
}
",
        library: "-lkernel32",
    },
];

/// Builds a console program for Windows from one file of C.
pub fn build_program(source: &Path, program: &Path) -> Result<()> {
    let mut command = Command::new(GCC);
    shell::run(command.arg("-O1").arg("-o").arg(program).arg(source))
}

/// Builds what Wine lacks beside the executable in `folder`.
pub fn build_wine_dlls(folder: &Path) -> Result<()> {
    for dll in WINE_LACKS {
        let source = folder.join(dll.name).with_extension("c");
        std::fs::write(&source, dll.source)?;
        let mut command = Command::new(GCC);
        command.args(["-shared", "-O1", "-o"]);
        command.arg(folder.join(dll.name).with_extension("dll"));
        shell::run(command.arg(&source).arg(dll.library))?;
    }
    Ok(())
}
