//! The temporary file of a turn's unread messages: a ring of records, written and read on blocking threads.
//!
//! The file has no name (or loses it at once), so the system removes it with its last handle, however the process ends.
//! The file is a ring of `Limits::spilled_bytes`: messages that were read make room, and the file never grows beyond
//! the bound. A position grows until every message was read, and then starts again at 0; the offset in the file is the
//! position modulo the bound. A record is a header (length of the JSON, number of partial messages dropped right before
//! it) and the JSON.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::unread::UnreadMessage;
use crate::blocking::in_background;
use crate::wire::Message;

/// Bytes of a record's header.
const HEADER: u64 = 16;

/// Bytes that are moved at a time, unless one message is larger.
pub(super) const PORTION: usize = 1 << 20;

/// Bytes of the record of a message.
pub(super) fn record_bytes(json: usize) -> u64 {
    HEADER.saturating_add(json as u64)
}

/// The file of one turn, created when it is first written. Closed on a blocking thread, because closing may block.
#[derive(Debug, Default)]
pub(super) struct RingFile(Option<File>);

/// Work on the file.
#[derive(Debug, Default)]
pub(super) struct FileWork {
    /// Messages to write.
    pub(super) write: Vec<UnreadMessage>,
    /// The position to write at.
    pub(super) write_at: u64,
    /// The position to read at, the bytes that are there, and about how many of them to read.
    pub(super) read: Option<(u64, u64, usize)>,
    /// Whether to give the file's space back first: every message in it was read.
    pub(super) truncate: bool,
    /// The bound of the file.
    pub(super) bound: u64,
    pub(super) dir: Option<PathBuf>,
}

/// The result of work on the file.
#[derive(Debug, Default)]
pub(super) struct FileDone {
    /// The bytes that were written.
    pub(super) written: Option<io::Result<u64>>,
    /// The messages that were read, and the bytes of their records.
    pub(super) read: Option<io::Result<(Vec<UnreadMessage>, u64)>>,
}

impl RingFile {
    /// Does the work. Blocks the thread.
    pub(super) fn run(&mut self, job: &FileWork) -> FileDone {
        if job.truncate
            && let Some(file) = &self.0
        {
            // If this fails, closing the file gives the space back.
            file.set_len(0).ok();
        }
        FileDone {
            written: (!job.write.is_empty()).then(|| self.write(job)),
            read: job.read.map(|(at, available, wanted)| self.read(job.bound, at, available, wanted)),
        }
    }

    fn write(&mut self, job: &FileWork) -> io::Result<u64> {
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
        // In two parts if the records pass the end of the ring.
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

    fn read(
        &mut self,
        bound: u64,
        at: u64,
        available: u64,
        wanted: usize,
    ) -> io::Result<(Vec<UnreadMessage>, u64)> {
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
            entries.push(UnreadMessage { message: Message::parse(json)?, missed });
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
        // `O_TMPFILE` creates the file with the mode that the umask leaves.
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Reads a number of a header.
fn number(bytes: &[u8], at: usize) -> io::Result<u64> {
    let number = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    number.map(u64::from_le_bytes).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl Drop for RingFile {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            in_background(move || drop(file));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unread(number: usize, length: usize) -> UnreadMessage {
        let line = format!(r#"{{"type":"chatter","n":{number},"text":"{}"}}"#, "x".repeat(length));
        UnreadMessage { message: Message::parse(&line).unwrap(), missed: number as u64 }
    }

    #[test]
    fn the_file_has_no_name_and_no_other_user_can_open_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = RingFile::default();
        let job = FileWork {
            write: vec![unread(1, 9)],
            bound: 1000,
            dir: Some(dir.path().into()),
            ..FileWork::default()
        };
        ring.run(&job).written.unwrap().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = ring.0.as_ref().unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn records_across_the_end_of_the_ring_are_read_back() {
        let (mut ring, bound) = (RingFile::default(), 301);
        let (mut read_at, mut write_at) = (0, 0);
        for number in 0..100 {
            let write = vec![unread(number, number % 150)];
            let job = FileWork { write, write_at, bound, ..FileWork::default() };
            write_at += ring.run(&job).written.unwrap().unwrap();
            // Few bytes are asked for, so long records are read in two parts.
            let job =
                FileWork { read: Some((read_at, write_at - read_at, 20)), bound, ..FileWork::default() };
            let (entries, bytes) = ring.run(&job).read.unwrap().unwrap();
            read_at += bytes;
            assert_eq!((entries.len(), read_at), (1, write_at));
            assert_eq!(
                (entries[0].message.field("n").unwrap(), entries[0].missed),
                (number.into(), number as u64)
            );
        }
        assert!(write_at > 10 * bound && ring.0.as_ref().unwrap().metadata().unwrap().len() <= bound);
    }

    #[test]
    fn a_file_that_was_changed_from_outside_is_an_error() {
        let mut ring = RingFile::default();
        let job = FileWork { write: vec![unread(1, 9)], bound: 1000, ..FileWork::default() };
        let bytes = ring.run(&job).written.unwrap().unwrap();
        let read = FileWork { read: Some((0, bytes, 1000)), bound: 1000, ..FileWork::default() };
        let file = ring.0.as_mut().unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&u64::MAX.to_le_bytes()).unwrap();
        assert!(ring.run(&read).read.unwrap().is_err());
        ring.0.as_mut().unwrap().set_len(20).unwrap();
        assert!(ring.run(&read).read.unwrap().is_err());
    }
}
