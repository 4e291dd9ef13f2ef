//! A disk in memory, for tests: it can be full or read-only, and its power can be cut at any write.

use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;
use tokio::sync::OwnedMutexGuard;

use super::error::in_use;
use super::file::{OpenFile, patiently};
use super::storage::{FileChange, Raw};
use crate::registry::Result;

/// A disk writes a sector whole or not at all.
const SECTOR: usize = 512;

/// A disk in memory for the file of a [`LocalBackend`](crate::backend::LocalBackend), to test what your service does
/// when the disk fails or the power is cut. Its clones are the same disk.
///
/// The disk keeps each write and each sync in memory, for the short life of a test, so a test can look at what a power
/// cut at any moment leaves:
///
/// ```
/// use std::io::ErrorKind;
/// use std::time::{Duration, SystemTime};
///
/// use greenroom::Session;
/// use greenroom_fleet::backend::LocalBackend;
/// use greenroom_fleet::testkit::SimulatedDisk;
/// use greenroom_fleet::{Fleet, FleetPrompt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let service = |backend: LocalBackend| {
///     Fleet::builder().backend(backend).folder(folder.path()).profile("default", |_| Session::builder()).start()
/// };
/// let disk = SimulatedDisk::new();
/// let fleet = service(LocalBackend::on_disk(&disk).await?).await?;
/// let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
/// let reminder = FleetPrompt::new("Has the lamp arrived?").not_before(tomorrow);
/// let prompt = fleet.tenant("acme")?.session("customer-42")?.prompt(reminder).await?.prompt_id();
/// let accepted = disk.moment();
///
/// disk.fail(ErrorKind::StorageFull);
/// let error = fleet.tenant("acme")?.session("customer-42")?.prompt("And my chair?").await.unwrap_err();
/// assert!(error.to_string().contains("make room on its disk"), "{error}");
///
/// // What was accepted is there after a power cut.
/// let after = disk.after_power_cut(accepted, 7);
/// let fleet = service(LocalBackend::on_disk(&after).await?).await?;
/// assert!(fleet.tenant("acme")?.withdraw(prompt).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<DiskState>>,
    /// The lock of the file.
    lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct DiskState {
    /// The bytes before the first change.
    base: Vec<u8>,
    now: Vec<u8>,
    changes: Vec<FileChange<'static>>,
    /// The error of writes and syncs, and the moment from which on they fail.
    fault: Option<(io::ErrorKind, usize)>,
}

/// Makes a change in the bytes of a disk.
fn apply(change: &FileChange<'_>, bytes: &mut Vec<u8>) {
    match change {
        FileChange::Data(at, data) => put(bytes, size(*at), data),
        FileChange::Length(length) => bytes.resize(size(*length), 0),
        FileChange::Sync => {}
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    bytes.resize(bytes.len().max(at + data.len()), 0);
    bytes[at..at + data.len()].copy_from_slice(data);
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes on the disk now.
    pub fn bytes(&self) -> Vec<u8> {
        self.state().now.clone()
    }

    /// Replaces the bytes, as somebody does who cuts the file or restores it from a backup. They are durable, and the
    /// moments begin anew.
    pub fn replace(&self, bytes: impl Into<Vec<u8>>) {
        let (mut state, base) = (self.state(), bytes.into());
        *state = DiskState { now: base.clone(), base, changes: Vec::new(), fault: state.fault };
    }

    /// Makes writes and syncs fail from now on, for instance with [`StorageFull`](io::ErrorKind::StorageFull). Reads go on.
    pub fn fail(&self, fault: io::ErrorKind) {
        self.fail_at(self.moment(), fault);
    }

    /// Makes writes and syncs fail from a [moment](Self::moment) on.
    pub fn fail_at(&self, moment: usize, fault: io::ErrorKind) {
        self.state().fault = Some((fault, moment));
    }

    /// Lets writes pass again.
    pub fn mend(&self) {
        self.state().fault = None;
    }

    /// The number of writes and syncs so far. Those that failed do not count.
    pub fn moment(&self) -> usize {
        self.state().changes.len()
    }

    /// The moments right after each sync so far.
    pub fn syncs(&self) -> Vec<usize> {
        let state = self.state();
        let synced =
            |(at, change): (usize, &FileChange<'_>)| matches!(change, FileChange::Sync).then_some(at + 1);
        state.changes.iter().enumerate().filter_map(synced).collect()
    }

    /// Another disk, as a power cut at a [moment](Self::moment) of this one leaves it: everything before the last sync
    /// is there, and of the writes after it a part that the seed chooses, sector by sector. Seed 0 keeps none of them.
    /// A length that is not kept takes the data behind it along.
    ///
    /// # Panics
    /// If the moment has not come yet.
    pub fn after_power_cut(&self, moment: usize, seed: u64) -> Self {
        let state = self.state();
        let changes = &state.changes[..moment];
        let synced =
            changes.iter().rposition(|change| matches!(change, FileChange::Sync)).map_or(0, |at| at + 1);
        let mut bytes = state.base.clone();
        changes[..synced].iter().for_each(|change| apply(change, &mut bytes));
        let mut random = fastrand::Rng::with_seed(seed);
        let mut is_kept = || seed != 0 && random.bool();
        for change in &changes[synced..] {
            let FileChange::Data(start, data) = change else {
                if is_kept() {
                    apply(change, &mut bytes);
                }
                continue;
            };
            let start = size(*start);
            let mut at = start;
            while at < start + data.len() {
                let end = ((at / SECTOR + 1) * SECTOR).min(start + data.len());
                let there = end.min(bytes.len()).max(at);
                if is_kept() {
                    put(&mut bytes, at, &data[at - start..there - start]);
                }
                at = end;
            }
        }
        let after = Self::new();
        after.replace(bytes);
        after
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: FileChange<'static>) -> io::Result<()> {
        let mut state = self.state();
        if let Some((fault, from)) = state.fault
            && state.changes.len() >= from
        {
            return Err(fault.into());
        }
        apply(&change, &mut state.now);
        state.changes.push(change);
        Ok(())
    }
}

/// The disk as redb sees it. A type of its own, so that no trait of redb is part of the public API.
#[derive(Debug)]
pub(super) struct Platter(pub(super) SimulatedDisk);

/// An offset or a length. The disk is in memory, so it fits.
fn size(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

impl StorageBackend for Platter {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.state().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.state();
        let bytes = state.now.get(size(offset)..).and_then(|bytes| bytes.get(..out.len()));
        out.copy_from_slice(bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.change(FileChange::Length(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.change(FileChange::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.change(FileChange::Data(offset, Cow::Owned(data.to_vec())))
    }
}

/// The file of a backend on a simulated disk.
pub(super) struct DiskFile {
    disk: SimulatedDisk,
    held: Option<(Raw, OwnedMutexGuard<()>)>,
}

impl DiskFile {
    pub(super) fn on(disk: &SimulatedDisk) -> Self {
        Self { disk: disk.clone(), held: None }
    }
}

impl OpenFile for DiskFile {
    fn shown(&self) -> String {
        "on the simulated disk".to_owned()
    }

    fn raw(&mut self) -> Result<Raw> {
        if let Some((raw, _)) = &self.held {
            return Ok(raw.clone());
        }
        let lock = || self.disk.lock.clone().try_lock_owned().map_err(|_| in_use(&self.shown()));
        let (raw, lock): (Raw, _) = (Arc::new(Platter(self.disk.clone())), patiently(lock)?);
        self.held = Some((raw.clone(), lock));
        Ok(raw)
    }

    fn cache(&self) -> Option<usize> {
        // Every read and write reaches the disk.
        Some(0)
    }
}
