//! The program itself, over HTTP on loopback, and its end at SIGTERM.

#![allow(clippy::disallowed_methods, reason = "the program under test is a process")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use greenroom_testkit::{ModelTurn, Script};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use crate::postgres;
use crate::support::in_time;

struct Program {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    address: String,
}

impl Program {
    async fn start(arguments: &[&str]) -> Self {
        Self::with(&[], arguments).await
    }

    async fn with(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_desk"))
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("DESK_LOGINS", "other:bela@umbrella made-up:anna@acme")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = in_time("its first line", stdout.next_line()).await.unwrap().unwrap();
        let address = line.strip_prefix("listening on http://").unwrap().to_owned();
        Self { child, stdout, address }
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
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        in_time("its last line", async {
            while self.stdout.next_line().await.unwrap().unwrap() != "stopping" {}
        })
        .await;
    }
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
    let exit = in_time("its end", program.child.wait()).await.unwrap();
    assert!(exit.success(), "{exit}");
    assert!(TcpStream::connect(&program.address).await.is_err());
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
    let exit = in_time("its end", program.child.wait()).await.unwrap();
    assert!(exit.success(), "{exit}");
}

#[tokio::test]
async fn bad_arguments_are_named() {
    for (arguments, said) in [
        (vec!["--prot", "1"], "--prot"),
        (vec!["--data", "x", "--listen"], "--listen"),
        // Secrets are no arguments.
        (vec!["--login", "made-up:anna@acme"], "--login is no argument"),
        (vec!["--postgres", "postgres://127.0.0.1"], "--postgres is no argument"),
        (vec!["--host", "here"], "DESK_DATABASE needs --host NAME"),
    ] {
        let stderr = refused(&[], &arguments).await;
        assert!(stderr.contains(said), "{stderr}");
    }
}

#[tokio::test]
async fn bad_variables_are_named_without_their_secrets() {
    for (variable, said) in [
        (("DESK_LOGINS", "made-up:anna@acme sesame"), "DESK_LOGINS is no SECRET:PERSON@TENANT"),
        (("DESK_DATABASE", "postgres://anna:sesame@127.0.0.1/desk"), "DESK_DATABASE needs --host NAME"),
    ] {
        let stderr = refused(&[variable], &[]).await;
        assert!(stderr.contains(said) && !stderr.contains("sesame"), "{stderr}");
    }
}

/// The errors of a program that does not start.
async fn refused(variables: &[(&str, &str)], arguments: &[&str]) -> String {
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
    let mut one = start("one").await;
    let turn = one.accepted("Where is it?").await;
    let mut other = start("other").await;
    for program in [&one, &other] {
        let mut answer = program.request(&format!("GET {turn}"), "").await;
        let end = line(&mut answer, "\"outcome\":").await;
        assert!(end.contains("\"outcome\":\"completed\"") && end.contains("on Monday."), "{end}");
    }
    for program in [&mut one, &mut other] {
        program.terminate().await;
        let exit = in_time("its end", program.child.wait()).await.unwrap();
        assert!(exit.success(), "{exit}");
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
