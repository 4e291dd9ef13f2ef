//! Background tasks.

use super::read::answers;

answers! {
    /// Whether something was put into the background.
    ///
    /// ```
    /// let answer: greenroom::requests::Backgrounded = serde_json::from_str(r#"{"backgrounded": false}"#)?;
    /// assert!(!answer.is_backgrounded());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct Backgrounded {
        /// Whether the task was; `None` means yes. CLI 2.1.328 says `false` for a call that is not there, and nothing when
        /// all tasks were meant.
        pub backgrounded: Option<bool> = "backgrounded",
    }

    /// The end of what a background task has written.
    ///
    /// ```
    /// let output: greenroom::requests::TaskOutput =
    ///     serde_json::from_str(r#"{"output": "out\n", "total_bytes": 4, "truncated": false}"#)?;
    /// assert_eq!(output.total_bytes, 4);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct TaskOutput {
        /// At most the last 8 KiB, escape sequences and all. CLI 2.1.328 adds a line `[killed]` for a task that was stopped.
        pub output: String = "output",
        /// The size of all of it in bytes.
        pub total_bytes: u64 = "total_bytes",
        /// Whether something is missing at the beginning.
        pub truncated: bool = "truncated",
    }
}

impl Backgrounded {
    /// Whether the task was put into the background.
    pub fn is_backgrounded(&self) -> bool {
        self.backgrounded.unwrap_or(true)
    }
}
