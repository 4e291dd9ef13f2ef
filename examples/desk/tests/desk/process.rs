//! The program itself, over HTTP on loopback, and its end at SIGTERM.

#![allow(clippy::disallowed_methods, reason = "the program under test is a process")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use greenroom_testkit::{ModelTurn, Script};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};

use crate::postgres;
use crate::support::in_time;

struct Program {
    child: Child,
    /// `None`: nobody reads it.
    stdout: Option<Lines<BufReader<ChildStdout>>>,
    address: String,
}

impl Program {
    async fn start(arguments: &[&str]) -> Self {
        Self::with(&[], arguments).await
    }

    async fn with(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut program = Self::spawn(variables, arguments);
        let line = said(program.stdout(), "listening on http://").await;
        program.address = line.split("http://").nth(1).unwrap().to_owned();
        program
    }

    /// The program, which may not have started yet. A variable without a value is not set.
    fn spawn(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_desk"));
        command.args(["--listen", "127.0.0.1:0"]).args(arguments).stdout(Stdio::piped()).kill_on_drop(true);
        let logins = ("DESK_LOGINS", "other:bela@umbrella made-up:anna@acme");
        for (name, value) in [logins].iter().chain(variables) {
            match *value {
                "" => command.env_remove(name),
                value => command.env(name, value),
            };
        }
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdout: Some(stdout), address: String::new() }
    }

    fn stdout(&mut self) -> &mut Lines<BufReader<ChildStdout>> {
        self.stdout.as_mut().unwrap()
    }

    /// Sends a request, and returns the lines of its answer.
    async fn request(&self, head: &str, body: &str) -> Lines<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let length = body.len();
        let head = format!(
            "{head} HTTP/1.1\r\nhost: test\r\ncookie: login=made-up\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        BufReader::new(stream).lines()
    }

    /// The path of the events of a prompt.
    async fn accepted(&self, prompt: &str) -> String {
        let mut accepted = self.request("POST /customers/ada/prompts", prompt).await;
        line(&mut accepted, "location: ").await.trim_start_matches("location: ").to_owned()
    }

    /// The events of a prompt.
    async fn prompt(&self, prompt: &str) -> Lines<BufReader<TcpStream>> {
        let turn = self.accepted(prompt).await;
        self.request(&format!("GET {turn}"), "").await
    }

    /// Sends SIGTERM, and returns when the program has said that it stops.
    async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        said(self.stdout(), "stopping").await;
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    async fn exits_with_0(mut self) {
        let exit = in_time("its end", self.child.wait()).await.unwrap();
        assert!(exit.success(), "{exit}");
    }
}

/// The first line of the program with this text.
async fn said(stdout: &mut Lines<BufReader<ChildStdout>>, text: &str) -> String {
    in_time(text, async {
        loop {
            let line = stdout.next_line().await.unwrap().unwrap();
            if line.contains(text) {
                return line;
            }
        }
    })
    .await
}

/// The first line with this text.
async fn line(lines: &mut Lines<BufReader<TcpStream>>, text: &str) -> String {
    in_time(text, async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(text) {
                return line;
            }
        }
        panic!("the answer ended without {text}");
    })
    .await
}

#[tokio::test]
async fn sigterm_lets_a_turn_end_and_the_program_exits_with_0() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.json");
    let slow = Script::new()
        .turn(ModelTurn::new().text("Let me look. ").call("mcp__orders__list", serde_json::json!({})))
        .turn(ModelTurn::new().text("On Monday.").pause_before(Duration::from_secs(2)));
    std::fs::write(&script, serde_json::to_vec(&slow).unwrap()).unwrap();
    let mut program = Program::start(&["--script", script.to_str().unwrap()]).await;
    let mut answer = program.prompt("Where is it?").await;
    line(&mut answer, "event: text").await;

    program.terminate().await;
    let end = line(&mut answer, "\"outcome\":").await;
    assert!(end.contains("\"outcome\":\"completed\"") && end.contains("On Monday."), "{end}");
    let address = program.address.clone();
    program.exits_with_0().await;
    assert!(TcpStream::connect(&address).await.is_err());
}

#[tokio::test]
async fn a_signal_ends_the_program_that_has_lost_the_reader_of_its_output() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut program = Program::start(&[]).await;
        program.stdout = None;
        program.signal(signal);
        program.exits_with_0().await;
    }
}

#[tokio::test]
async fn a_signal_ends_the_start() {
    // A database that does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let database = format!("postgres://{}/none", silent.local_addr().unwrap());
    let program = Program::spawn(&[("DESK_DATABASE", &database)], &["--host", "here"]);
    let _connection = in_time("the connection", silent.accept()).await.unwrap();
    program.signal(Signal::TERM);
    program.exits_with_0().await;
}

