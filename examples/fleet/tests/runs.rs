//! The program as a process: its lines, and its continuation after a kill.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]
#![allow(clippy::disallowed_methods, reason = "the program under test is a process")]

#[path = "../../../tests/support/wait.rs"]
mod wait;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use wait::in_time;

struct Program {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    lines: Vec<String>,
}

impl Program {
    fn start(data: &Path, pace: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fleet"))
            .args([Path::new("--data"), data, Path::new("--pace"), Path::new(pace)])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdout, lines: Vec::new() }
    }

    /// Reads until this many sessions run or have run.
    async fn read_until_running(&mut self, sessions: usize) {
        while self.names("runs").len() < sessions {
            let line = in_time("a line", self.stdout.next_line()).await;
            self.lines.push(line.unwrap().expect("the program ended before its time"));
        }
    }

    /// Reads to the end.
    async fn read(&mut self) {
        while let Some(line) = in_time("a line", self.stdout.next_line()).await.unwrap() {
            self.lines.push(line);
        }
    }

    async fn run(data: &Path) -> Self {
        let mut program = Self::start(data, "1");
        program.read().await;
        let status = program.child.wait().await.unwrap();
        assert!(status.success(), "{status}: {:#?}", program.lines);
        program
    }

    /// The names in lines that begin with this word, in their order.
    fn names(&self, word: &str) -> Vec<&str> {
        let words = self.lines.iter().map(|line| line.split([' ', ':']));
        let named = words.filter_map(|mut words| (words.next() == Some(word)).then(|| words.next()));
        named.flatten().collect()
    }
}

fn set<'a>(names: &[&'a str]) -> BTreeSet<&'a str> {
    names.iter().copied().collect()
}

#[tokio::test]
async fn forty_sessions_of_three_tenants_share_two_slots() {
    let data = tempfile::tempdir().unwrap();
    let program = Program::run(data.path()).await;
    let mut live = BTreeSet::new();
    for line in &program.lines {
        match line.split_once(' ').unwrap() {
            ("starts", name) => assert!(live.insert(name), "{line}"),
            ("sleeps", name) => assert!(live.remove(name), "{line}"),
            ("runs", name) => assert!(live.contains(name), "{line}"),
            _ => {}
        }
        assert!(live.len() <= 2, "{line} beside {live:?}");
    }
    assert!(live.is_empty(), "{live:?}");
    let runs = program.names("runs");
    assert_eq!((runs.len(), set(&runs).len()), (41, 40), "a prompt for each session, and a reminder");
    assert_eq!(program.names("ended").len(), 41);
    let of = |tenant: &str| runs.iter().position(|name| name.starts_with(tenant));
    let last_of_acme = runs.iter().rposition(|name| name.starts_with("acme"));
    assert!(of("cobalt") < last_of_acme, "the tenants take turns: {runs:?}");
    let summary = "41 prompts: 0 known from an earlier run, 41 completed";
    assert!(program.lines.iter().any(|line| line == summary), "{:#?}", program.lines);
}

#[tokio::test]
async fn a_person_allows_one_call_and_the_other_is_denied_in_time() {
    let data = tempfile::tempdir().unwrap();
    let program = Program::run(data.path()).await;
    assert_eq!(set(&program.names("asks")), set(&["acme/1", "cobalt/1"]));
    assert_eq!(program.names("allows"), ["acme/1"]);
    assert_eq!(program.names("refunds"), ["acme/1"]);
    let ended = program.names("ended");
    assert!(ended.contains(&"acme/1") && ended.contains(&"cobalt/1"), "{ended:?}");
}

// Guards: accepted-is-kept
#[tokio::test]
async fn a_second_run_continues_where_a_kill_left_off() {
    let data = tempfile::tempdir().unwrap();
    // The model takes its time, so that turns run when the kill comes.
    let mut first = Program::start(data.path(), "3000");
    first.read_until_running(3).await;
    first.child.start_kill().unwrap();
    first.read().await;
    assert_eq!(first.child.wait().await.unwrap().signal(), Some(9));

    let second = Program::run(data.path()).await;
    let (begun, ended) = (set(&first.names("runs")), set(&first.names("ended")));
    let (runs, interrupted) = (set(&second.names("runs")), set(&second.names("interrupted")));
    assert!(!interrupted.is_empty(), "{:#?}", second.lines);
    assert!(interrupted.is_disjoint(&ended), "an outcome stays: {interrupted:?}, {ended:?}");
    // The kill may come between a begin and its line.
    let begun: BTreeSet<_> = begun.union(&interrupted).copied().collect();
    assert!(begun.is_disjoint(&runs), "no prompt is sent twice: {begun:?}, {runs:?}");
    assert_eq!(begun.len() + runs.len(), 40, "every prompt that waited runs: {begun:?}, {runs:?}");

    // The third run finds all outcomes, and runs nothing.
    let third = Program::run(data.path()).await;
    assert_eq!(third.names("runs"), Vec::<&str>::new());
    assert_eq!(set(&third.names("interrupted")), interrupted);
    let summary = format!("41 prompts: 41 known from an earlier run, {} completed", 41 - interrupted.len());
    assert!(third.lines.contains(&summary), "{summary}: {:#?}", third.lines);
}

#[tokio::test]
async fn a_second_process_on_the_data_is_refused_and_harms_no_turn_of_the_first() {
    let data = tempfile::tempdir().unwrap();
    let mut first = Program::start(data.path(), "1000");
    first.read_until_running(2).await;
    let second = Command::new(env!("CARGO_BIN_EXE_fleet")).arg("--data").arg(data.path()).output();
    let second = in_time("the refusal", second).await.unwrap();
    let stderr = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success(), "{stderr}");
    assert!(
        stderr.contains("another process, or another backend of this process, has the fleet's file"),
        "{stderr}"
    );
    assert!(stderr.contains("stop that process"), "{stderr}");
    first.read_until_running(5).await;
    first.child.start_kill().unwrap();
    first.read().await;
    // Two slots: three of the five have ended, none of them by the second process.
    assert!(first.names("ended").len() >= 3, "{:#?}", first.lines);
    assert_eq!(first.names("interrupted"), [""; 0]);
}

#[tokio::test]
async fn bad_arguments_are_named() {
    for (arguments, said) in
        [(["--pace", "soon"], "invalid digit"), (["--slots", "3"], "usage"), (["--pace", "1"], "--data")]
    {
        let missing = (said == "--data").then_some("--data");
        let output = Command::new(env!("CARGO_BIN_EXE_fleet")).args(arguments).args(missing).output();
        let output = in_time("the output", output).await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(said), "{stderr}");
    }
}
