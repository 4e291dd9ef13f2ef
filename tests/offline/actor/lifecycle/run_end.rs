//! The signs by which a run is over, or goes on.

use super::*;

/// A session with a running prompt whose CLI is played message by message.
struct Watched {
    session: Session,
    end: CliEnd,
    listener: ScriptedListener,
    given: Value,
    _turn: Turn,
}

impl Watched {
    async fn prompted() -> Self {
        let ceiling = |options: &mut greenroom::Options| {
            options.timeouts.run_ceiling = Some(Duration::from_secs(600));
        };
        let (session, mut end, listener) = start_by_hand(builder().configure(ceiling)).await;
        assert!(idle(&session).await, "nothing has begun");
        let turn = prompt(&session, "go").await;
        let given = super::prompted(&mut end, "go").await;
        Self { session, end, listener, given, _turn: turn }
    }

    /// Sends a message and tells whether the run is over.
    async fn sees(&mut self, message: Value) -> bool {
        self.end.message(message);
        settled(&mut self.end).await;
        idle(&self.session).await
    }

    async fn state(&mut self, state: &str) -> bool {
        super::state(&mut self.end, state);
        settled(&mut self.end).await;
        idle(&self.session).await
    }

    /// Sends the result of the prompt.
    async fn result(&mut self) -> bool {
        self.end.finish_turn(&self.given, "");
        settled(&mut self.end).await;
        idle(&self.session).await
    }

    async fn after(&mut self, seconds: u64) -> bool {
        sleep(Duration::from_secs(seconds)).await;
        idle(&self.session).await
    }

    async fn stop(self) {
        stop(self.session, self.end).await;
    }
}

async fn idle(session: &Session) -> bool {
    within(SOON, session.snapshot()).await.unwrap().conversation.unwrap().idle
}

fn assistant(parent: Option<&str>) -> Value {
    json!({"type": "assistant", "parent_tool_use_id": parent, "message": {"content": []}})
}

fn task(id: &str, kind: &str) -> Value {
    json!({"type": "system", "subtype": "task_started", "task_id": id, "task_type": kind})
}

fn task_ended(id: &str) -> Value {
    json!({"type": "system", "subtype": "task_notification", "task_id": id, "status": "completed"})
}

#[tokio::test(start_paused = true)]
async fn without_a_session_state_the_result_ends_the_run() {
    let mut run = Watched::prompted().await;
    assert!(!run.sees(assistant(None)).await);
    assert!(run.result().await);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn idle_and_a_result_end_the_run_in_either_order() {
    let mut run = Watched::prompted().await;
    assert!(!run.state("running").await);
    assert!(!run.result().await);
    assert!(run.state("idle").await);
    run.stop().await;
    let mut run = Watched::prompted().await;
    assert!(!run.state("running").await);
    assert!(!run.state("idle").await);
    assert!(run.result().await);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_the_clis_own_opens_the_run_again() {
    let mut run = Watched::prompted().await;
    assert!(run.result().await);
    assert!(run.sees(assistant(Some("toolu_1"))).await, "a subagent's message is no turn");
    assert!(!run.sees(assistant(None)).await);
    assert!(run.result().await);
    assert!(!run.state("requires_action").await);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn background_agents_keep_the_run_open_and_shells_do_not() {
    let mut run = Watched::prompted().await;
    assert!(!run.sees(task("a", "local_agent")).await);
    assert!(!run.sees(task("b", "local_bash")).await);
    assert!(!run.result().await);
    assert!(!run.state("idle").await);
    assert!(!run.after(10_000).await, "the ceiling does not end a run that has tasks");
    assert!(run.sees(task_ended("a")).await);
    assert!(run.sees(task_ended("a")).await, "it may be told twice");
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn more_agents_than_are_told_apart_leave_the_end_to_the_ceiling() {
    const TOLD_APART: usize = 16_384;
    let mut run = Watched::prompted().await;
    for number in 0..=TOLD_APART {
        run.end.message(task(&number.to_string(), "local_agent"));
    }
    assert!(!run.result().await);
    let snapshot = within(SOON, run.session.snapshot()).await.unwrap();
    assert_eq!(snapshot.conversation.unwrap().background_tasks, TOLD_APART);
    for number in 1..TOLD_APART {
        run.end.message(task_ended(&number.to_string()));
    }
    assert!(!run.after(10_000).await, "one whose id is kept still runs");
    assert!(!run.sees(task_ended("0")).await, "another may still run");
    assert!(!run.after(599).await);
    assert!(run.after(2).await);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_ceiling_ends_a_run_whose_cli_never_becomes_idle() {
    let mut run = Watched::prompted().await;
    assert!(!run.state("running").await);
    assert!(!run.after(10_000).await, "without a result there is no ceiling");
    assert!(!run.result().await);
    assert!(!run.after(599).await);
    assert!(run.after(2).await);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_cli_starts_without_the_tasks_of_the_old_one() {
    let mut run = Watched::prompted().await;
    assert!(!run.sees(task("a", "local_agent")).await);
    assert!(!run.result().await, "the task of the CLI");
    run.end.exit(killed());
    run.end = next(&mut run.listener).await;
    assert!(idle(&run.session).await);
    exchange(&run.session, &mut run.end, "again").await;
    assert!(idle(&run.session).await, "tasks of the old CLI are gone");
    run.stop().await;
}
