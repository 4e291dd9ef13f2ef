//! The temporary file of a turn whose messages are not read: a ring of records, written and read on blocking threads.
//!
//! The file has no name (or loses it at once), so it is gone with its last handle, however the process ends. It is
//! used as a ring of `Limits::spilled_bytes`: what was read makes room, and the file never grows beyond its bound.
//! Positions only grow until all was read, and begin again at 0 then; the place in the file is the position modulo
//! the bound. Each record is a header (length, and how many partial messages were dropped right before it) and the
//! JSON as it came.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::spill::Entry;
use crate::wire::Message;

/// What a record takes besides its JSON.
pub(crate) const HEADER: u64 = 16;

/// How much is moved at a time, unless one message is larger.
pub(crate) const PORTION: usize = 1 << 20;

/// What a record takes.
pub(crate) fn record_bytes(json: usize) -> u64 {
    HEADER.saturating_add(json as u64)
}

/// The file of one turn; none before it is needed. It is closed on a blocking thread, for that may take its time.
#[derive(Debug, Default)]
pub(crate) struct Spool(Option<File>);

/// What is to be done with the file next.
#[derive(Debug, Default)]
pub(crate) struct Job {
    /// To be written, from this position on.
    pub(crate) write: Vec<Entry>,
    pub(crate) write_at: u64,
    /// To be read: from where, how much there is, and about how much is wanted.
    pub(crate) read: Option<(u64, u64, usize)>,
    /// Whether all of the file was read, so that its space can be given back first.
    pub(crate) truncate: bool,
    /// The bound of the file.
    pub(crate) bound: u64,
    pub(crate) dir: Option<PathBuf>,
}

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Bytes of the file.
    pub(crate) written: Option<io::Result<u64>>,
    /// The messages, and the bytes of the file that they took.
    pub(crate) read: Option<io::Result<(Vec<Entry>, u64)>>,
}

impl Spool {
    /// Blocks.
    pub(crate) fn run(&mut self, job: &Job) -> Done {
        if job.truncate
            && let Some(file) = &self.0
        {
            // Space that is not given back now is given back when the file is closed.
            file.set_len(0).ok();
        }
        Done {
            written: (!job.write.is_empty()).then(|| self.write(job)),
            read: job.read.map(|(at, available, wanted)| self.read(job.bound, at, available, wanted)),
        }
    }

