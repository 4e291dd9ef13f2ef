//! What a test tells when it fails: its seed, the events and the wire of its sessions, the processes that live, and the
//! command that runs it again.
//!
//! Helpers that start a session or draw a seed say so here, on the thread of their test. A panic hook prints what they
//! noted, behind the failure itself. Panics in spawned tasks print nothing: tests cause them on purpose, and if they are
//! not caught, the test fails with a panic of its own.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::expect_used, reason = "in the helpers of tests, too")]
#![allow(
    clippy::print_stderr,
    reason = "only `eprintln!` is shown with the failed test and not with the others"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{Debug, Display, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use greenroom::transport::{Connection, Conversations, Launch, Transport};
use greenroom::{Event, SessionBuilder};
use greenroom_testkit::Recorder;

/// Number of the newest notes that are kept, for tests with many sessions.
const NOTES: usize = 8;
/// Number of the newest lines of the wire that are told, and their length in characters.
const LINES: (usize, usize) = (200, 400);

thread_local! {
    static NOTES_OF_TEST: RefCell<Notes> = RefCell::default();
}

#[derive(Default)]
struct Notes {
    seed: Option<String>,
    notes: VecDeque<Note>,
}

struct Note {
    title: String,
    tell: Box<Tell>,
}

/// Returns the text of a note, and adds the processes that it names.
type Tell = dyn FnMut(&mut BTreeSet<u32>) -> String;

/// The test draws from this seed. It takes another one from the variable.
pub(crate) fn seed(variable: &str, seed: impl Display) {
    with_notes(|notes| notes.seed = Some(format!("{variable}={seed}")));
}

/// Notes something that is told if the test fails.
pub(crate) fn note(title: impl Into<String>, mut tell: impl FnMut() -> String + 'static) {
    keep(Note { title: title.into(), tell: Box::new(move |_| tell()) });
}

/// Tells the items that `next` has until the test fails, such as events.
pub(crate) fn received<T: Debug>(
    title: impl Into<String>,
    mut next: impl AsyncFnMut() -> Option<T> + 'static,
) {
    note(title, move || {
        let mut told = String::new();
        while let Some(item) = ready(next()) {
            writeln!(told, "{item:?}").ok();
        }
        told
    });
}

/// Tells the events, the wire and the processes of the session that this builder starts on this transport.
pub(crate) fn watched(builder: SessionBuilder, transport: impl Transport) -> SessionBuilder {
    let slot = Slot(Arc::new(Mutex::new(Some(Arc::new(transport)))));
    let recorder = Recorder::around(slot.clone());
    let mut builder = builder.transport(Watched { slot, recorder: recorder.clone() });
    keep(Note { title: "wire of a session".to_owned(), tell: Box::new(move |_| wire(&recorder)) });
    let mut events = builder.events();
    let tell = move |pids: &mut BTreeSet<u32>| {
        let mut told = String::new();
        while let Some(event) = ready(events.next()) {
            if let Event::CliStarted { pid: Some(pid), .. } = &event {
                pids.insert(*pid);
            }
            writeln!(told, "{event:?}").ok();
        }
        told
    };
    keep(Note { title: "events of the session".to_owned(), tell: Box::new(tell) });
    builder
}

/// The transport of a watched session. With it goes the transport under the recorder, whose recording is kept: tests see
/// that a transport was dropped.
struct Watched {
    slot: Slot,
    recorder: Recorder,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.slot.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Transport for Watched {
    fn conversations(&self) -> Conversations {
        self.recorder.conversations()
    }

    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        self.recorder.open(launch)
    }
}

#[derive(Clone)]
struct Slot(Arc<Mutex<Option<Arc<dyn Transport>>>>);

impl Slot {
    fn transport(&self) -> Arc<dyn Transport> {
        let transport = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        transport.expect("its session has it")
    }
}

impl Transport for Slot {
    fn conversations(&self) -> Conversations {
        self.transport().conversations()
    }

    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        self.transport().open(launch)
    }
}

/// What is there already.
fn ready<T>(next: impl Future<Output = Option<T>>) -> Option<T> {
    match pin!(next).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

fn keep(note: Note) {
    with_notes(|notes| {
        notes.notes.push_back(note);
        if notes.notes.len() > NOTES {
            notes.notes.pop_front();
        }
    });
}

fn wire(recorder: &Recorder) -> String {
    let lines = recorder.transcript().to_string();
    let (newest, length) = LINES;
    let count = lines.lines().count();
    let mut told = String::new();
    if let Some(more) = count.checked_sub(newest + 1) {
        writeln!(told, "… {} lines before", more + 1).ok();
    }
    for line in lines.lines().skip(count.saturating_sub(newest)) {
        let cut: String = line.chars().take(length).collect();
        writeln!(told, "{cut}{}", if cut.len() < line.len() { "…" } else { "" }).ok();
    }
    told
}

/// This process and those below it, and the processes in the groups and sessions of `pids`, a line each.
fn processes(pids: &BTreeSet<u32>) -> String {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = listed.filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // `pid (name) state parent group session …`; the name may hold anything.
        let (pid, rest) = stat.split_once(' ')?;
        let (name, rest) = rest.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.to_owned();
        let numbers: Vec<u32> = fields.take(3).flat_map(str::parse).collect();
        let [parent, group, session] = numbers[..] else { return None };
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let line: String = line.replace(['\0', '\n'], " ").chars().take(200).collect();
        let told = format!("{pid} {state} parent {parent}, group {group}: {}) {line}", name.trim_start());
        Some((pid.parse::<u32>().ok()?, (parent, [group, session], told)))
    });
    let all: BTreeMap<_, _> = all.collect();
    let mut ours: BTreeSet<u32> = pids.iter().copied().chain([std::process::id()]).collect();
    loop {
        let before = ours.len();
        for (pid, (parent, groups, _)) in &all {
            if ours.contains(parent) || groups.iter().any(|group| pids.contains(group)) {
                ours.insert(*pid);
            }
        }
        if ours.len() == before {
            break;
        }
    }
    let told = all.iter().filter(|(pid, _)| ours.contains(pid)).map(|(_, (.., told))| told);
    told.fold(String::new(), |all, told| all + told + "\n")
}

fn with_notes(change: impl FnOnce(&mut Notes)) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            tell(panic);
            // The body of a test is not a task.
            if tokio::task::try_id().is_none() {
                print();
            }
        }));
    });
    NOTES_OF_TEST.with_borrow_mut(change);
}

/// Prints everything that was noted by the test of this thread.
fn print() {
    let told = NOTES_OF_TEST.try_with(|notes| {
        let Ok(mut notes) = notes.try_borrow_mut() else { return };
        if notes.seed.is_none() && notes.notes.is_empty() {
            return;
        }
        let mut pids = BTreeSet::new();
        for note in &mut notes.notes {
            eprintln!("--- {} ---\n{}", note.title, (note.tell)(&mut pids));
        }
        eprintln!("--- processes ---\n{}", processes(&pids));
        let seed = notes.seed.as_deref().map(|seed| format!("{seed} ")).unwrap_or_default();
        let (package, binary) = (env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        eprintln!("--- replay ---\n{seed}cargo test -p {package} --test {binary} -- --exact {test}");
    });
    if told.is_err() {
        eprintln!("the notes of the test are gone: its thread ends");
    }
}
