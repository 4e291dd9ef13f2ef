//! Whether tasks are left behind.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Compares the number of tasks on the runtime before and after a test.
///
/// ```
/// use std::time::Duration;
/// use greenroom_testkit::{LeakCheck, Script, ScriptedCli};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let leaks = LeakCheck::tasks();
/// let cli = ScriptedCli::play(Script::new());
/// let session = greenroom::Session::builder().transport(cli.transport()).start().await?;
/// session.stop().await?;
/// drop(cli);
/// leaks.assert_none(Duration::from_secs(5)).await;
/// # greenroom::Result::<()>::Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it has to be asked after the test"]
pub struct LeakCheck {
    before: usize,
}

/// Tasks that were left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    before: usize,
    after: usize,
}

impl LeakCheck {
    /// Counts the tasks of the runtime on which it is called.
    pub fn tasks() -> Self {
        Self { before: alive() }
    }

    /// Waits until there are no more tasks than before, at most so long on the clock of tokio.
    ///
    /// # Errors
    /// Returns the numbers of tasks if there are still more after `limit`.
    pub async fn check(&self, limit: Duration) -> Result<(), Leak> {
        let deadline = Instant::now() + limit;
        loop {
            let after = alive();
            if after <= self.before {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Leak { before: self.before, after });
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// [`check`](LeakCheck::check) that panics if tasks are left.
    ///
    /// # Panics
    /// When tasks were left behind.
    pub async fn assert_none(&self, limit: Duration) {
        if let Err(leak) = self.check(limit).await {
            panic!("{leak}");
        }
    }
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "left behind: {} tasks, where there were {}", self.after, self.before)
    }
}

impl std::error::Error for Leak {}
