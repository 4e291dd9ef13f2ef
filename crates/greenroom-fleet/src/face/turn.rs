//! A turn of a fleet, as the application reads it.

pub(crate) mod item;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod updates;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use backon::Retryable;
use futures_util::{Stream, StreamExt, stream};
use greenroom::Message;
use tokio::time::{Instant, sleep_until, timeout};

use self::item::{Next, TurnItem};
use super::scope::Scope;
use crate::access::Action;
use crate::actor::context::FleetShared;
use crate::actor::retry::pauses;
use crate::actor::scribe::is_not_kept;
use crate::backend::{Backend, Reply, Requests};
use crate::error::{BackendError, FleetError};
use crate::hub::{Heard, LiveMessage, Reader, is_said};
use crate::id::PromptId;
use crate::record::{Credential, PromptHold, PromptOutcome, PromptRecord, PromptState};
use crate::request::StoredText;

/// The time that a backend has for its answer to a reader when the fleet has ended.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// The time without news after which a reader of updates is told that the turn is silent.
const SILENT: Duration = Duration::from_secs(15);

/// The turn of a prompt: its messages as they come, and then its [`outcome`](FleetTurn::outcome).
///
/// ```
/// use greenroom_fleet::{FleetError, FleetTurn, TurnItem};
///
/// async fn show(turn: &mut FleetTurn) -> Result<(), FleetError> {
///     while let Some(item) = turn.next().await {
///         match item? {
///             TurnItem::Message { seq, message } => println!("{seq}: {}", message.raw()),
///             TurnItem::Gap { from, to } => println!("messages {from} to {to} are not kept"),
///             _ => {}
///         }
///     }
///     println!("{:?}", turn.outcome().await?.text());
///     Ok(())
/// }
/// # let _ = show;
/// ```
///
/// The turn may wait, run or have ended. Its complete messages are kept with their outcome until
/// [`FleetLimits::retention`](crate::FleetLimits::retention) has passed, so you can read them later, more than once, and after a
/// restart of the service: begin at a number with [`messages_from`](FleetTurn::messages_from). Partial messages are not kept.
///
/// Dropping a `FleetTurn` changes nothing: the turn goes on. A slow reader gets complete messages from the backend, and misses partial ones.
///
/// While the backend is unavailable the reader waits for it. The reader's errors are final: [`FleetError::NotFound`] for a prompt
/// that is not known or no longer kept, [`FleetError::Denied`] for a person who may not read it, [`FleetError::Backend`] for a backend that is closed or damaged, and
/// [`FleetError::Ended`] when the fleet ends before the turn has its outcome.
#[must_use = "the turn goes on unread; call `next` to read it, or `outcome` to wait for its end"]
pub struct FleetTurn {
    shared: Arc<FleetShared>,
    scope: Scope,
    /// The person may read the turn.
    allowed: OnceLock<()>,
    prompt: PromptId,
    is_duplicate: bool,
    /// The number of the last message in `ready`, or before it.
    last_seq: u64,
    /// The number of the last message of the model on the main thread up to there, or of a later one.
    last_said: u64,
    ready: VecDeque<Result<TurnItem, FleetError>>,
    /// A live message that waits for the complete messages before it.
    held: Option<LiveMessage>,
    live: Option<Reader>,
    /// The records are to be read.
    look: bool,
    /// Questions that were asked in the turn, as its record says.
    asked: u32,
    /// The questions of the turn may have changed.
    questions: bool,
    over: bool,
}

impl FleetTurn {
    pub(crate) fn new(shared: Arc<FleetShared>, scope: Scope, prompt: PromptId, is_duplicate: bool) -> Self {
        Self {
            shared,
            scope,
            allowed: OnceLock::new(),
            prompt,
            is_duplicate,
            last_seq: 0,
            last_said: 0,
            ready: VecDeque::new(),
            held: None,
            live: None,
            look: true,
            asked: 0,
            questions: false,
            over: false,
        }
    }

    /// Begins at a message: `next` gives the messages with this number and greater ones. Default: 1, the first message.
    ///
    /// A browser that reconnects to a stream of server-sent events sends the id of the last event that it has seen. Continue with
    /// `messages_from(last_event_id + 1)`.
    pub fn messages_from(mut self, seq: u64) -> Self {
        self = Self::new(self.shared, self.scope, self.prompt, self.is_duplicate);
        self.last_seq = seq.saturating_sub(1);
        self.last_said = self.last_seq;
        self
    }

    /// The id of the prompt. Keep it to read the turn again later.
    pub fn prompt_id(&self) -> PromptId {
        self.prompt
    }

