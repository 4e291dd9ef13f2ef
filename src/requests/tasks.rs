//! Background tasks.

use crate::wire::objects::objects;

objects! {
    /// Answer to [`Requests::background_tasks`](crate::session::Requests::background_tasks).
    answer Backgrounded {
        /// `None` means yes. CLI 2.1.328 answers `false` for an unknown call, and nothing if all tasks were meant.
        backgrounded: Option<bool>,
    }
}

impl Backgrounded {
    /// Whether the task was put into the background.
    pub fn is_backgrounded(&self) -> bool {
        self.backgrounded.unwrap_or(true)
    }
}
