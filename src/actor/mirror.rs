//! The mirror: what the CLI has written to its transcripts, on its way to the session's store.
//!
//! ```text
//!   reader ── push ──► queue ≤ StoreOptions::queue_bytes ── batch ──► append, key by key, each try a task of its own
//!   conversation ── flush, before a result ──► │                        │ failed: told, dropped
//!                   ◄── when all is settled ───┴────────────────────────┘
//! ```
//!
//! `push` and `flush` take a lock for a moment and never wait, so neither does the reader of the pipe. One worker takes
//! from the queue, so the entries of a key keep their order. It belongs to the supervisor, and outlives every incarnation
//! of the CLI.
//!
//! A CLI that is killed has written more to its transcript than it has told. The next one goes on from there, and what it
//! tells would hang in the air: so after each unasked end the store is given what the files have behind the last entry that
//! it took ([`catch_up`](Mirror::catch_up)), before anything was lost of the file: so that heals what was lost before, too.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use ractor::ActorRef;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{Notify, OnceCell, oneshot};

use super::conversation::ConversationMessage;
use super::shared::Shared;
use super::work::Task;
use crate::options::{Options, StoreFlush, StoreOptions};
use crate::report::Event;
use crate::sessions::{blocking, canonical, each_line, key_of_path};
use crate::store::{SessionKey, SessionStore, TranscriptEntry};
use crate::tool::instance::panic_text;
use crate::wire::Message;

/// How many losses wait to be told, each of a file and a reason of its own; more are told as one.
const LOST: usize = 256;

pub(crate) struct Mirror {
    store: Arc<dyn SessionStore>,
    options: StoreOptions,
    /// The folder of all transcripts, as the CLI names it.
    projects: PathBuf,
    cwd: PathBuf,
    /// The same as the first, resolved.
    resolved: OnceCell<PathBuf>,
    queue: Mutex<Queue>,
    work: Notify,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Frame>,
    /// Of the frames.
    entries: usize,
    /// With those that the store is being given.
    bytes: usize,
    /// What the store is being given: file and number of entries; no file for files that are still to be looked at.
    in_flight: Vec<(Option<String>, usize)>,
    /// What found no room, or could not be read, and is still to be told. See [`LOST`].
    lost: Vec<Lost>,
    /// Whether the worker gives something to the store, or tells what was lost.
    busy: bool,
    /// Frames that came, that are to be given to the store, and that the store has taken or refused; in number.
    accepted: u64,
    wanted: u64,
    settled: u64,
    waiting: Vec<(u64, Waiter)>,
}

/// Entries that one file was given.
struct Frame {
    path: String,
    entries: Vec<TranscriptEntry>,
    bytes: usize,
    /// Instead: the files are to be looked at. With the session that the CLI worked at.
    catch_up: Option<Option<String>>,
}

impl Frame {
    /// As it stands in `Queue::in_flight`.
    fn pending(&self) -> (Option<String>, usize) {
        (self.catch_up.is_none().then(|| self.path.clone()), self.entries.len())
    }
}

/// What the store has of a file.
#[derive(Clone, Default)]
struct Taken {
    /// The last entry with an id that it took before anything was lost.
    last: Option<String>,
    /// Whether something was lost behind that: all since is given once more when the files are looked at.
    hole: bool,
}

type TakenOf = HashMap<String, Taken>;

/// Entries that do not reach the store.
struct Lost {
    path: Option<String>,
    entries: usize,
    reason: String,
}

/// One more; with the others of its file and reason.
fn lose(lost: &mut Vec<Lost>, new: Lost) {
    let same = |known: &Lost, new: &Lost| known.path == new.path && known.reason == new.reason;
    let new = if lost.len() < LOST || lost.iter().any(|known| same(known, &new)) {
        new
    } else {
        let reason = format!("more was lost than {LOST} files and reasons can say");
        Lost { path: None, entries: new.entries, reason }
    };
    match lost.iter_mut().find(|known| same(known, &new)) {
        Some(known) => known.entries += new.entries,
        None => lost.push(new),
    }
}

/// Told when all is settled, or when there is nobody any more to settle it.
struct Waiter(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

/// What the worker does next.
struct Batch {
    frames: Vec<Frame>,
    lost: Vec<Lost>,
    up_to: u64,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(rename = "filePath")]
    path: String,
    entries: Vec<Box<RawValue>>,
}

