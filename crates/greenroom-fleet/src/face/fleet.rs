//! The fleet: its handle.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::scope::Scope;
use crate::access::Action;
use crate::actor::context::FleetShared;
use crate::actor::supervisor::FleetMessage;
use crate::backend::Requests;
use crate::error::FleetError;
use crate::event::FleetEnd;
use crate::id::PromptId;

/// The longest limit that a clock can add to a moment.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A fleet of named sessions. Its clones are handles to the fleet.
///
/// ```
/// use greenroom::Session;
/// use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
/// use greenroom_fleet::Fleet;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cli = ScriptedCli::play(Script::new().turn(ModelTurn::new().text("It arrives on Monday.")));
/// let fleet = Fleet::builder()
///     .profile("support", move |_| Session::builder().transport(cli.transport()))
///     .start()
///     .await?;
///
/// let customer = fleet.tenant("acme")?.session("customer-42")?.profile("support");
/// let mut turn = customer.prompt("Where is my lamp?").await?;
/// while let Some(item) = turn.next().await {
///     if let Some(text) = item?.text() {
///         println!("{text}");
///     }
/// }
/// assert_eq!(turn.outcome().await?.text(), Some("It arrives on Monday."));
/// fleet.drain(std::time::Duration::from_secs(20)).await;
/// # Ok(())
/// # }
/// ```
///
/// When the last handle is dropped, the fleet drains within [`FleetLimits::drain`](crate::FleetLimits::drain). Call [`drain`](Fleet::drain) to wait for that.
#[derive(Clone)]
pub struct Fleet {
    pub(super) handle: Arc<Handle>,
}

pub(super) struct Handle {
    pub(super) shared: Arc<FleetShared>,
    pub(super) supervisor: ActorRef<FleetMessage>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // An error: the fleet has ended.
        self.supervisor.cast(FleetMessage::Abandoned).ok();
    }
}

impl Fleet {
    pub(super) async fn withdraw(&self, scope: &Scope, prompt: PromptId) -> Result<bool, FleetError> {
        use crate::request::Withdrawn;
        let (shared, unknown) = (&self.handle.shared, || FleetError::not_found("prompt", prompt));
        // A prompt stays with its session, so this need not be one request with the withdrawal.
        let record = shared.ask(|backend| backend.prompt_record(prompt)).await?;
        let record = record.filter(|record| scope.sees(&record.name)).ok_or_else(unknown)?;
        scope.allow(shared, Action::Withdraw, Some(&record.name)).await?;
        match shared.ask(|backend| backend.withdraw(prompt)).await? {
            Withdrawn::Unsent | Withdrawn::Interrupted => Ok(true),
            Withdrawn::TooLate(_) => Ok(false),
            Withdrawn::Gone => Err(unknown()),
        }
    }

    /// Ends the fleet within `limit`, and returns when nothing of it is left but what its backend keeps.
    ///
    /// New prompts are refused, and idle sessions end at once. Running turns may end. When a third of the time is left (at most 5
    /// seconds) all sessions that are left are killed: a prompt with a continuation goes on when the fleet opens again, and any other ends
    /// as interrupted. Prompts that wait go on waiting in the backend.
    ///
    /// At the deadline nothing more is waited for but the ends of CLIs that were killed, which takes the system some
    /// milliseconds. So a `limit` of zero kills all sessions at once, and returns when their process groups are gone; the next
    /// fleet gives the turns that they ran their outcomes. If a profile blocks or a disk hangs, `drain` returns five seconds
    /// after the deadline, and the rest ends later.
    ///
    /// May be called more than once; the earliest deadline counts. If the future is dropped, the fleet drains all the same.
    pub async fn drain(&self, limit: Duration) {
        let (done, drained) = oneshot::channel();
        let message = FleetMessage::Drain { deadline: Instant::now() + limit.min(LONGEST), done };
        if self.handle.supervisor.cast(message).is_ok() {
            // An error: the supervisor has ended.
            drained.await.ok();
        }
        self.wait().await;
    }

    /// Waits until the fleet has ended, and says how.
    pub async fn wait(&self) -> FleetEnd {
        // Without a limit the wait cannot fail.
        self.handle.supervisor.wait(None).await.ok();
        let shared = &self.handle.shared;
        shared.ended.cancelled().await;
        shared.end.get().copied().unwrap_or(FleetEnd::Failed)
    }

    /// True if causes keep the sessions of every profile from starting on this node.
    #[cfg(feature = "axum")]
    pub(crate) fn is_held_back(&self) -> bool {
        let shared = &self.handle.shared;
        shared.health.holds_back(shared.profiles.keys(), shared.has_peers())
    }

    /// Makes an actor of the fleet fail, to test that the fleet survives it.
    #[cfg(feature = "testkit")]
    pub fn inject(&self, fault: crate::testkit::FleetFault) {
        // An error: the fleet has ended.
        self.handle.supervisor.cast(FleetMessage::Inject(fault)).ok();
    }
}
