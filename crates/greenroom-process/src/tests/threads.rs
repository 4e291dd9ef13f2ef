//! The number of threads for many children, and all tests once more without pidfds.
//!
//! Threads are counted by name in a process of its own: this test binary, run once more for one of its tests.

use super::super::exits::WITHOUT_PIDFDS;
use super::*;

const HOST_OF_MANY: &str = "GREENROOM_TEST_HOST_OF_MANY";

const MANY: usize = 32;

/// Number of threads of this process with the name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Not a test: plays the host in the next two tests.
#[tokio::test]
async fn host_of_many() {
    let Ok(waiters) = std::env::var(HOST_OF_MANY) else { return };
    let start = |nth| async move {
        // Between children that cannot be started.
        refused(Command { cwd: Some("/no/such/place".into()), ..sh("exit") }).await;
        (nth, open(sh(&format!("read line; exit {nth}"))).await)
    };
    let children = futures_util::future::join_all((0..MANY).map(start)).await;
    let waiters: usize = waiters.parse().unwrap();
    // A new thread has the name of the thread that started it until it sets its own.
    let named = async {
        while threads("greenroom-wait") != waiters {
            tokio::task::yield_now().await;
        }
    };
    in_time(named).await;
    assert_eq!(threads("greenroom-start"), 1);
    assert_eq!(threads("greenroom-exits"), usize::from(waiters == 0));

    for (nth, connection) in children {
        let Child { stdin: writer, mut process, .. } = connection;
        let pid = process.pid();
        let exit = if nth % 2 == 0 {
            drop(writer);
            Exit::Code(nth.try_into().unwrap())
        } else {
            process.kill();
            Exit::Signal(9)
        };
        assert_eq!(in_time(process.wait()).await, exit);
        drop(process);
        assert!(!exists(pid), "reaped");
    }
    assert_eq!(threads("greenroom-start"), 1);
}

/// Runs the tests of this binary whose names start with these.
async fn run(names: &[&str], env: &[(&str, &str)]) -> String {
    let here = module_path!().split_once("::").unwrap().1.rsplit_once("::").unwrap().0;
    let mut command = StdCommand::new(std::env::current_exe().unwrap());
    command.args(names.iter().map(|name| format!("{here}::{name}"))).envs(env.iter().copied());
    let output = blocking(move || command.output().unwrap()).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !text.contains("running 0 tests"), "{text}");
    text
}

#[tokio::test]
async fn many_children_take_two_threads() {
    run(&["threads::host_of_many"], &[(HOST_OF_MANY, "0")]).await;
}

#[tokio::test]
async fn without_pidfds_each_child_has_a_waiting_thread() {
    let waiters = MANY.to_string();
    run(&["threads::host_of_many"], &[(HOST_OF_MANY, &waiters), (WITHOUT_PIDFDS, "1")]).await;
}

#[tokio::test]
async fn the_other_tests_pass_without_pidfds() {
    if std::env::var_os(WITHOUT_PIDFDS).is_some() {
        return;
    }
    let text = run(&["ends::", "parents::", "starts::", "streams::"], &[(WITHOUT_PIDFDS, "1")]).await;
    assert!(text.contains("ends::exit_codes_and_signals_are_reported ... ok"), "{text}");
}
