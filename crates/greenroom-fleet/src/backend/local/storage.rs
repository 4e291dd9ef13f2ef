//! The storage below a database: nothing is written to a file before it has proven to be a fleet's.
//!
//! redb writes to a file while it opens it, also to one that turns out to be of another version or of another program.
//! So the changes of an opening wait in memory. They reach the file in their order, with their syncs, once the database
//! is accepted.
//!
//! Each database has a storage of its own. The file below it stays open, and locked, while databases come and go.

use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use redb::StorageBackend;

/// A file, or the disk of a test.
pub(super) type Raw = Arc<dyn StorageBackend>;

/// The storage of one database. `None`: the database has failed, and may not reach the file any more.
#[derive(Clone, Debug)]
pub(super) struct Storage(Arc<RwLock<Option<Opened>>>);

/// A file with a database in it.
#[derive(Debug)]
struct Opened {
    raw: Raw,
    /// The changes of an opening. `None`: the database is accepted, and its changes reach the file.
    waiting: Option<Mutex<Vec<FileChange<'static>>>>,
}

/// A change of a file.
#[derive(Debug)]
pub(super) enum FileChange<'a> {
    /// These bytes are written at an offset.
    Data(u64, Cow<'a, [u8]>),
    /// The file gets this length.
    Length(u64),
    /// All changes so far are made durable.
    Sync,
}

impl Storage {
    pub(super) fn on(raw: Raw) -> Self {
        Self(Arc::new(RwLock::new(Some(Opened { raw, waiting: Some(Mutex::default()) }))))
    }

    /// The database is a fleet's: lets the changes of its opening reach the file, and all later ones.
    pub(super) fn accept(&self) -> io::Result<()> {
        let mut opened = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // After an error no further change may follow on the missing one.
        let Some(Opened { raw, waiting: Some(waiting) }) = opened.take() else { return Ok(()) };
        for change in waiting.into_inner().unwrap_or_else(PoisonError::into_inner) {
            change.reach(&*raw)?;
        }
        *opened = Some(Opened { raw, waiting: None });
        Ok(())
    }

    /// Keeps the database from the file, and lets go of the file.
    pub(super) fn cut_off(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn with<T>(&self, run: impl FnOnce(&Opened) -> io::Result<T>) -> io::Result<T> {
        let opened = self.0.read().unwrap_or_else(PoisonError::into_inner);
        run(opened.as_ref().ok_or_else(|| io::Error::other("the database has failed, and was closed"))?)
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        self.with(Opened::len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|opened| opened.read(offset, out))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.with(|opened| opened.change(FileChange::Length(length)))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|opened| opened.change(FileChange::Sync))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|opened| opened.change(FileChange::Data(offset, data.into())))
    }

    /// The file stays open, and locked: the next database is opened on it.
    fn close(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Opened {
    fn waiting(&self) -> Option<MutexGuard<'_, Vec<FileChange<'static>>>> {
        self.waiting.as_ref().map(|waiting| waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: FileChange<'_>) -> io::Result<()> {
        let Some(mut waiting) = self.waiting() else { return change.reach(&*self.raw) };
        waiting.push(match change {
            FileChange::Data(offset, data) => FileChange::Data(offset, Cow::Owned(data.into_owned())),
            FileChange::Length(length) => FileChange::Length(length),
            FileChange::Sync => FileChange::Sync,
        });
        Ok(())
    }

    /// The length of the file once the changes that wait have reached it.
    fn len(&self) -> io::Result<u64> {
        let waiting = self.waiting();
        let changed = |length: u64, change: &FileChange<'_>| match change {
            FileChange::Data(offset, data) => length.max(offset + data.len() as u64),
            FileChange::Length(length) => *length,
            FileChange::Sync => length,
        };
        Ok(waiting.as_deref().into_iter().flatten().fold(self.raw.len()?, changed))
    }

    /// Reads from the file, and from the changes that wait.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.waiting.is_none() {
            return self.raw.read(offset, out);
        }
        let length = self.len()?;
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= length);
        let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let part = |from: u64, to: u64| (from - offset) as usize..(to - offset) as usize;
        out.fill(0);
        let there = self.raw.len()?.clamp(offset, end);
        if offset < there {
            self.raw.read(offset, &mut out[part(offset, there)])?;
        }
        for change in self.waiting().as_deref().into_iter().flatten() {
            match change {
                FileChange::Data(at, data) => {
                    let (from, to) = ((*at).max(offset), (at + data.len() as u64).min(end));
                    if from < to {
                        out[part(from, to)].copy_from_slice(&data[(from - at) as usize..(to - at) as usize]);
                    }
                }
                FileChange::Length(length) => out[part((*length).clamp(offset, end), end)].fill(0),
                FileChange::Sync => {}
            }
        }
        Ok(())
    }
}

impl FileChange<'_> {
    /// Makes the change in a file. A length is durable at once: redb does not open a file that is shorter than its header says, and a
    /// power cut may keep a header that was written later and lose the length.
    fn reach(&self, raw: &dyn StorageBackend) -> io::Result<()> {
        match self {
            FileChange::Data(offset, data) => raw.write(*offset, data),
            FileChange::Length(length) => raw.set_len(*length).and_then(|()| raw.sync_data()),
            FileChange::Sync => raw.sync_data(),
        }
    }
}