    fn write(&mut self, job: &Job) -> io::Result<u64> {
        let file = match &mut self.0 {
            Some(file) => file,
            none => none.insert(create(job.dir.as_deref())?),
        };
        let mut bytes = Vec::new();
        for entry in &job.write {
            let json = entry.message.raw().get().as_bytes();
            bytes.extend_from_slice(&(json.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&entry.missed.to_le_bytes());
            bytes.extend_from_slice(json);
        }
        // In two parts where the ring begins anew.
        let place = job.write_at % job.bound;
        let first = usize::try_from(job.bound - place).unwrap_or(usize::MAX).min(bytes.len());
        for (place, part) in [(place, &bytes[..first]), (0, &bytes[first..])] {
            if !part.is_empty() {
                file.seek(SeekFrom::Start(place))?;
                file.write_all(part)?;
            }
        }
        Ok(bytes.len() as u64)
    }

    fn read(&mut self, bound: u64, at: u64, available: u64, wanted: usize) -> io::Result<(Vec<Entry>, u64)> {
        let chunk = (wanted as u64).max(HEADER).min(available);
        let mut bytes = Vec::new();
        self.fill(&mut bytes, bound, at, chunk)?;
        let first = record_bytes(usize::try_from(number(&bytes, 0)?).map_err(io::Error::other)?);
        if first > available {
            return Err(io::Error::other("a record is longer than what was written"));
        }
        if first > chunk {
            self.fill(&mut bytes, bound, at + chunk, first - chunk)?;
        }
        let (mut entries, mut taken) = (Vec::new(), 0);
        while let Ok(length) = number(&bytes, taken)
            && let Ok(length) = usize::try_from(length)
            && let Some(json) = bytes.get(taken + 16..).and_then(|rest| rest.get(..length))
        {
            let missed = number(&bytes, taken + 8)?;
            let json = std::str::from_utf8(json).map_err(io::Error::other)?;
            entries.push(Entry { message: Message::parse(json)?, missed });
            taken += 16 + length;
        }
        Ok((entries, taken as u64))
    }

    /// Reads from a position of the ring.
    fn fill(&mut self, bytes: &mut Vec<u8>, bound: u64, at: u64, count: u64) -> io::Result<()> {
        let file = self.0.as_mut().ok_or_else(|| io::Error::other("there is no file"))?;
        let place = at % bound;
        let first = (bound - place).min(count);
        for (place, part) in [(place, first), (0, count - first)] {
            if part > 0 {
                file.seek(SeekFrom::Start(place))?;
                if io::copy(&mut (&mut *file).take(part), bytes)? < part {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Ok(())
    }
}

/// A file without a name that no other user may open.
fn create(dir: Option<&Path>) -> io::Result<File> {
    let file = match dir {
        Some(dir) => tempfile::tempfile_in(dir)?,
        None => tempfile::tempfile()?,
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // One that never had a name is made with the process's umask only.
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// A number of a header.
fn number(bytes: &[u8], at: usize) -> io::Result<u64> {
    let number = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    number.map(u64::from_le_bytes).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl Drop for Spool {
    fn drop(&mut self) {
        let Some(file) = self.0.take() else { return };
        match tokio::runtime::Handle::try_current() {
            // Nobody waits for it: the pool closes it, or the runtime does.
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(file))),
            Err(_) => drop(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: usize, length: usize) -> Entry {
        let line = format!(r#"{{"type":"chatter","n":{number},"text":"{}"}}"#, "x".repeat(length));
        Entry { message: Message::parse(&line).unwrap(), missed: number as u64 }
    }

    #[test]
    fn the_file_has_no_name_and_no_other_user_can_open_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::default();
        let job =
            Job { write: vec![entry(1, 9)], bound: 1000, dir: Some(dir.path().into()), ..Job::default() };
        spool.run(&job).written.unwrap().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = spool.0.as_ref().unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn the_ring_gives_back_what_was_written_across_its_end_and_does_not_grow() {
        let (mut spool, bound) = (Spool::default(), 301);
        let (mut read_at, mut write_at) = (0, 0);
        for number in 0..100 {
            let write = vec![entry(number, number % 150)];
            let job = Job { write, write_at, bound, ..Job::default() };
            write_at += spool.run(&job).written.unwrap().unwrap();
            // Little is wanted, so long records are read in two parts.
            let job = Job { read: Some((read_at, write_at - read_at, 20)), bound, ..Job::default() };
            let (entries, bytes) = spool.run(&job).read.unwrap().unwrap();
            read_at += bytes;
            assert_eq!((entries.len(), read_at), (1, write_at));
            assert_eq!(
                (entries[0].message.field("n").unwrap(), entries[0].missed),
                (number.into(), number as u64)
            );
        }
        assert!(write_at > 10 * bound && spool.0.as_ref().unwrap().metadata().unwrap().len() <= bound);
    }

    #[test]
    fn a_file_that_was_changed_is_an_error_and_no_message() {
        let mut spool = Spool::default();
        let job = Job { write: vec![entry(1, 9)], bound: 1000, ..Job::default() };
        let bytes = spool.run(&job).written.unwrap().unwrap();
        let read = Job { read: Some((0, bytes, 1000)), bound: 1000, ..Job::default() };
        let file = spool.0.as_mut().unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&u64::MAX.to_le_bytes()).unwrap();
        assert!(spool.run(&read).read.unwrap().is_err());
        spool.0.as_mut().unwrap().set_len(20).unwrap();
        assert!(spool.run(&read).read.unwrap().is_err());
    }
}
