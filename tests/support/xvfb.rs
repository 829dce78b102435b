//! An Xvfb on a free display number, with a window manager and terminals where a test wants them.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use x11rb::connection::Connection;
use x11rb::protocol::xproto::{AtomEnum, ConnectionExt, CreateWindowAux, WindowClass};
use x11rb::rust_connection::RustConnection;

use super::wait_for;

/// Xvfb counts up from 0 for a free number and does not get here.
const RESTARTABLE_FROM: u32 = 20_000;

/// One X server for one test; it and every program started on it end when this is dropped.
pub struct TestDisplay {
    name: String,
    server: Child,
    clients: Vec<Child>,
}

impl TestDisplay {
    /// A server of one screen, 24 bits deep, without a window manager.
    pub fn start(width: u32, height: u32) -> Self {
        Self::start_with(&format!("{width}x{height}x24"), &[])
    }

    /// A server with a screen as Xvfb spells it and further arguments.
    pub fn start_with(screen: &str, args: &[&str]) -> Self {
        let mut server = spawn(
            Command::new("Xvfb")
                .args(["-displayfd", "1", "-screen", "0", screen])
                .args(["+extension", "RANDR", "-nolisten", "tcp", "-noreset"])
                .args(args)
                .stdout(Stdio::piped()),
            "xvfb",
        );
        let stdout = server.stdout.take().expect("the pipe was asked for");
        let mut number = String::new();
        BufReader::new(stdout)
            .read_line(&mut number)
            .expect("Xvfb names its display");
        assert!(
            !number.trim().is_empty(),
            "Xvfb ended before it was ready: {:?}",
            server.wait()
        );
        Self {
            name: format!(":{}", number.trim()),
            server,
            clients: Vec::new(),
        }
    }

    /// A server whose number no other test gets, so that `restart` finds it free.
    pub fn start_restartable(width: u32, height: u32) -> Self {
        let number = RESTARTABLE_FROM + std::process::id() % 20_000;
        let screen = format!("{width}x{height}x24");
        Self::start_with(&screen, &[&format!(":{number}")])
    }

    /// Starts a new server under the name of one that crashed.
    pub fn restart(&mut self, screen: &str) {
        let again = Self::start_with(screen, &[&self.name]);
        *self = again;
    }

    /// Sends the server a signal by name: `-STOP` and `-CONT` are a hang. One that has ended does
    /// not get it.
    pub fn signal(&self, name: &str) {
        let pid = self.server.id().to_string();
        let command = &mut Command::new("kill");
        let status = command.args([name, &pid]).stderr(Stdio::null()).status();
        status.expect("kill runs");
    }

    /// Starts openbox and waits until it manages the screen.
    pub fn with_window_manager(mut self) -> Self {
        let openbox = spawn(self.command("openbox").arg("--sm-disable"), "openbox");
        self.clients.push(openbox);
        let (connection, root) = self.connect();
        let state = connection.intern_atom(false, b"WM_STATE").expect("ask");
        let state = state.reply().expect("an atom").atom;
        // Openbox can leave a window that appears while it starts unmanaged until something else
        // happens. Windows of our own, one after the other, show when it is ready.
        wait_for("openbox to manage a window", || {
            let window = connection.generate_id().expect("an identifier");
            let aux = CreateWindowAux::new();
            let class = WindowClass::INPUT_OUTPUT;
            connection
                .create_window(0, window, root, 0, 0, 9, 9, 0, class, 0, &aux)
                .and_then(|_| connection.map_window(window))
                .expect("show a window");
            connection.flush().expect("the server listens");
            std::thread::sleep(Duration::from_millis(50));
            let any = AtomEnum::ANY;
            let found = connection.get_property(false, window, state, any, 0, 2);
            let managed = found
                .expect("ask")
                .reply()
                .expect("the server answers")
                .length
                > 0;
            connection.destroy_window(window).expect("remove a window");
            managed.then_some(())
        });
        self
    }

    /// The display's name, such as `:99`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A plain connection and the root window.
    pub fn connect(&self) -> (RustConnection, u32) {
        let (connection, screen) =
            RustConnection::connect(Some(&self.name)).expect("the test's display answers");
        let root = connection.setup().roots[screen].root;
        (connection, root)
    }

    /// A command with this display in its environment and its output thrown away.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("DISPLAY", &self.name);
        command
    }

    /// Starts a program on this display; the answer is its process id. It may not be up yet: wait
    /// for its window.
    pub fn spawn_program(&mut self, command: &mut Command, package: &str) -> u32 {
        let child = spawn(command.env("DISPLAY", &self.name), package);
        let pid = child.id();
        self.clients.push(child);
        pid
    }

    /// Starts an xterm with further arguments (`-title`, `-geometry`, `-e`).
    pub fn spawn_xterm(&mut self, args: &[&str]) -> u32 {
        let mut command = self.command("xterm");
        self.spawn_program(command.args(args), "xterm")
    }

    /// Ends the window manager at once, as a crash would.
    pub fn crash_window_manager(&mut self) {
        let manager = self.clients.first_mut();
        end(manager.expect("the window manager was started first"));
    }

    /// Ends the server at once, as a crash would.
    pub fn crash(&mut self) {
        end(&mut self.server);
    }
}

impl Drop for TestDisplay {
    fn drop(&mut self) {
        self.clients.iter_mut().for_each(end);
        // A server that is asked to end takes its lock and its socket with it.
        if let Ok(None) = self.server.try_wait() {
            self.signal("-TERM");
            self.signal("-CONT");
        }
        let _ = self.server.wait();
    }
}

fn end(child: &mut Child) {
    // It may have ended by itself; then there is only its status to collect.
    let _ = child.kill();
    let _ = child.wait();
}

fn spawn(command: &mut Command, package: &str) -> Child {
    let program = command.get_program().to_owned();
    let has_output = matches!(package, "xvfb");
    if !has_output {
        command.stdout(Stdio::null());
    }
    command.stdin(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("{program:?} is missing; install it with: apt-get install {package}")
        }
        Err(error) => panic!("start {program:?}: {error}"),
    }
}
