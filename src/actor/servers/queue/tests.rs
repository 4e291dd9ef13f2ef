//! The queue of a server without the server.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::actor::request::ledger::Ledger;
use crate::actor::request::pending::RequestKind;
use crate::actor::request::tests::Asking;

const LIMIT: Duration = Duration::from_secs(5);

struct Stage {
    cli: Asking,
    queue: Arc<ServerQueue>,
    woken: Arc<AtomicUsize>,
}

impl Stage {
    fn new() -> Self {
        let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
        Self { cli, queue: Arc::new(ServerQueue::new("calc".into(), 4, LIMIT)), woken: Arc::default() }
    }

    fn ask(&self, request_id: &str) {
        self.queue.push(self.cli.asks(RequestKind::Mcp, request_id), McpMessage::Call(None));
    }

    fn open(&self) {
        let woken = self.woken.clone();
        self.queue.open(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn taken(&self) -> Vec<String> {
        let taken = self.queue.take();
        taken.iter().map(|(answer, _)| answer.pending().request_id().to_owned()).collect()
    }

    /// Number of open requests in a suspended queue.
    fn waiting(&self) -> usize {
        let queue = lock(&self.queue.queue);
        assert!(matches!(queue.stage, QueueStage::Suspended));
        queue.waiting.newest_first().filter(|(answer, _)| answer.pending().is_open()).count()
    }

    fn woken(&self) -> usize {
        self.woken.swap(0, Ordering::Relaxed)
    }

    /// The texts of the errors that were written.
    async fn errors(self) -> Vec<String> {
        let error = |line: &serde_json::Value| line["response"]["response"]["mcp_response"]["error"].clone();
        let text = |line| error(line)["message"].as_str().unwrap().to_owned();
        self.cli.written().await.iter().map(text).collect()
    }
}

#[tokio::test]
async fn an_actor_is_woken_once_for_all_that_it_takes() {
    let stage = Stage::new();
    stage.open();
    assert_eq!(stage.woken(), 0);
    stage.ask("a");
    stage.ask("b");
    assert_eq!((stage.woken(), stage.taken()), (1, vec!["a".to_owned(), "b".to_owned()]));
    stage.ask("c");
    assert_eq!((stage.woken(), stage.taken()), (1, vec!["c".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn requests_outlive_the_actor_that_has_not_taken_them() {
    let stage = Stage::new();
    stage.open();
    stage.ask("a");
    // The actor has ended, and nobody knows yet.
    stage.ask("b");
    stage.queue.suspend();
    stage.ask("c");
    assert_eq!((stage.woken(), stage.waiting()), (1, 3));
    stage.open();
    assert_eq!((stage.woken(), stage.taken()), (1, ["a", "b", "c"].map(str::to_owned).to_vec()));
    tokio::time::sleep(2 * LIMIT).await;
    // The drop of the taken requests has refused them.
    assert_eq!(stage.cli.origin.counting.refused.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_too_long_for_a_restart_are_refused_one_after_another() {
    let stage = Stage::new();
    stage.open();
    stage.ask("a");
    tokio::time::sleep(LIMIT / 2).await;
    stage.queue.suspend();
    stage.ask("b");
    tokio::time::sleep(LIMIT * 3 / 4).await;
    assert_eq!(stage.waiting(), 1);
    tokio::time::sleep(LIMIT / 2).await;
    assert_eq!(stage.waiting(), 0);
    // The timer is set again.
    stage.ask("c");
    tokio::time::sleep(LIMIT * 2).await;
    assert_eq!(stage.waiting(), 0);
    let text = "MCP server 'calc' was restarting and did not come back within 5s";
    assert_eq!(stage.errors().await, [text; 3]);
}

#[tokio::test(start_paused = true)]
async fn an_open_queue_refuses_nothing_as_late() {
    let stage = Stage::new();
    stage.ask("a");
    stage.open();
    tokio::time::sleep(LIMIT * 2).await;
    assert_eq!(stage.taken(), ["a"]);
}

#[tokio::test]
async fn the_queue_of_a_failed_server_refuses_until_the_server_starts() {
    let stage = Stage::new();
    stage.ask("a");
    stage.queue.fail("no disk");
    stage.ask("b");
    stage.open();
    stage.ask("c");
    assert_eq!((stage.woken(), stage.taken()), (1, vec!["c".to_owned()]));
    stage.queue.close();
    stage.ask("d");
    let errors = stage.errors().await;
    // The third request was taken, and its answer dropped.
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert_eq!(errors[..2], ["MCP server 'calc' has failed: no disk"; 2]);
    assert_eq!(errors[3], "Server 'calc' not found");
}

#[tokio::test]
async fn a_queue_has_a_bound_and_forgets_cancelled_requests() {
    let stage = Stage::new();
    for n in 0..4 + EXTRA {
        stage.ask(&n.to_string());
    }
    assert_eq!(stage.waiting(), 4 + EXTRA);
    stage.ask("one too many");
    assert_eq!((stage.waiting(), stage.cli.origin.counting.refused.get()), (4 + EXTRA, 1));
    let withdrawn = stage.queue.take();
    withdrawn.iter().for_each(|(answer, _)| answer.pending().orphan());
    withdrawn.into_iter().for_each(|(answer, message)| stage.queue.push(answer, message));
    stage.ask("the next");
    assert_eq!(stage.waiting(), 1);
    drop(stage.queue.take());
    let errors = stage.errors().await;
    assert_eq!(errors[0], "at capacity: 1028 messages to MCP server 'calc' wait");
}
