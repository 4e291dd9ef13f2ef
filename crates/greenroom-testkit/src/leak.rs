//! Finds tasks that a test leaves behind.

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

impl LeakCheck {
    /// Counts the tasks of the runtime on which it is called.
    pub fn tasks() -> Self {
        Self { before: alive() }
    }

    /// Waits until there are no more tasks than before, at most so long on the clock of tokio.
    ///
    /// # Errors
    /// Says how many there were and are, if there are still more after `limit`.
    pub async fn check(&self, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        loop {
            let after = alive();
            if after <= self.before {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("left behind: {after} tasks, where there were {}", self.before));
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
