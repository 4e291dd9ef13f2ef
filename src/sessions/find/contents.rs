//! The contents of transcripts on disk, robust against files that are huge, torn or deleted meanwhile. All functions
//! block.
//!
//! A list reads the first and the last 64 KiB of each file.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::disk::{entries, failed, sidecar_path, unreadable};
use crate::error::Result;
use crate::sessions::read::summary::Folded;

/// Bytes that a list reads from each end of a file.
const EDGE: usize = 64 << 10;

/// Folds both ends of a file.
pub(crate) fn fold_edges(path: &Path) -> io::Result<Folded> {
    fold_edges_of(File::open(path)?)
}

fn fold_edges_of(mut file: impl Read + Seek) -> io::Result<Folded> {
    let mut folded = Folded::default();
    let mut head = Vec::new();
    (&mut file).take(EDGE as u64).read_to_end(&mut head)?;
    // The file may have grown since.
    let size = file.seek(SeekFrom::End(0))?;
    let whole = size <= head.len() as u64;
    let mut first = true;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        if !folded.line(&text) && line.last() != Some(&b'\n') {
            folded.torn(&text, first);
        }
        first = false;
    }
    if whole {
        return Ok(folded);
    }
    // Fields that keep the first value ignore an overlap; fields that keep the last value read it again.
    file.seek(SeekFrom::Start(size.saturating_sub(EDGE as u64)))?;
    let mut tail = Vec::new();
    file.take(EDGE as u64).read_to_end(&mut tail)?;
    for (number, line) in tail.split(|byte| *byte == b'\n').enumerate() {
        let text = String::from_utf8_lossy(line);
        if !folded.line(&text) && number == 0 {
            folded.torn(&text, false);
        }
    }
    Ok(folded)
}

/// Appends an entry to an existing file. If the last line is torn, the entry starts on a new line.
pub(crate) fn append(path: &Path, entry: &serde_json::Value) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().read(true).append(true).open(path)?;
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let torn = if last == *b"\n" { "" } else { "\n" };
        // A single write, because the CLI may write to the same file.
        file.write_all(format!("{torn}{entry}\n").as_bytes())
    };
    write().map_err(|error| failed("cannot be written", path, error))
}

/// The transcripts of a session's subagents, each with the agent's id. They may be in subfolders.
pub(crate) fn subagent_files(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for path in transcripts(folder)? {
        let name = path.file_stem().and_then(|name| name.to_str());
        if let Some(agent) = name.and_then(|name| name.strip_prefix("agent-")) {
            found.push((agent.to_owned(), path));
        }
    }
    Ok(found)
}

/// All JSONL files below a folder, sorted by path.
pub(crate) fn transcripts(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in entries(&folder)? {
            let entry = entry.map_err(|error| unreadable(&folder, error))?;
            // Links are not followed, so the walk ends.
            let kind = entry.file_type().map_err(|error| unreadable(&entry.path(), error))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.path().extension().is_some_and(|extension| extension == "jsonl")
            {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The metadata file beside a subagent's transcript; `None` if it cannot be read.
pub(crate) fn sidecar(transcript: &Path) -> Option<serde_json::Value> {
    let text = fs::read_to_string(sidecar_path(transcript)).ok()?;
    serde_json::from_str(&text).ok().filter(serde_json::Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that grows before its size is read.
    struct Growing(io::Cursor<Vec<u8>>);

    impl Read for Growing {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Seek for Growing {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            if to == SeekFrom::End(0) {
                self.0.get_mut().extend(b"{\"type\":\"tag\",\"tag\":\"new\"}\n");
            }
            self.0.seek(to)
        }
    }

    #[test]
    fn a_small_file_that_grows_is_read_to_its_new_end() {
        let file = Growing(io::Cursor::new(b"{\"type\":\"tag\",\"tag\":\"old\"}\n".to_vec()));
        assert_eq!(fold_edges_of(file).unwrap().tag.as_deref(), Some("new"));
    }
}