#[tokio::test]
async fn links_are_shown_of_made_up_logins_only() {
    let mut program = Program::start(&[]).await;
    assert!(said(program.stdout(), "anna of acme").await.ends_with("anna of acme"));
    program.signal(Signal::TERM);
    program.exits_with_0().await;

    let mut program = Program::with(&[("DESK_LOGINS", "")], &[]).await;
    let (address, said) = (program.address.clone(), said(program.stdout(), "anna of acme").await);
    assert!(said.contains(&format!("anna of acme: http://{address}/login/")), "{said}");
    program.signal(Signal::TERM);
    program.exits_with_0().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_does_not_hold_up_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.json");
    // More than the buffers of a connection hold.
    let long = Script::new().turn(ModelTurn::new().text("a ".repeat(4 << 20)));
    std::fs::write(&script, serde_json::to_vec(&long).unwrap()).unwrap();
    let mut program = Program::start(&["--script", script.to_str().unwrap()]).await;
    let mut answer = program.prompt("Say much.").await;
    line(&mut answer, "event: delta").await;

    program.terminate().await;
    program.exits_with_0().await;
}

#[tokio::test]
async fn bad_arguments_are_named() {
    for (arguments, said) in [
        (vec!["--prot", "1"], "--prot"),
        (vec!["--data", "x", "--listen"], "--listen"),
        // Secrets are no arguments.
        (vec!["--login", "made-up:anna@acme"], "--login is no argument"),
        (vec!["--postgres", "postgres://127.0.0.1"], "--postgres is no argument"),
        (vec!["--host", "here"], "set both DESK_DATABASE and --host, or neither"),
    ] {
        let stderr = refused(&[], &arguments).await;
        assert!(stderr.contains(said), "{stderr}");
    }
}

#[tokio::test]
async fn bad_variables_are_named_without_their_secrets() {
    const MALFORMED: &str = "DESK_LOGINS is no SECRET:PERSON@TENANT";
    for (name, value, said) in [
        ("DESK_LOGINS", &b"made-up:anna@acme sesame"[..], MALFORMED),
        ("DESK_LOGINS", b"sesame:anna", MALFORMED),
        ("DESK_LOGINS", b":anna@acme", MALFORMED),
        ("DESK_LOGINS", b"sesame:@acme", MALFORMED),
        ("DESK_LOGINS", b"sesame:anna@", MALFORMED),
        ("DESK_LOGINS", b"sesame:anna@acme sesame:bela@umbrella", "a secret stands twice in DESK_LOGINS"),
        ("DESK_LOGINS", b"sesame:anna@acme\xff", "DESK_LOGINS is not UTF-8"),
        ("DESK_DATABASE", b"postgres://anna:sesame@127.0.0.1/desk", "set both DESK_DATABASE and --host"),
        ("DESK_DATABASE", b"postgres://anna:sesame\xff@127.0.0.1/desk", "DESK_DATABASE is not UTF-8"),
    ] {
        let stderr = refused(&[(name, OsStr::from_bytes(value))], &[]).await;
        assert!(stderr.contains(said) && !stderr.contains("sesame"), "{stderr}");
    }
}

/// The errors of a program that does not start.
async fn refused(variables: &[(&str, &OsStr)], arguments: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_desk"));
    let output = program.args(arguments).envs(variables.iter().copied()).kill_on_drop(true).output();
    let output = in_time("its end", output).await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{stderr}");
    stderr
}

#[tokio::test(flavor = "multi_thread")]
async fn two_programs_on_postgres_are_nodes_of_one_desk() {
    let Some(postgres) = postgres::scratch().await else { return };
    let (database, folder) = (postgres.database().await.unwrap(), tempfile::tempdir().unwrap());
    let start = async |host: &str| {
        let data = folder.path().join(host);
        let arguments = ["--host", host, "--data", data.to_str().unwrap()];
        Program::with(&[("DESK_DATABASE", &database)], &arguments).await
    };
    let one = start("one").await;
    let turn = one.accepted("Where is it?").await;
    let other = start("other").await;
    for program in [&one, &other] {
        let mut answer = program.request(&format!("GET {turn}"), "").await;
        let end = line(&mut answer, "\"outcome\":").await;
        assert!(end.contains("\"outcome\":\"completed\"") && end.contains("on Monday."), "{end}");
    }
    for mut program in [one, other] {
        program.terminate().await;
        program.exits_with_0().await;
    }
}

#[tokio::test]
async fn without_postgres_one_line_says_what_was_not_run() {
    const ON_POSTGRES: &str = "process::two_programs_on_postgres_are_nodes_of_one_desk";
    let tests = async |required: Option<(&str, &str)>| {
        let mut tests = Command::new(std::env::current_exe().unwrap());
        tests.args(["--exact", ON_POSTGRES]).env(postgres::PROGRAMS, Path::new("/none"));
        tests.env_remove(postgres::ADDRESS).env_remove(postgres::REQUIRED).envs(required);
        in_time("the tests", tests.kill_on_drop(true).output()).await.unwrap()
    };
    let output = tests(None).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_eq!((stderr.matches("are not run").count(), stderr.lines().count()), (1, 1), "{stderr}");
    let output = tests(Some((postgres::REQUIRED, "1"))).await;
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && stdout.contains("PostgreSQL is not installed"), "{stdout}");
}
