//! The updates of a turn: messages, partial messages, questions and the outcome in one stream.
//!
//! ```text
//!  FleetTurn ── item ──────────► its updates, without those that the reader has seen ──┐
//!     │ └────── questions ─────► what was asked and decided since the last look ───────┼──► the application
//!     └── over ──► the outcome ────────────────────────────────────────────────────────┘
//! ```

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use futures_util::{Stream, StreamExt, stream};
use greenroom::Message;
use tokio::sync::watch;
use tokio::time::Instant;

use super::item::{Next, TurnItem};
use super::{FleetTurn, SILENT};
use crate::backend::Requests;
use crate::error::FleetError;
use crate::hub::{is_said, starts_text};
use crate::id::QuestionId;
use crate::record::{Credential, Hold, PromptHold, QuestionRecord};
use crate::request::Page;
use crate::update::{Update, UpdateId};

/// The updates of a turn: what a page shows of it, from any node.
///
/// ```
/// use futures_util::{Stream, StreamExt};
/// use greenroom_fleet::{FleetTurn, UpdateId};
///
/// /// The body of a response with the content type `text/event-stream`.
/// fn events(turn: FleetTurn, last_event_id: Option<&str>) -> impl Stream<Item = String> + use<> {
///     let seen: Option<UpdateId> = last_event_id.and_then(|id| id.parse().ok());
///     turn.updates().after(seen).into_stream().filter_map(async |update| {
///         // An error: the fleet ends before the turn. The client reads on from the next process.
///         let update = update.ok()?;
///         let id = update.id().map(|id| format!("id: {id}\n")).unwrap_or_default();
///         let data = serde_json::to_string(&update).ok()?;
///         Some(format!("{id}event: {}\ndata: {data}\n\n", update.event_name()))
///     })
/// }
/// # let _ = events;
/// ```
///
/// The outcome is the last update, and comes exactly once. While a reader waits and nothing happens, a
/// [`Heartbeat`](Update::Heartbeat) comes each 15 seconds. A turn whose owner is lost needs no watch: the other nodes declare the owner dead
/// when its lease is over, and the turn ends as [`Interrupted`](crate::PromptOutcome::Interrupted) or goes on with its continuation.
///
/// Subagents are shown by their tool calls only.
#[must_use = "nothing is read until `next` is called"]
pub struct TurnUpdates {
    turn: FleetTurn,
    /// The last update that the reader has seen.
    seen: UpdateId,
    ready: VecDeque<Update>,
    questions: Questions,
    /// The questions are to be read.
    look: bool,
    /// Tells of changes of holds.
    holds: watch::Receiver<u64>,
    /// The credential of the session, and its row at the last look.
    credential: Option<(Credential, Option<Hold>)>,
    /// The hold of which the reader knows.
    hold: Option<PromptHold>,
    deltas: Deltas,
    over: bool,
}

/// The questions of which the reader knows.
#[derive(Default)]
struct Questions {
    open: HashMap<QuestionId, QuestionRecord>,
    decided: HashSet<QuestionId>,
    /// Questions that were asked in the turn, as its record said at the last look.
    asked: Option<u32>,
}

/// The text that the main thread is writing.
#[derive(Default)]
struct Deltas {
    /// A text begins with the next delta.
    starts: bool,
    /// Deltas of the text are missing, so the rest of them is left out.
    has_hole: bool,
}

impl FleetTurn {
    /// The updates of the turn for a page, from the first one on: texts, tool calls, questions, usage and the outcome, and deltas
    /// while the model writes. Begin after an update with [`TurnUpdates::after`].
    pub fn updates(self) -> TurnUpdates {
        TurnUpdates::new(self, UpdateId::START)
    }
}

impl TurnUpdates {
    fn new(turn: FleetTurn, seen: UpdateId) -> Self {
        let mut holds = turn.shared.health.holds();
        // The prompt may wait already.
        holds.mark_changed();
        Self {
            holds,
            credential: None,
            hold: None,
            // The message of the last update may have more of them.
            turn: turn.messages_from(seen.seq.max(1)),
            seen,
            ready: VecDeque::new(),
            questions: Questions::default(),
            look: false,
            deltas: Deltas::default(),
            over: seen == UpdateId::END,
        }
    }

    /// Begins after an update: a browser that reconnects sends the id of the last one as `Last-Event-ID`. Default, and `None`: the
    /// first update. After [`UpdateId::END`] nothing comes.
    pub fn after(self, seen: impl Into<Option<UpdateId>>) -> Self {
        Self::new(self.turn, seen.into().unwrap_or(UpdateId::START))
    }

