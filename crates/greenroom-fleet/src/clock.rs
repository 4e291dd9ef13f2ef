//! The clock of a backend.

use std::fmt;
use std::sync::Arc;

use crate::id::Timestamp;

/// The clock of a backend: what it takes for now.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's clock. Use this one where moments outlive the process.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// A clock that follows tokio's, from the system's moment now. Under tokio's paused clock time passes only as the test lets
    /// it pass.
    ///
    /// # Panics
    /// Its users panic where tokio's clock does: a paused clock has to be read inside its runtime.
    pub fn tokio() -> Self {
        let (base, start) = (Timestamp::now(), tokio::time::Instant::now());
        Self::new(move || base.after(start.elapsed()))
    }

    /// A clock of your own.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The moment now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
