//! Readers of the feed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::operator::Operator;
use super::scope::Scope;
use super::tenant::FleetTenant;
use crate::access::Action;
use crate::actor::context::FleetShared;
use crate::pages::feed_page;
use crate::query::feed::{FeedCursor, FeedEntry, FeedError, FeedPage};

/// The time after which a reader looks for further entries.
const LOOK: Duration = Duration::from_millis(500);
/// Entries that are read at once.
const ENTRIES: usize = 256;

/// A reader of the feed: see [`FleetTenant::feed`].
#[must_use = "nothing is read until `next` is called"]
pub struct Feed {
    shared: Arc<FleetShared>,
    scope: Scope,
    /// The authoriser has allowed it.
    is_allowed: bool,
    cursor: FeedCursor,
    ready: VecDeque<FeedEntry>,
}

impl FleetTenant {
    /// Reads what has happened to the tenant's sessions, over all nodes: for webhooks, bills, a search index, whatever has to miss nothing.
    /// [`Operator::events`] is the live view, which may.
    ///
    /// Entries are written in the commit of the change, so the feed is complete and exact. Entries of a session come in their order; those
    /// of different sessions in any order, within seconds. An entry comes about a second after it
    /// has happened. Keep the [cursor](FeedEntry::cursor) of an entry once it is handled, and begin there after a restart: an entry comes again
    /// only if its cursor was not kept.
    ///
    /// The [builder](crate::FleetBuilder::feed) turns the feed on and says how long entries are kept.
    ///
    /// ```
    /// # use greenroom::Session;
    /// # use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
    /// use greenroom_fleet::{FeedCursor, FeedEvent, FeedRetention, Fleet};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cli = ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text("Hello.")));
    /// let fleet = Fleet::builder()
    ///     .profile("default", move |_| Session::builder().transport(cli.transport()))
    ///     .feed(FeedRetention::default())
    ///     .start()
    ///     .await?;
    /// let acme = fleet.tenant("acme")?;
    /// acme.session("customer-42")?.prompt("Hello?").await?.outcome().await?;
    ///
    /// // From a table of yours; the default begins at the oldest entry that is kept.
    /// let mut kept = FeedCursor::default();
    /// let mut feed = acme.feed(kept.clone());
    /// while let Some(entry) = feed.next().await? {
    ///     if let FeedEvent::Ended { prompt, outcome, usage } = &entry.event {
    ///         println!("{} of {}: {outcome}, {} tokens", prompt, entry.name, usage.output);
    ///         kept = entry.cursor;
    ///         break;
    ///     }
    /// }
    /// println!("go on at {kept}");
    /// # fleet.drain(std::time::Duration::from_secs(20)).await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn feed(&self, from: FeedCursor) -> Feed {
        Feed::new(self.fleet.handle.shared.clone(), self.scope.clone(), from)
    }
}

impl Operator {
    /// Reads what has happened to the sessions of all tenants: see [`FleetTenant::feed`].
    pub fn feed(&self, from: FeedCursor) -> Feed {
        Feed::new(self.fleet.handle.shared.clone(), self.scope.clone(), from)
    }
}

impl Feed {
    fn new(shared: Arc<FleetShared>, scope: Scope, cursor: FeedCursor) -> Self {
        Self { shared, scope, is_allowed: false, cursor, ready: VecDeque::new() }
    }

    /// The next entry. Waits for one; `None` after the end of the fleet. Cancel-safe.
    ///
    /// # Errors
    /// [`FeedError::Gap`] if entries that were not read are no longer kept: the next call goes on with the oldest one that is.
    /// [`FeedError::Off`]; [`FeedError::Denied`]; [`FeedError::Backend`].
    pub async fn next(&mut self) -> Result<Option<FeedEntry>, FeedError> {
        let shared = &self.shared;
        if !self.is_allowed {
            self.scope.allow(shared, Action::Read, None).await?;
            self.is_allowed = true;
        }
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Ok(Some(entry));
            }
            let (of, from) = (&self.scope.tenant, &self.cursor);
            let page = shared.ask(|backend| Box::pin(feed_page(backend, of.clone(), from.clone(), ENTRIES)));
            match page.await? {
                FeedPage::Entries { entries, next } => {
                    let goes_on = next != self.cursor;
                    (self.ready, self.cursor) = (entries.into(), next);
                    if goes_on {
                        continue;
                    }
                }
                FeedPage::Gap { next } => {
                    self.cursor = next;
                    return Err(FeedError::Gap);
                }
                FeedPage::Off => return Err(FeedError::Off),
            }
            if shared.ended.is_cancelled() {
                return Ok(None);
            }
            shared.ended.run_until_cancelled(tokio::time::sleep(LOOK)).await;
        }
    }
}