impl Mirror {
    pub(crate) fn new(store: Arc<dyn SessionStore>, options: &Options, config_dir: &Path) -> Self {
        Self {
            store,
            options: options.store.clone(),
            cwd: options.cwd.clone().unwrap_or_else(|| PathBuf::from(".")),
            projects: config_dir.join("projects"),
            resolved: OnceCell::new(),
            queue: Mutex::default(),
            work: Notify::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a `transcript_mirror` frame.
    pub(crate) fn push(&self, frame: &RawValue) {
        let bytes = frame.get().len();
        let read = serde_json::from_str::<Wire>(frame.get());
        let queue = &mut *self.queue();
        let lost = match read {
            Ok(Wire { path, entries }) => {
                let count = entries.len();
                let entries: Vec<_> = entries.into_iter().flat_map(TranscriptEntry::from_raw).collect();
                let unreadable = count - entries.len();
                if unreadable > 0 {
                    let reason = "they are no JSON objects".to_owned();
                    lose(&mut queue.lost, Lost { path: Some(path.clone()), entries: unreadable, reason });
                    self.work.notify_one();
                }
                // One that is larger than the bound goes alone.
                if queue.bytes == 0 || queue.bytes + bytes <= self.options.queue_bytes {
                    queue.entries += entries.len();
                    queue.bytes += bytes;
                    queue.accepted += 1;
                    queue.frames.push_back(Frame { path, entries, bytes, catch_up: None });
                    if self.is_full(queue) {
                        queue.wanted = queue.accepted;
                        self.work.notify_one();
                    }
                    return;
                }
                let reason = format!(
                    "the store is slow, and more than `store.queue_bytes` ({}) of entries wait for it",
                    self.options.queue_bytes
                );
                Lost { path: Some(path), entries: entries.len(), reason }
            }
            Err(error) => Lost { path: None, entries: 0, reason: format!("a frame cannot be read: {error}") },
        };
        lose(&mut queue.lost, lost);
        self.work.notify_one();
    }

    fn is_full(&self, queue: &Queue) -> bool {
        self.options.flush == StoreFlush::Eager
            || queue.entries > self.options.batch_entries
            || queue.bytes > self.options.batch_bytes
    }

    /// The CLI has ended unasked: looks in its files for what it has not told.
    pub(crate) fn catch_up(&self, session_id: Option<String>) {
        let mut queue = self.queue();
        queue.accepted += 1;
        queue.wanted = queue.accepted;
        let catch_up = Some(session_id);
        queue.frames.push_back(Frame { path: String::new(), entries: Vec::new(), bytes: 0, catch_up });
        drop(queue);
        self.work.notify_one();
    }

    /// Whether nothing is on its way to the store, and all that was lost is told.
    pub(crate) fn is_settled(&self) -> bool {
        let queue = self.queue();
        !queue.busy && queue.settled == queue.accepted && queue.lost.is_empty()
    }

    /// Makes the store be given all that has come so far, and calls `then` when it has taken it, or when it was told that it
    /// has not.
    pub(crate) fn flush(&self, then: impl FnOnce() + Send + 'static) {
        let waiter = Waiter(Some(Box::new(then)));
        let mut queue = self.queue();
        queue.wanted = queue.accepted;
        let at = queue.accepted;
        queue.waiting.push((at, waiter));
        drop(queue);
        self.work.notify_one();
    }

    /// [`flush`](Mirror::flush), waited for.
    pub(crate) async fn flushed(&self) {
        let (tell, told) = oneshot::channel();
        self.flush(move || {
            // Whoever waits may have stopped.
            tell.send(()).ok();
        });
        told.await.ok();
    }

    /// Gives the store what comes, until it is dropped.
    pub(crate) async fn run(
        self: Arc<Self>,
        shared: Arc<Shared>,
        conversation: ActorRef<ConversationMessage>,
    ) {
        let told = Telling { shared, conversation };
        let mut taken = TakenOf::new();
        loop {
            let Some(batch) = self.next() else {
                self.work.notified().await;
                continue;
            };
            self.tell(batch.lost, &mut taken, &told).await;
            // In the order of their first frames; each file once.
            let mut files: Vec<(String, Vec<TranscriptEntry>)> = Vec::new();
            let mut catch_up = None;
            for frame in batch.frames {
                if frame.catch_up.is_some() {
                    catch_up = frame.catch_up;
                    continue;
                }
                match files.iter_mut().find(|(path, _)| *path == frame.path) {
                    Some((_, entries)) => entries.extend(frame.entries),
                    None => files.push((frame.path, frame.entries)),
                }
            }
            for (path, entries) in files {
                self.give(path, entries, false, &mut taken, &told).await;
            }
            if let Some(session_id) = catch_up {
                let untold = self.untold(session_id, taken.clone()).await;
                let pending = untold.iter().map(|(path, entries)| (Some(path.clone()), entries.len()));
                self.queue().in_flight = pending.collect();
                for (path, entries) in untold {
                    self.give(path, entries, true, &mut taken, &told).await;
                }
            }
            self.settle(batch.up_to, &mut taken, &told).await;
        }
    }

    /// Tells what did not even get as far as the store.
    async fn tell(&self, lost: Vec<Lost>, taken: &mut TakenOf, told: &Telling) {
        for Lost { path, entries, reason } in lost {
            let key = match &path {
                Some(path) => self.key(path).await,
                None => None,
            };
            match (path, &key) {
                (Some(path), Some(_)) => taken.entry(path).or_default().hole = true,
                (Some(_), None) => {}
                // It may be of any.
                (None, _) => taken.values_mut().for_each(|file| file.hole = true),
            }
            told.failed(key, entries, reason);
        }
    }

    /// Gives the store entries of one file: what the CLI tells of it, or all that is behind what the store has.
    async fn give(
        &self,
        path: String,
        entries: Vec<TranscriptEntry>,
        catches_up: bool,
        taken: &mut TakenOf,
        told: &Telling,
    ) {
        if entries.is_empty() {
            return;
        }
        let Some(key) = self.key(&path).await else {
            let projects = self.projects.display();
            let reason = format!("{path} is not below {projects}, where the transcripts of this session are");
            return told.failed(None, entries.len(), reason);
        };
        let count = entries.len();
        let last = entries.iter().rev().find_map(|entry| entry.uuid().map(str::to_owned));
        let appended = self.append(&key, entries.into()).await;
        self.queue().in_flight.retain(|(pending, _)| pending.as_ref() != Some(&path));
        let file = taken.entry(path).or_default();
        match appended {
            Ok(()) => {
                file.hole &= !catches_up;
                if !file.hole {
                    file.last = last.or(file.last.take());
                }
            }
            Err(reason) => {
                file.hole = true;
                told.failed(Some(key), count, reason);
            }
        }
    }

    /// What the files have behind the last entry that the store has taken before anything was lost; all of the session's
    /// own transcript, if it has taken none of that.
    async fn untold(
        &self,
        session_id: Option<String>,
        mut taken: TakenOf,
    ) -> Vec<(String, Vec<TranscriptEntry>)> {
        let (projects, cwd) = (self.projects.clone(), self.cwd.clone());
        let looking = blocking(move || {
            if let Some(id) = session_id {
                let main = projects.join(key_of_path(&canonical(&cwd))).join(format!("{id}.jsonl"));
                taken.entry(main.to_string_lossy().into_owned()).or_default();
            }
            let mut untold = Vec::new();
            for (path, Taken { last, .. }) in taken {
                let (mut entries, mut behind) = (Vec::new(), last.is_none());
                let looked = each_line(Path::new(&path), |_, _, line| {
                    let Ok(entry) = TranscriptEntry::parse(line) else { return Ok(false) };
                    match entry.uuid() {
                        // Without an id it could come twice, and nothing hangs at it.
                        None => {}
                        Some(uuid) if !behind => behind = last.as_deref() == Some(uuid),
                        Some(_) => entries.push(entry),
                    }
                    Ok(true)
                });
                match looked {
                    Ok(_) if !entries.is_empty() => untold.push((path, entries)),
                    Ok(_) => {}
                    // It was never written, or has gone.
                    Err(error) => tracing::debug!(%error, "a transcript was not looked at"),
                }
            }
            Ok(untold)
        });
        looking.await.unwrap_or_default()
    }

    fn next(&self) -> Option<Batch> {
        let queue = &mut *self.queue();
        if queue.wanted <= queue.settled && queue.lost.is_empty() {
            // Those who wait for what is settled already.
            let settled = queue.settled;
            queue.waiting.retain(|(at, _)| *at > settled);
            return None;
        }
        let eager = self.options.flush == StoreFlush::Eager;
        let count = match queue.wanted.saturating_sub(queue.settled) {
            0 => 0,
            _ if eager => 1,
            // What has come meanwhile goes along, but for what the next CLI tells: the store needs what it hangs at first.
            _ => {
                let catch_up = queue.frames.iter().position(|frame| frame.catch_up.is_some());
                catch_up.map_or(queue.frames.len(), |at| at + 1)
            }
        };
        let frames: Vec<_> = queue.frames.drain(..count).collect();
        queue.entries -= frames.iter().map(|frame| frame.entries.len()).sum::<usize>();
        queue.in_flight = frames.iter().map(Frame::pending).collect();
        queue.busy = true;
        Some(Batch {
            up_to: queue.settled + frames.len() as u64,
            lost: std::mem::take(&mut queue.lost),
            frames,
        })
    }

    /// The store has taken or refused what came up to here. Whoever waits for that goes on when all is told that was lost
    /// before they began to wait.
    async fn settle(&self, up_to: u64, taken: &mut TakenOf, told: &Telling) {
        let (done, lost): (Vec<(u64, Waiter)>, _) = {
            let queue = &mut *self.queue();
            queue.settled = queue.settled.max(up_to);
            queue.in_flight.clear();
            queue.bytes = queue.frames.iter().map(|frame| frame.bytes).sum();
            let (done, waiting) = queue.waiting.drain(..).partition(|(at, _)| *at <= up_to);
            queue.waiting = waiting;
            (done, std::mem::take(&mut queue.lost))
        };
        self.tell(lost, taken, told).await;
        self.queue().busy = false;
        drop(done);
    }

    /// Gives the store entries of one key, several times if it must be. The error says what the last try said.
    async fn append(&self, key: &SessionKey, entries: Arc<[TranscriptEntry]>) -> Result<(), String> {
        let mut failure = String::new();
        let pauses = self.options.retry_pauses.iter();
        for pause in std::iter::once(None).chain(pauses.map(Some)) {
            if let Some(pause) = pause {
                tokio::time::sleep(*pause).await;
            }
            let (store, key, entries) = (self.store.clone(), key.clone(), entries.clone());
            // What the error says is the store's code, too, and so is its drop.
            let trying = async move { store.append(&key, &entries).await.map_err(|error| error.to_string()) };
            let mut task = Task::spawn(AssertUnwindSafe(trying).catch_unwind());
            failure = match tokio::time::timeout(self.options.append, task.join()).await {
                Ok(Some(Ok(Ok(())))) => return Ok(()),
                Ok(Some(Ok(Err(error)))) => error,
                Ok(Some(Err(panic))) => format!("it panicked: {}", panic_text(&*panic)),
                Ok(None) => "its task was taken away".to_owned(),
                // It may still come to its end, and a second one beside it would be out of order.
                Err(_) => {
                    return Err(format!(
                        "an append took more than {:?} (`store.append`)",
                        self.options.append
                    ));
                }
            };
            tracing::debug!(reason = failure, "an append to the session store failed");
        }
        Err(failure)
    }

    /// The key of a transcript; `None` for a file that is none of this session's.
    async fn key(&self, path: &str) -> Option<SessionKey> {
        let path = Path::new(path);
        let below = match path.strip_prefix(&self.projects) {
            Ok(below) => below.to_owned(),
            // One of the two may have been resolved.
            Err(_) => {
                let projects = self.projects.clone();
                let resolve = || async {
                    let resolved = projects.clone();
                    let resolving = tokio::task::spawn_blocking(move || std::fs::canonicalize(resolved));
                    resolving.await.ok().and_then(Result::ok).unwrap_or(projects)
                };
                path.strip_prefix(self.resolved.get_or_init(resolve).await).ok()?.to_owned()
            }
        };
        key_of(&below, self.options.project_key.as_deref())
    }

    /// Says of everything that is left that the store will not get it.
    pub(crate) fn give_up(&self, shared: &Arc<Shared>, conversation: Option<&ActorRef<ConversationMessage>>) {
        let (lost, waiting) = {
            let queue = &mut *self.queue();
            let mut left = std::mem::take(&mut queue.in_flight);
            left.extend(queue.frames.drain(..).map(|frame| frame.pending()));
            let mut lost = std::mem::take(&mut queue.lost);
            for (path, entries) in left {
                let reason = match &path {
                    Some(_) if entries == 0 => continue,
                    Some(_) => "the session stopped before the store had taken them (`store.stop`)",
                    None => {
                        "the session stopped before the transcripts were searched for what the CLI had not told (`store.stop`)"
                    }
                };
                lose(&mut lost, Lost { path, entries, reason: reason.to_owned() });
            }
            (queue.settled, queue.entries, queue.bytes, queue.busy) = (queue.accepted, 0, 0, false);
            (lost, std::mem::take(&mut queue.waiting))
        };
        for Lost { path, entries, reason } in lost {
            let folders = [Some(&self.projects), self.resolved.get()];
            let key = path.as_ref().and_then(|path| {
                let path = Path::new(path);
                let below = folders.iter().flatten().find_map(|folder| path.strip_prefix(folder).ok())?;
                key_of(below, self.options.project_key.as_deref())
            });
            match conversation {
                Some(conversation) => {
                    let told = Telling { shared: shared.clone(), conversation: conversation.clone() };
                    told.failed(key, entries, reason);
                }
                None => shared.emit(Event::MirrorFailed { key, entries, error: reason }),
            }
        }
        drop(waiting);
    }
}

/// Who is told of what was lost.
struct Telling {
    shared: Arc<Shared>,
    conversation: ActorRef<ConversationMessage>,
}

impl Telling {
    fn failed(&self, key: Option<SessionKey>, entries: usize, error: String) {
        tracing::warn!(parent: &self.shared.span, ?key, entries, error, "entries were not mirrored");
        let session_id = self.shared.vitals.borrow().session_id.clone();
        let message = json!({
            "type": "system",
            "subtype": "mirror_error",
            "uuid": uuid::Uuid::new_v4().to_string(),
            "session_id": session_id.or_else(|| Some(key.as_ref()?.session_id.clone())),
            "error": error,
            "key": key,
        });
        self.shared.emit(Event::MirrorFailed { key, entries, error });
        if let Ok(message) = Message::parse(&message.to_string()) {
            // A conversation that has ended takes the session with it.
            self.conversation.cast(ConversationMessage::Told(message)).ok();
        }
    }
}

/// The key of a file, by its path below the folder of all transcripts:
///
/// ```text
///   <project>/<session>.jsonl               the session
///   <project>/<session>/<subpath>.jsonl     a part of it
/// ```
fn key_of(below: &Path, project_key: Option<&str>) -> Option<SessionKey> {
    let mut parts = Vec::new();
    for part in below.components() {
        let Component::Normal(part) = part else { return None };
        parts.push(part.to_str()?);
    }
    let (project, rest) = parts.split_first()?;
    let (file, folders) = rest.split_last()?;
    let name = file.strip_suffix(".jsonl").filter(|name| !name.is_empty())?;
    let project = project_key.unwrap_or(project);
    Some(match folders.split_first() {
        None => SessionKey::new(project, name),
        Some((session, folders)) => {
            let subpath: Vec<_> = folders.iter().copied().chain([name]).collect();
            SessionKey::new(project, *session).with_subpath(subpath.join("/"))
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_tells_its_key() {
        let key = |path: &str| key_of(Path::new(path), None).map(|key| key.to_string());
        assert_eq!(key("-p/s.jsonl").as_deref(), Some("-p/s"));
        assert_eq!(key("-p/s/subagents/agent-1.jsonl").as_deref(), Some("-p/s/subagents/agent-1"));
        assert_eq!(key("-p/s/subagents/w/r/agent-1.jsonl").as_deref(), Some("-p/s/subagents/w/r/agent-1"));
        for none in ["", "-p", "-p/s", "-p/s.json", "../x/s.jsonl", "/abs/s.jsonl", "-p/.jsonl"] {
            assert_eq!(key(none), None, "{none}");
        }
        let scoped = key_of(Path::new("-p/s/a/b.jsonl"), Some("tenant/1")).unwrap();
        assert_eq!(scoped, SessionKey::new("tenant/1", "s").with_subpath("a/b"));
    }

    #[test]
    fn what_is_lost_has_a_bound() {
        let mut lost = Vec::new();
        for number in 0..LOST * 3 {
            for _ in 0..2 {
                let path = Some(format!("{number}"));
                lose(&mut lost, Lost { path, entries: 1, reason: "r".into() });
            }
        }
        assert_eq!(lost.len(), LOST + 1);
        assert_eq!((lost[0].entries, lost[LOST].entries), (2, LOST * 4));
    }

    proptest! {
        #[test]
        fn a_key_names_its_file_and_no_other(
            parts in proptest::collection::vec("[a-zA-Z0-9_-]{1,8}", 2..6),
            others in proptest::collection::vec("[a-zA-Z0-9_-]{1,8}", 2..6),
        ) {
            let path = |parts: &[String]| PathBuf::from(format!("{}.jsonl", parts.join("/")));
            let key = key_of(&path(&parts), None).unwrap();
            prop_assert_eq!(key.to_string(), parts.join("/"));
            prop_assert_eq!(key == key_of(&path(&others), None).unwrap(), parts == others);
        }

        #[test]
        fn nothing_outside_has_a_key(path in "(\\.\\./|/|[a-c./]){1,8}") {
            if let Some(key) = key_of(Path::new(&path), None) {
                let named = key.to_string();
                prop_assert!(!named.split('/').any(|part| part == ".." || part.is_empty()), "{named}");
            }
        }
    }
}