    /// True if the prompt was sent before with its key: this is the turn of the prompt that exists.
    pub fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }

    /// The next message or gap; `None` when the turn is over.
    ///
    /// Safe to cancel: an item is taken only when it is returned.
    pub async fn next(&mut self) -> Option<Result<TurnItem, FleetError>> {
        loop {
            match self.next_or_questions(Instant::now() + SILENT).await {
                Next::Item(item) => return Some(item),
                Next::Questions | Next::Silent => {}
                Next::Over => return None,
            }
        }
    }

    /// The next thing; `Silent` if nothing has come by a moment. Safe to cancel.
    async fn next_or_questions(&mut self, silent: Instant) -> Next {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Next::Item(item);
            }
            if std::mem::take(&mut self.questions) {
                return Next::Questions;
            }
            if self.over {
                return Next::Over;
            }
            match self.advance(silent).await {
                Ok(true) => {}
                Ok(false) => return Next::Silent,
                Err(error) => {
                    (self.over, self.live) = (true, None);
                    self.ready.push_back(Err(error));
                }
            }
        }
    }

    /// Waits for the end of the turn and returns its outcome. The tokens and the cost of the turn are in its [`record`](Self::record).
    ///
    /// Safe to cancel, and may be called more than once. Complete messages that you have not read can still be read; partial
    /// messages are dropped.
    ///
    /// # Errors
    /// The errors of a reader, see [`FleetTurn`].
    pub async fn outcome(&mut self) -> Result<PromptOutcome, FleetError> {
        // Nobody reads the live messages meanwhile.
        (self.live, self.look) = (None, true);
        let shared = &self.shared;
        let mut reader = shared.hub.wait(self.prompt);
        loop {
            let is_last = shared.ended.is_cancelled();
            let record = self.record().await?;
            if let PromptState::Ended { .. } = record.state {
                let outcome = self.read(|backend| backend.outcome(self.prompt)).await?;
                return outcome.ok_or_else(|| FleetError::not_found("prompt", self.prompt));
            }
            if is_last {
                return Err(FleetError::Ended);
            }
            let look = async { while !matches!(reader.next().await, Heard::Look) {} };
            shared.ended.run_until_cancelled(look).await;
        }
    }

    /// The items as a stream, which ends with the turn, or after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<TurnItem, FleetError>> + Send + Unpin + 'static {
        stream::unfold(self, async |mut turn| turn.next().await.map(|item| (item, turn))).boxed()
    }

    /// Comes one step nearer to the next item. `false`: no news has come by `silent`. Safe to cancel.
    async fn advance(&mut self, silent: Instant) -> Result<bool, FleetError> {
        if let Some(live) = self.held.take() {
            return self.take_live(live).await.map(|()| true);
        }
        let Some(live) = self.live.as_mut().filter(|_| !self.look) else {
            return self.look().await.map(|()| true);
        };
        let heard = tokio::select! {
            biased;
            heard = live.next() => heard,
            () = self.shared.ended.cancelled() => Heard::Look,
            () = sleep_until(silent) => return Ok(false),
        };
        match heard {
            Heard::Message(message) => self.held = Some(message),
            Heard::Missed(count) => self.ready.push_back(Ok(TurnItem::MissedPartials { count })),
            Heard::Look => self.look = true,
        }
        Ok(true)
    }

    /// Takes a live message after the complete messages before it. Ignores a message that the backend has given already, and parts
    /// of such a message.
    async fn take_live(&mut self, live: LiveMessage) -> Result<(), FleetError> {
        if live.after > self.last_seq {
            // The messages before it are in the backend. If there are none, there is a gap.
            let after = self.held.insert(live).after;
            let stored = self.stored().await?;
            if stored.is_empty() {
                self.gap_to(after);
            }
            return self.take_stored(stored);
        }
        let LiveMessage { after, complete, message } = live;
        // Messages of subagents are no reason to ignore what the main thread is writing.
        let last = if message.is_main_thread() { self.last_said } else { self.last_seq };
        if complete && after == self.last_seq {
            self.give(after + 1, message);
        } else if !complete && after >= last {
            self.ready.push_back(Ok(TurnItem::Partial(message)));
        }
        Ok(())
    }

    /// Reads the records. If they have nothing more, messages come live, or the turn is over.
    async fn look(&mut self) -> Result<(), FleetError> {
        let is_last = self.shared.ended.is_cancelled();
        // Before the records, so that no change is missed.
        let shared = &self.shared;
        self.live.get_or_insert_with(|| shared.hub.read(self.prompt));
        let record = self.record().await?;
        (self.asked, self.questions) = (record.asked, self.questions || record.asked > 0);
        if record.last_seq > self.last_seq {
            let stored = self.stored().await?;
            let may_be_more = !stored.is_empty();
            self.take_stored(stored)?;
            if may_be_more && record.last_seq > self.last_seq {
                return Ok(());
            }
        }
        if let PromptState::Ended { .. } = record.state {
            self.gap_to(record.last_seq);
            (self.over, self.live) = (true, None);
        } else if is_last {
            return Err(FleetError::Ended);
        }
        self.look = false;
        Ok(())
    }

    fn take_stored(&mut self, stored: Vec<StoredText>) -> Result<(), FleetError> {
        for StoredText { number: seq, json } in stored {
            let message = Message::parse(&json).map_err(BackendError::damaged)?;
            self.gap_to(seq - 1);
            if is_not_kept(&message) {
                self.gap_to(seq);
            } else {
                self.give(seq, message);
            }
        }
        Ok(())
    }

    /// Gives the next complete message.
    fn give(&mut self, seq: u64, message: Message) {
        self.last_seq = seq;
        if is_said(&message) {
            self.last_said = seq;
        }
        self.ready.push_back(Ok(TurnItem::Message { seq, message }));
    }

    /// Passes over messages that are missing, up to a number.
    fn gap_to(&mut self, to: u64) {
        if to <= self.last_seq {
            return;
        }
        let from = std::mem::replace(&mut self.last_seq, to) + 1;
        self.last_said = to;
        match self.ready.back_mut() {
            Some(Ok(TurnItem::Gap { to: last, .. })) if *last + 1 == from => *last = to,
            _ => self.ready.push_back(Ok(TurnItem::Gap { from, to })),
        }
    }

    /// The record of the prompt as it is now: its state, its session and its usage.
    ///
    /// # Errors
    /// The errors of a reader, see [`FleetTurn`].
    pub async fn record(&self) -> Result<PromptRecord, FleetError> {
        let record = self.read(|backend| backend.prompt_record(self.prompt)).await?;
        let record = record.filter(|record| self.scope.sees(&record.name));
        let record = record.ok_or_else(|| FleetError::not_found("prompt", self.prompt))?;
        if self.allowed.get().is_none() {
            self.scope.allow(&self.shared, Action::Read, Some(&record.name)).await?;
            self.allowed.get_or_init(|| ());
        }
        Ok(record)
    }

    /// The hold for which the prompt waits: the API rejects the credential of its session for now. `None`: it does not wait, or it waits for
    /// something else.
    ///
    /// # Errors
    /// The errors of a reader, see [`FleetTurn`].
    pub async fn hold(&self) -> Result<Option<PromptHold>, FleetError> {
        let (waits, credential) = self.credential().await?;
        let hold = credential.filter(|_| waits).and_then(|credential| self.shared.health.hold(&credential));
        Ok(hold.as_ref().map(PromptHold::of))
    }

    /// True if the prompt waits; and the credential of its session.
    async fn credential(&self) -> Result<(bool, Option<Credential>), FleetError> {
        let record = self.record().await?;
        let name = self.read(|backend| backend.name_record(record.name.clone())).await?;
        let credential = name.map(|name| self.shared.credential(&name.name, &name.profile));
        Ok((record.state == PromptState::Queued, credential))
    }

    /// The next page of messages that the backend keeps.
    async fn stored(&self) -> Result<Vec<StoredText>, FleetError> {
        self.read(|backend| backend.messages(self.prompt, self.last_seq, usize::MAX)).await
    }

    /// Reads from the backend, and waits while it is unavailable and the fleet runs.
    async fn read<'a, T>(
        &'a self,
        request: impl Fn(&'a dyn Backend) -> Reply<'a, T>,
    ) -> Result<T, FleetError> {
        let request = || request(&*self.shared.backend);
        let tell = |error: &BackendError, _| tracing::debug!(%error, "a reader waits for the backend");
        tokio::select! {
            biased;
            () = self.shared.ended.cancelled() => {}
            answer = request.retry(pauses()).when(BackendError::is_unavailable).notify(tell) => return Ok(answer?),
        }
        // The backend may hang for ever: that may be the reason why the fleet has ended.
        match timeout(LAST_ANSWER, request()).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(FleetError::Ended),
        }
    }
}

impl fmt::Debug for FleetTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetTurn").field("prompt", &self.prompt).finish_non_exhaustive()
    }
}
