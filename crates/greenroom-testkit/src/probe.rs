//! Waits for what a session tells, and says in words what it told instead.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::Session;
use greenroom::report::{Events, Phase};
use greenroom::{Event, Snapshot};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::base::{lock, spawn};

/// Watches a session from a test: waits for its events and its states, with a limit, and asserts their order. When
/// something does not come, the test fails with a list of what came.
///
/// Keeps every event since its creation, and a handle of the session.
///
/// ```
/// use std::time::Duration;
/// use greenroom::report::Phase;
/// use greenroom_testkit::{Fault, Probe, Script, ScriptedCli};
/// use greenroom::{Event, NoArgs, Session, ToolServer};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clock = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
/// let cli = ScriptedCli::play(Script::new());
/// let session = Session::builder().mcp_server(clock).transport(cli.transport()).start().await?;
/// let mut probe = Probe::new(&session);
///
/// session.inject(Fault::KillServer("clock".into()));
/// let limit = Duration::from_secs(5);
/// let event = probe.event("a restart of the clock", limit, |event| matches!(event, Event::ServerRestarted { .. })).await;
/// assert!(matches!(event, Event::ServerRestarted { generation: 2, .. }));
///
/// session.inject(Fault::KillPort);
/// probe.event("another CLI", limit, |event| matches!(event, Event::CliRestarted { .. })).await;
/// probe.phase(Phase::Ready, limit).await;
/// probe.seen_in_order(["server_restarted", "cli_exited", "cli_restarting", "cli_restarted"]);
/// probe.never_seen("failed");
/// session.stop().await?;
/// # greenroom::Result::<()>::Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Probe {
    session: Session,
    seen: Arc<Mutex<Vec<Event>>>,
    /// Number of events so far.
    count: watch::Receiver<usize>,
    /// Where the next search begins.
    next: usize,
    _reading: AbortOnDropHandle<()>,
}

/// Interval between two looks at a state.
const LOOK: Duration = Duration::from_millis(2);

impl Probe {
    /// Watches a session from now on.
    pub fn new(session: &Session) -> Self {
        Self::with_events(session, session.events())
    }

    /// Watches a session with events that were subscribed to before, such as those of
    /// [`SessionBuilder::events`](greenroom::SessionBuilder::events).
    pub fn with_events(session: &Session, mut events: Events) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (counted, count) = watch::channel(0);
        let into = seen.clone();
        let reading = spawn(async move {
            while let Some(event) = events.next().await {
                let mut seen = lock(&into);
                seen.push(event);
                counted.send_replace(seen.len());
            }
        });
        Self { session: session.clone(), seen, count, next: 0, _reading: reading }
    }

    /// The next event for which `fits` is true, after the one that this method returned last. Those before it are
    /// passed over. `what` is said when it does not come.
    ///
    /// # Panics
    /// When it does not come within the limit, or when the session ends before, with the events that came.
    pub async fn event(&mut self, what: &str, limit: Duration, fits: impl Fn(&Event) -> bool) -> Event {
        let from = self.next;
        let search = async {
            let mut at = from;
            loop {
                self.count.mark_unchanged();
                let found = {
                    let seen = lock(&self.seen);
                    let found =
                        seen[at..].iter().position(&fits).map(|found| (at + found, seen[at + found].clone()));
                    at = seen.len();
                    found
                };
                if found.is_some() {
                    return found;
                }
                if self.count.changed().await.is_err() && at == lock(&self.seen).len() {
                    return None;
                }
            }
        };
        match timeout(limit, search).await {
            Ok(Some((at, event))) => {
                self.next = at + 1;
                event
            }
            Ok(None) => panic!("the session ended without {what}. {}", self.told(from)),
            Err(_) => panic!("{what} did not come within {limit:?}. {}", self.told(from)),
        }
    }

    /// Waits until a snapshot fits, and returns it. `what` is said when that does not happen.
    ///
    /// # Panics
    /// When it does not happen within the limit, or when the session ends before, with the last snapshot and the events
    /// that came.
    pub async fn snapshot(&self, what: &str, limit: Duration, fits: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let deadline = Instant::now() + limit;
        loop {
            let snapshot = match self.session.snapshot().await {
                Ok(snapshot) if fits(&snapshot) => return snapshot,
                Ok(snapshot) => snapshot,
                Err(error) => panic!("{what} did not come: {error}. {}", self.told(0)),
            };
            if Instant::now() >= deadline {
                let snapshot = serde_json::to_string_pretty(&snapshot).unwrap_or_default();
                panic!("{what} did not come within {limit:?}. {}\nIt stands so: {snapshot}", self.told(0));
            }
            sleep(LOOK).await;
        }
    }

    /// Waits until the session is in this phase.
    ///
    /// # Panics
    /// As [`snapshot`](Probe::snapshot) does.
    pub async fn phase(&self, phase: Phase, limit: Duration) {
        self.snapshot(&format!("the phase {phase:?}"), limit, |snapshot| snapshot.phase == phase).await;
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.seen).clone()
    }

    /// The names of all events so far, as they are in JSON: `cli_exited` and so on.
    pub fn names(&self) -> Vec<String> {
        lock(&self.seen).iter().map(name).collect()
    }

    /// Asserts that events of these names came in this order, whatever came between them.
    ///
    /// # Panics
    /// With the events that came.
    pub fn seen_in_order<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        let seen = self.names();
        let mut rest = seen.iter();
        let mut before: Option<&str> = None;
        for name in names {
            if !rest.any(|seen| seen == name) {
                let after = before.map(|before| format!(" after {before}")).unwrap_or_default();
                panic!("there is no {name}{after}. {}", self.told(0));
            }
            before = Some(name);
        }
    }

    /// Asserts that no event of this name came so far.
    ///
    /// # Panics
    /// With the events that came.
    pub fn never_seen(&self, unwanted: &str) {
        assert!(!self.names().iter().any(|name| name == unwanted), "there is a {unwanted}. {}", self.told(0));
    }

    fn told(&self, from: usize) -> String {
        let seen = lock(&self.seen);
        if seen[from..].is_empty() {
            return "No event came.".into();
        }
        let line = |event: &Event| format!("\n- {}", serde_json::to_string(event).unwrap_or_default());
        format!("What came:{}", seen[from..].iter().map(line).collect::<String>())
    }
}

fn name(event: &Event) -> String {
    let value = serde_json::to_value(event).unwrap_or_default();
    value["event"].as_str().unwrap_or_default().to_owned()
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("events", &self.names()).finish_non_exhaustive()
    }
}