    /// The next update; `None` after the outcome, or after an error.
    ///
    /// Safe to cancel: an update is taken only when it is returned.
    ///
    /// # Errors
    /// The errors of a reader, see [`FleetTurn`]. They are final.
    pub async fn next(&mut self) -> Option<Result<Update, FleetError>> {
        let silent = Instant::now() + SILENT;
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Some(Ok(update));
            }
            if self.over {
                return None;
            }
            if let Err(error) = self.advance(silent).await {
                self.over = true;
                return Some(Err(error));
            }
        }
    }

    /// The updates as a stream, which ends with the outcome, or after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Update, FleetError>> + Send + Unpin + 'static {
        stream::unfold(self, async |mut updates| updates.next().await.map(|update| (update, updates))).boxed()
    }

    /// Comes one step nearer to the next update: a heartbeat if no news has come by `silent`. Safe to cancel.
    async fn advance(&mut self, silent: Instant) -> Result<(), FleetError> {
        if self.look {
            self.look_at_questions().await?;
            self.look = false;
            return Ok(());
        }
        let next = tokio::select! {
            biased;
            Ok(()) = self.holds.changed() => return self.look_at_hold().await,
            next = self.turn.next_or_questions(silent) => next,
        };
        match next {
            Next::Item(item) => self.take(item?),
            // The records do not show decisions, so read the questions again while one is open.
            Next::Questions => {
                self.look = !self.questions.open.is_empty() || self.questions.asked != Some(self.turn.asked);
            }
            Next::Silent => self.ready.push_back(Update::Heartbeat),
            Next::Over => {
                let outcome = Box::new(self.turn.outcome().await?);
                self.ready.push_back(Update::Outcome { id: UpdateId::END, outcome });
                self.over = true;
            }
        }
        Ok(())
    }

    /// Tells the hold for which the prompt waits, if it is another one than before.
    async fn look_at_hold(&mut self) -> Result<(), FleetError> {
        let row_of = |credential: &Credential| self.turn.shared.health.hold(credential);
        if self.credential.as_ref().is_some_and(|(credential, row)| row_of(credential) == *row) {
            // Another credential's.
            return Ok(());
        }
        let looked = self.turn.credential().await;
        let (waits, credential) = looked.inspect_err(|_| self.holds.mark_changed())?;
        self.credential = credential.map(|credential| (credential.clone(), row_of(&credential)));
        let row = self.credential.as_ref().filter(|_| waits).and_then(|(_, row)| row.as_ref());
        let hold = row.map(PromptHold::of);
        let before = std::mem::replace(&mut self.hold, hold);
        let news = hold.filter(|hold| before.as_ref() != Some(hold));
        self.ready.extend(news.map(|PromptHold { cause, until }| Update::Held { cause, until }));
        Ok(())
    }

    fn take(&mut self, item: TurnItem) {
        match item {
            TurnItem::Message { seq, message } => {
                if is_said(&message) {
                    self.deltas = Deltas::default();
                }
                self.ready.extend(Update::of_message(seq, &message));
            }
            TurnItem::Gap { from, to } => {
                self.deltas.has_hole = true;
                self.ready.push_back(Update::of_gap(from, to));
            }
            TurnItem::Partial(message) => self.ready.extend(self.deltas.take(&message)),
            TurnItem::MissedPartials { .. } => self.deltas.has_hole = true,
        }
        self.ready.retain(|update| update.id().is_none_or(|id| id > self.seen));
    }

    /// Reads the questions of the turn, and tells what is new.
    async fn look_at_questions(&mut self) -> Result<(), FleetError> {
        let (turn, asked) = (&self.turn, self.turn.asked);
        let prompt = turn.prompt;
        let mut questions = turn.read(|backend| backend.questions_of(prompt, Page::MOST)).await?;
        let mut ended = Vec::new();
        for (id, known) in &self.questions.open {
            if !questions.iter().any(|question| question.id == *id) {
                // Decided behind the page, or ended without a decision.
                let found = turn.read(|backend| backend.question(*id)).await?;
                ended.push(found.unwrap_or_else(|| known.clone()));
            }
        }
        questions.sort_by_key(|question| question.asked_at);
        let open = questions.iter().filter(|question| question.decision.is_none());
        let open: HashMap<_, _> = open.map(|question| (question.id, question.clone())).collect();
        for question in ended.into_iter().chain(questions) {
            let is_open = open.contains_key(&question.id);
            let is_known = match is_open {
                true => {
                    let known = self.questions.open.get(&question.id);
                    known.is_some_and(|known| known.parked == question.parked)
                }
                false => !self.questions.decided.insert(question.id),
            };
            let question = Box::new(question);
            match (is_known, is_open) {
                (true, _) => {}
                (false, true) => self.ready.push_back(Update::Asked { question }),
                (false, false) => self.ready.push_back(Update::Decided { question }),
            }
        }
        (self.questions.open, self.questions.asked) = (open, Some(asked));
        Ok(())
    }
}

impl Deltas {
    /// The delta of a partial message of the main thread.
    fn take(&mut self, message: &Message) -> Option<Update> {
        let Message::StreamEvent(event) = message else { return None };
        if !message.is_main_thread() {
            return None;
        }
        if starts_text(event.event_type()) {
            *self = Self { starts: true, has_hole: false };
        }
        let text = event.text_delta().filter(|text| !text.is_empty() && !self.has_hole)?;
        Some(Update::Delta { text: text.to_owned(), starts: std::mem::take(&mut self.starts) })
    }
}

impl fmt::Debug for TurnUpdates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnUpdates").field("prompt", &self.turn.prompt).finish_non_exhaustive()
    }
}
