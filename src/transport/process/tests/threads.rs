//! How many threads the children take, and that all goes as well where there are no pidfds.
//!
//! Threads are counted by name in a process of its own: this test binary, run once more for one of its tests.

use super::*;

const HOST_OF_MANY: &str = "GREENROOM_TEST_HOST_OF_MANY";

const MANY: usize = 32;

/// How many threads of this process have the name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Not a test by itself: the host in the next two.
#[tokio::test]
async fn host_of_many() {
    let Ok(waiters) = std::env::var(HOST_OF_MANY) else { return };
    let start = |nth| async move {
        // Among those that cannot be started.
        refused(Launch { cwd: Some("/no/such/place".into()), ..sh("exit") }).await;
        (nth, open(sh(&format!("read line; exit {nth}"))).await)
    };
    let children = futures_util::future::join_all((0..MANY).map(start)).await;
    let waiters: usize = waiters.parse().unwrap();
    // Until a thread has its own name it goes by that of whoever started it.
    let named = async {
        while threads("greenroom-wait") != waiters {
            tokio::task::yield_now().await;
        }
    };
    in_time(named).await;
    assert_eq!(threads("greenroom-cli"), 1);
    assert_eq!(threads("greenroom-exits"), usize::from(waiters == 0));

    for (nth, connection) in children {
        let Connection { writer, mut process, .. } = connection;
        let pid = process.pid().unwrap();
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
    assert_eq!(threads("greenroom-cli"), 1);
}

/// Runs tests of this binary whose names begin like this.
async fn run(names: &[&str], env: &[(&str, &str)]) -> String {
    let here = module_path!().split_once("::").unwrap().1.rsplit_once("::").unwrap().0;
    let mut command = Command::new(std::env::current_exe().unwrap());
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
async fn without_pidfds_each_takes_one_that_waits() {
    let waiters = MANY.to_string();
    run(&["threads::host_of_many"], &[(HOST_OF_MANY, &waiters), (WITHOUT_PIDFDS, "1")]).await;
}

#[tokio::test]
async fn all_goes_as_well_without_pidfds() {
    if without_pidfds() {
        return;
    }
    let text = run(&["ends::", "parents::", "starts::", "streams::"], &[(WITHOUT_PIDFDS, "1")]).await;
    assert!(text.contains("ends::code_and_signal_are_told ... ok"), "{text}");
}
