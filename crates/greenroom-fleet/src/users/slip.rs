//! The slip of a user: a file named by the user's id. It is locked while a session holds the user, and contains the id of the session's
//! conversation until the user is clean.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::error::FilesError;
use crate::files::owner::Changed;

/// Most waits for the next tick of the clock of files, of a millisecond each.
const TICKS: u32 = 50;

/// A locked slip.
pub(super) struct Slip(File);

/// Creates the folder of the slips.
pub(super) fn create_folder(folder: &Path) -> Result<(), FilesError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(|error| FilesError::of("create the folder", folder, error))
}

/// The session in a user's slip, which somebody else may have locked.
pub(super) fn session_of(folder: &Path, uid: u32) -> io::Result<Option<Uuid>> {
    match File::open(folder.join(uid.to_string())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        slip => read(&mut slip?),
    }
}

impl Slip {
    /// Locks the slip of a user. `None`: another process has locked it.
    pub(super) fn take(folder: &Path, uid: u32) -> io::Result<Option<Self>> {
        let path = folder.join(uid.to_string());
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The session that holds the user, or that held it when its service was killed.
    pub(super) fn session(&mut self) -> io::Result<Option<Uuid>> {
        read(&mut self.0)
    }

    /// Writes a session into an empty slip, durably: after a power cut its folder may be open. Returns a moment that is later than all
    /// changes of files before this call.
    pub(super) fn write(&mut self, session: Uuid) -> io::Result<Changed> {
        self.empty()?;
        self.0.write_all(session.to_string().as_bytes())?;
        let before = self.changed()?;
        self.0.sync_data()?;
        // The clock of file times ticks every few milliseconds.
        for _ in 0..TICKS {
            self.0.set_modified(SystemTime::now())?;
            let now = self.changed()?;
            if now > before {
                return Ok(now);
            }
            tick();
        }
        // File times are whole seconds here, so files that the service creates in this second count as earlier ones.
        Ok((before.0 + 1, 0))
    }

    fn changed(&self) -> io::Result<Changed> {
        let found = self.0.metadata()?;
        Ok((found.ctime(), found.ctime_nsec()))
    }

    pub(super) fn empty(&mut self) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.rewind()
    }
}

impl Drop for Slip {
    fn drop(&mut self) {
        // Unlock explicitly: a child that another thread forks now keeps a copy of the file until its exec. An error: closing unlocks, too.
        self.0.unlock().ok();
    }
}

#[expect(clippy::disallowed_methods, reason = "a blocking thread, and the clock of files tells no event")]
fn tick() {
    std::thread::sleep(Duration::from_millis(1));
}

fn read(slip: &mut File) -> io::Result<Option<Uuid>> {
    let mut text = String::new();
    slip.rewind()?;
    slip.take(64).read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    let spoilt = |_| {
        io::Error::other("the slip of the user is spoilt: end the user's processes, then remove the file")
    };
    text.parse().map(Some).map_err(spoilt)
}
