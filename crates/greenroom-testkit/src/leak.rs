//! Whether anything is left behind.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Compares what is open before and after a test: tasks of this runtime, and on Linux also file descriptors and child
/// processes of this process.
///
/// Tests that run at the same time in one process open files too. [`tasks`](LeakCheck::tasks) looks at the tasks of
/// this test's own runtime only; [`all`](LeakCheck::all) is for a test that has its process for itself.
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
    before: There,
    processes: bool,
}

/// Open things at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct There {
    tasks: usize,
    /// File descriptors, with their targets.
    files: BTreeMap<u32, String>,
    /// Child processes, with their names.
    children: BTreeMap<u32, String>,
}

/// Tasks, file descriptors and processes that were left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    before: There,
    after: There,
}

impl LeakCheck {
    /// Looks at the tasks of the runtime on which it is called.
    pub fn tasks() -> Self {
        Self { before: There::now(false), processes: false }
    }

    /// Looks at file descriptors and child processes as well.
    pub fn all() -> Self {
        Self { before: There::now(true), processes: true }
    }

    /// Waits until everything is as it was before, at most so long on the clock of tokio.
    ///
    /// # Errors
    /// Waits up to `limit` until nothing is left, else returns what is left.
    pub async fn check(&self, limit: Duration) -> Result<(), Leak> {
        let deadline = Instant::now() + limit;
        loop {
            let after = There::now(self.processes);
            let leak = Leak { before: self.before.clone(), after };
            if leak.is_none() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(leak);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// [`check`](LeakCheck::check) that panics with a list of what is left.
    ///
    /// # Panics
    /// When something was left behind.
    pub async fn assert_none(&self, limit: Duration) {
        if let Err(leak) = self.check(limit).await {
            panic!("{leak}");
        }
    }
}

impl There {
    fn now(processes: bool) -> Self {
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let (files, children) = if processes { (files(), children()) } else { Default::default() };
        Self { tasks, files, children }
    }
}

impl Leak {
    fn is_none(&self) -> bool {
        self.after.tasks <= self.before.tasks && self.files().is_empty() && self.children().is_empty()
    }

    fn files(&self) -> Vec<String> {
        more(&self.before.files, &self.after.files)
    }

    fn children(&self) -> Vec<String> {
        more(&self.before.children, &self.after.children)
    }
}

fn more(before: &BTreeMap<u32, String>, after: &BTreeMap<u32, String>) -> Vec<String> {
    let new = after.iter().filter(|(number, _)| !before.contains_key(*number));
    new.map(|(number, name)| format!("{number} ({name})")).collect()
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("left behind:")?;
        if self.after.tasks > self.before.tasks {
            write!(f, " {} tasks, where there were {};", self.after.tasks, self.before.tasks)?;
        }
        for (name, new) in [("file descriptors", self.files()), ("child processes", self.children())] {
            if !new.is_empty() {
                write!(f, " {name} {};", new.join(", "))?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Leak {}

#[cfg(target_os = "linux")]
fn files() -> BTreeMap<u32, String> {
    let Ok(listed) = std::fs::read_dir("/proc/self/fd") else { return BTreeMap::new() };
    listed
        .flatten()
        .filter_map(|entry| {
            // The listing itself is one of them.
            let target = std::fs::read_link(entry.path()).ok()?;
            let target = target.display().to_string();
            (!target.ends_with("/fd")).then_some((entry.file_name().to_str()?.parse().ok()?, target))
        })
        .collect()
}

#[cfg(target_os = "linux")]
fn children() -> BTreeMap<u32, String> {
    let parent = std::process::id().to_string();
    let Ok(listed) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    listed
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // `pid (name) state ppid …`; the name may hold anything.
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
            (rest.split_whitespace().nth(1)? == parent).then(|| (pid, name.to_owned()))
        })
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn files() -> BTreeMap<u32, String> {
    BTreeMap::new()
}

#[cfg(not(target_os = "linux"))]
fn children() -> BTreeMap<u32, String> {
    BTreeMap::new()
}
