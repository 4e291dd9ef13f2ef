//! The child outlives its runtime, but not its host.

use super::*;

/// Exits with code 5 on SIGTERM.
const POLITE: &str = "trap 'exit 5' TERM; echo ready; sleep 1000 & wait";

fn on_a_runtime_of_its_own<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let run =
        move || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    // The runtime and its thread have ended when this returns.
    std::thread::spawn(run).join().unwrap()
}

#[tokio::test]
async fn the_child_outlives_the_runtime_that_started_it() {
    let mut process = on_a_runtime_of_its_own(async {
        let Child { stdout: reader, process, .. } = open(sh(POLITE)).await;
        expect_line(&mut BufReader::new(reader), "ready").await;
        process
    });
    process.terminate();
    // A parent-death signal would have been signal 9.
    assert_eq!(in_time(process.wait()).await, Exit::Code(5));
}

#[tokio::test]
async fn a_process_can_be_killed_without_the_runtime_that_started_it() {
    let fifo = Fifo::new();
    let script = fifo.held_by("sleep 1000 & wait");
    let process = on_a_runtime_of_its_own(async move { open(sh(&script)).await.process });
    let held = fifo.opened().await;
    drop(process);
    held.closed().await;
}

#[test]
fn a_child_that_is_dropped_without_any_runtime_is_reaped() {
    for _ in 0..3 {
        let started = on_a_runtime_of_its_own(async { started(sh("trap '' TERM; sleep 1000 & wait")).await });
        let (pid, group) = (started.1.pid(), Arc::clone(&started.1));
        assert!(exists(pid));
        drop(started);
        assert_eq!(on_a_runtime_of_its_own(async move { in_time(group.exited()).await }), Exit::Signal(9));
        assert!(!exists(pid), "reaped");
    }
}

const HOST_OF: &str = "GREENROOM_TEST_HOST_OF";

/// Not a test: plays the host that dies in the next test.
#[tokio::test]
async fn host() {
    if let Ok(script) = std::env::var(HOST_OF) {
        // Without a control group, which would be left behind.
        let launch = Command { containment: Containment::Mark, ..sh(&format!("read go; {script}")) };
        let mut connection = open(launch).await;
        guardian::tests::lose();
        connection.stdin.write_all(b"go\n").await.unwrap();
        connection.process.wait().await;
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
#[tokio::test]
async fn the_child_dies_with_its_host_even_without_a_guardian() {
    let fifo = Fifo::new();
    let mut host = StdCommand::new(std::env::current_exe().unwrap())
        .args(["--exact", concat!(module_path!(), "::host").split_once("::").unwrap().1])
        .env(HOST_OF, fifo.held_by("exec sleep 1000"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let held = fifo.opened().await;
    host.kill().unwrap();
    host.wait().unwrap();
    held.closed().await;
}
