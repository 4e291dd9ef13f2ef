//! Background tasks.

use super::Body;
use crate::error::Result;
use crate::requests::{Backgrounded, Reply, TaskOutput};
use crate::session::Session;

impl Session {
    /// Stops a background task. That it has ended is told by a message. CLI 2.1.328 acknowledges this for tasks that are
    /// not there, too.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn stop_task(&self, task_id: &str) -> Result<()> {
        self.acknowledged(Body::new("stop_task").with("task_id", task_id)).await
    }

    /// Puts everything that the turn waits for into the background, shells and subagents: their calls return at once, the
    /// turn goes on, and the tasks tell when they end.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn background_tasks(&self) -> Result<Reply<Backgrounded>> {
        self.request(Body::new("background_tasks")).await
    }

    /// Puts what one call of a tool has started into the background (`background_tasks` with a `tool_use_id`).
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn background_task(&self, tool_use_id: &str) -> Result<Reply<Backgrounded>> {
        self.request(Body::new("background_tasks").with("tool_use_id", tool_use_id)).await
    }

    /// The end of what a background shell or monitor has written, while it runs or afterwards (`get_task_output`).
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` for a task that is not there.
    pub async fn task_output(&self, task_id: &str) -> Result<Reply<TaskOutput>> {
        self.request(Body::new("get_task_output").with("task_id", task_id)).await
    }
}
