//! The folder by which a test and the processes of its fake CLI know of each other.
//!
//! | file | written by | what it is |
//! |---|---|---|
//! | `<n>.json` | the test | what process `n` is to play, and its arguments |
//! | `position.json` | the processes | how far the script has been played |
//! | `alive` | – | locked by every process that lives |
//!
//! Files, and not variables of the environment, because a variable has a largest size.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use greenroom::transport::Launch;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::behaviour::Behaviour;
use crate::cli::script::Script;
use crate::cli::seen::Position;

/// The variable that names what a process is to play: its file in the folder.
pub(super) const HOME: &str = "GREENROOM_FAKE_CLI";

/// The line after which a process is the CLI; what stands before it was written by a test harness.
pub(super) const BEGINS: &str = "here the fake CLI of greenroom begins";

/// Settings shared by all processes of a fake CLI.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) script: Script,
    pub(super) old: bool,
    pub(super) behaviour: Behaviour,
    pub(super) times: Option<u64>,
}

/// Settings of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) script: Script,
    pub(super) old: bool,
    pub(super) behaviour: Behaviour,
    pub(super) args: Vec<String>,
    pub(super) epoch: u64,
}

/// The folder, from the side of the test; removed with the last that needs it.
#[derive(Debug)]
pub(super) struct FakeHome {
    folder: TempDir,
    incarnations: AtomicU64,
}

impl FakeHome {
    pub(super) fn new() -> io::Result<Self> {
        // Private: the arguments of a session may hold secrets.
        let owner_only = fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("greenroom-").permissions(owner_only).tempdir()?;
        File::create(folder.path().join("alive"))?;
        Ok(Self { folder, incarnations: AtomicU64::new(0) })
    }

    /// Writes down what the next process is to play. Returns what it is to be told.
    pub(super) fn announce(&self, plan: &Plan, launch: &Launch) -> io::Result<PathBuf> {
        let number = self.incarnations.fetch_add(1, Ordering::Relaxed) + 1;
        let misbehaves = plan.times.is_none_or(|times| number <= times);
        let part = Part {
            script: plan.script.clone(),
            old: plan.old,
            behaviour: if misbehaves { plan.behaviour.clone() } else { Behaviour::default() },
            args: launch.args.clone(),
            epoch: launch.epoch,
        };
        let file = self.folder.path().join(format!("{number}.json"));
        fs::write(&file, serde_json::to_vec(&part)?)?;
        Ok(file)
    }

    pub(super) fn incarnations(&self) -> u64 {
        self.incarnations.load(Ordering::Relaxed)
    }

    pub(super) fn args(&self) -> Vec<Vec<String>> {
        let part = |number| -> Option<Part> {
            serde_json::from_slice(&fs::read(self.folder.path().join(format!("{number}.json"))).ok()?).ok()
        };
        (1..=self.incarnations()).filter_map(part).map(|part| part.args).collect()
    }

    pub(super) fn position(&self) -> Position {
        position(self.folder.path())
    }

    pub(super) async fn gone(&self) {
        let (gone, told) = oneshot::channel();
        let alive = File::open(self.folder.path().join("alive"));
        // On a thread of its own, for which no runtime waits if a test fails.
        std::thread::spawn(move || {
            // Without the file there is nobody either.
            alive.and_then(|alive| alive.lock()).ok();
            // The test may have given up.
            gone.send(()).ok();
        });
        told.await.ok();
    }
}

fn position(folder: &Path) -> Position {
    let read = fs::read(folder.join("position.json")).ok();
    read.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// The folder, seen by a process of the fake CLI.
pub(super) struct Visit {
    folder: PathBuf,
    saved: usize,
}

impl Visit {
    /// Reads what is to be played, and stays on the list of the living, with all that it starts, until it ends.
    pub(super) fn pay(file: &Path) -> io::Result<(Self, Part)> {
        let folder = file.parent().unwrap_or(file).to_owned();
        let alive = File::open(folder.join("alive"))?;
        alive.lock_shared()?;
        super::system::inherited(&alive)?;
        std::mem::forget(alive);
        let part = serde_json::from_slice(&fs::read(file)?)?;
        Ok((Self { folder, saved: usize::MAX }, part))
    }

    pub(super) fn position(&self) -> Position {
        position(&self.folder)
    }

    /// Writes down how far the script was played, in one step.
    pub(super) fn save(&mut self, position: &Position) -> io::Result<()> {
        let now = position.next + position.results.len();
        if std::mem::replace(&mut self.saved, now) == now {
            return Ok(());
        }
        let new = self.folder.join("position.new");
        fs::write(&new, serde_json::to_vec(position)?)?;
        fs::rename(new, self.folder.join("position.json"))
    }
}
