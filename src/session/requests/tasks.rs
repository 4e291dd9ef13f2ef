//! Background tasks.

use super::RequestBody;
use super::Requests;
use crate::error::Result;
use crate::requests::{Backgrounded, Reply};
use crate::session::Session;

impl Session {
    /// Stops a background task. A message reports the end of the task. CLI 2.1.328 also acknowledges unknown tasks.
    pub async fn stop_task(&self, task_id: &str) -> Result<()> {
        self.acknowledged(RequestBody::new("stop_task").with("task_id", task_id)).await
    }
}

impl Requests<'_> {
    /// Moves all shells and subagents that the turn waits for into the background: their tool calls return at once, the
    /// turn goes on, and messages report when the tasks end.
    pub async fn background_tasks(self) -> Result<Reply<Backgrounded>> {
        self.session.request(RequestBody::new("background_tasks")).await
    }

    /// Moves the task of one tool call into the background (`background_tasks` with a `tool_use_id`).
    pub async fn background_task(self, tool_use_id: &str) -> Result<Reply<Backgrounded>> {
        self.session.request(RequestBody::new("background_tasks").with("tool_use_id", tool_use_id)).await
    }
}
