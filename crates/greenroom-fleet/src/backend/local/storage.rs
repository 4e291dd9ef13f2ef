//! The storage below a database: nothing is written to a file before it has proven to be a fleet's.
//!
//! redb writes to a file while it opens it, also to one that turns out to be of another version or of another program.
//! So the writes of an opening wait in memory. They reach the file in their order, with their syncs, once the database
//! is accepted.
//!
//! Each database has a storage of its own. The file below it stays open, and locked, while databases come and go.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use redb::StorageBackend;

/// A file, or the disk of a test.
pub(super) type Raw = Arc<dyn StorageBackend>;

/// The storage of one database.
#[derive(Clone, Debug)]
pub(super) struct Storage(Arc<RwLock<Phase>>);

enum Phase {
    /// The database is being opened: its writes wait.
    Opening(Raw, Pending),
    /// Reads and writes go to the file.
    Open(Raw),
    /// The database has failed, and may not reach the file any more.
    Closed,
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Opening(..) => "Opening",
            Phase::Open(_) => "Open",
            Phase::Closed => "Closed",
        })
    }
}

/// The writes of an opening.
struct Pending {
    length: u64,
    writes: Vec<Write>,
}

enum Write {
    Data(u64, Vec<u8>),
    Length(u64),
    Sync,
}

impl Storage {
    pub(super) fn on(raw: Raw) -> io::Result<Self> {
        let length = raw.len()?;
        Ok(Self(Arc::new(RwLock::new(Phase::Opening(raw, Pending { length, writes: Vec::new() })))))
    }

    /// The database is a fleet's: lets the writes of its opening reach the file, and all later ones.
    pub(super) fn accept(&self) -> io::Result<()> {
        let mut phase = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // After an error no further write may follow on the missing one.
        if let Phase::Opening(raw, pending) = std::mem::replace(&mut *phase, Phase::Closed) {
            for write in &pending.writes {
                match write {
                    Write::Data(offset, data) => raw.write(*offset, data)?,
                    Write::Length(length) => raw.set_len(*length).and_then(|()| raw.sync_data())?,
                    Write::Sync => raw.sync_data()?,
                }
            }
            *phase = Phase::Open(raw);
        }
        Ok(())
    }

    /// Keeps the database from the file, and lets go of the file.
    pub(super) fn cut_off(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Phase::Closed;
    }

    /// Reads or writes: on the file, or on the writes that wait.
    fn with<T>(
        &self,
        on_file: impl FnOnce(&dyn StorageBackend) -> io::Result<T>,
        on_pending: impl FnOnce(&dyn StorageBackend, &mut Pending) -> io::Result<T>,
    ) -> io::Result<T> {
        if let Phase::Open(raw) = &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            return on_file(&**raw);
        }
        match &mut *self.0.write().unwrap_or_else(PoisonError::into_inner) {
            Phase::Opening(raw, pending) => on_pending(&**raw, pending),
            Phase::Open(raw) => on_file(&**raw),
            Phase::Closed => Err(io::Error::other("the database has failed, and was closed")),
        }
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        self.with(|raw| raw.len(), |_, pending| Ok(pending.length))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        // Only one of the closures runs, but both borrow the bytes.
        let out = std::cell::RefCell::new(out);
        self.with(
            |raw| raw.read(offset, &mut out.borrow_mut()),
            |raw, pending| pending.read(raw, offset, &mut out.borrow_mut()),
        )
    }

    /// Changes the length, durably: redb does not open a file that is shorter than its header says, and a power cut may
    /// keep a header that was written later and lose the length.
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.with(
            |raw| raw.set_len(length).and_then(|()| raw.sync_data()),
            |_, pending| {
                pending.length = length;
                pending.writes.push(Write::Length(length));
                Ok(())
            },
        )
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(
            |raw| raw.sync_data(),
            |_, pending| {
                pending.writes.push(Write::Sync);
                Ok(())
            },
        )
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(
            |raw| raw.write(offset, data),
            |_, pending| {
                pending.length = pending.length.max(offset + data.len() as u64);
                pending.writes.push(Write::Data(offset, data.to_vec()));
                Ok(())
            },
        )
    }

    /// The file stays open, and locked: the next database is opened on it.
    fn close(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Pending {
    /// Reads from the file, and from the writes that wait.
    fn read(&self, raw: &dyn StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= self.length);
        let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let part = |from: u64, to: u64| (from - offset) as usize..(to - offset) as usize;
        out.fill(0);
        let there = raw.len()?.clamp(offset, end);
        if offset < there {
            raw.read(offset, &mut out[part(offset, there)])?;
        }
        for write in &self.writes {
            match write {
                Write::Data(at, data) => {
                    let (from, to) = ((*at).max(offset), (at + data.len() as u64).min(end));
                    if from < to {
                        out[part(from, to)].copy_from_slice(&data[(from - at) as usize..(to - at) as usize]);
                    }
                }
                Write::Length(length) => out[part((*length).clamp(offset, end), end)].fill(0),
                Write::Sync => {}
            }
        }
        Ok(())
    }
}
