//! Finds transcripts on disk and reads them, robust against files that are huge, torn or deleted meanwhile. All
//! functions block.
//!
//! A list reads the first and the last 64 KiB of each file. Reading messages goes through a file line by line and keeps
//! the position of each entry, so memory is bounded by the longest line and the entries that are asked for.

use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::key::{canonical, key_of_path, long_prefix, session_id_of};
use super::worktree::worktrees;
use crate::error::{Error, ErrorKind, Result};
use crate::files::is_absent;
use crate::sessions::read::EntryLink;
use crate::sessions::read::summary::Folded;

/// Bytes that a list reads from each end of a file.
const EDGE: usize = 64 << 10;

/// Where to look for sessions.
#[derive(Clone, Debug)]
pub(crate) struct SearchScope {
    pub(crate) config_dir: PathBuf,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) worktrees: bool,
    pub(crate) programmatic: bool,
}

/// The folder of one project.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// The directory of the project, if it is known.
    pub(crate) project: Option<String>,
}

/// A session's transcript on disk.
#[derive(Clone, Debug)]
pub(crate) struct SessionFile {
    pub(crate) session_id: String,
    pub(crate) path: PathBuf,
    pub(crate) folder: Folder,
    pub(crate) modified: SystemTime,
    pub(crate) size: u64,
}

impl SessionFile {
    /// The folder for the session's other files.
    pub(crate) fn own_folder(&self) -> PathBuf {
        self.path.with_extension("")
    }

    pub(crate) fn subagents(&self) -> PathBuf {
        self.own_folder().join("subagents")
    }
}

impl SearchScope {
    pub(crate) fn projects(&self) -> PathBuf {
        self.config_dir.join("projects")
    }

    /// The project folders in this scope, in order of preference.
    fn folders(&self) -> Result<Vec<Folder>> {
        let all = || -> Result<Vec<PathBuf>> {
            let mut folders = Vec::new();
            for entry in entries(&self.projects())? {
                let entry = entry.map_err(|error| unreadable(&self.projects(), error))?;
                // Follows links; a dangling link is no folder.
                if entry.path().is_dir() {
                    folders.push(entry.path());
                }
            }
            folders.sort();
            Ok(folders)
        };
        let Some(directory) = &self.directory else {
            return Ok(all()?.into_iter().map(|path| Folder { path, project: None }).collect());
        };
        let mut projects = vec![canonical(directory)];
        if self.worktrees {
            projects.extend(worktrees(projects[0].as_ref()));
        }
        let mut folders: Vec<Folder> = Vec::new();
        for project in projects {
            let key = key_of_path(&project);
            let exact = self.projects().join(&key);
            let found = match long_prefix(&key) {
                _ if exact.is_dir() => vec![exact],
                Some(prefix) => {
                    let named = |path: &PathBuf| {
                        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
                    };
                    all()?.into_iter().filter(named).collect()
                }
                None => Vec::new(),
            };
            for path in found {
                if !folders.iter().any(|folder| folder.path == path) {
                    folders.push(Folder { path, project: Some(project.clone()) });
                }
            }
        }
        Ok(folders)
    }

    /// All sessions, newest first. One session may have several files.
    pub(crate) fn sessions(&self) -> Result<Vec<SessionFile>> {
        let mut files = Vec::new();
        for folder in self.folders()? {
            for entry in entries(&folder.path)? {
                let entry = entry.map_err(|error| unreadable(&folder.path, error))?;
                if let Some(name) = entry.file_name().to_str()
                    && let Some(session_id) = session_id_of(name)
                    && let Some(file) = session_file(&folder, session_id)
                {
                    files.push(file);
                }
            }
        }
        sort_newest_first(&mut files, |file| (file.modified, &file.session_id));
        Ok(files)
    }

    /// A session by its id. Of several files: the first if a directory was named, else the newest.
    pub(crate) fn find(&self, session_id: &str) -> Result<SessionFile> {
        let mut files = self.find_all(session_id)?.into_iter();
        let found = match self.directory {
            Some(_) => files.next(),
            None => files.max_by_key(|file| file.modified),
        };
        found.ok_or_else(|| self.not_found(session_id))
    }

    /// The files of one session: one in each folder that has it.
    pub(crate) fn find_all(&self, session_id: &str) -> Result<Vec<SessionFile>> {
        let folders = self.folders()?;
        Ok(folders.iter().filter_map(|folder| session_file(folder, session_id)).collect())
    }

    /// Whether any project folder has a transcript of this session, with or without messages.
    pub(crate) fn has(&self, session_id: &str) -> Result<bool> {
        Ok(!self.find_all(session_id)?.is_empty())
    }

    pub(crate) fn not_found(&self, session_id: &str) -> Error {
        let place = match &self.directory {
            Some(directory) => format!("of the directory {}", directory.display()),
            None => format!("in {}", self.projects().display()),
        };
        Error::new(ErrorKind::SessionNotFound, format!("there is no session {session_id} {place}"))
            .with_help("check the id, the directory and the configuration folder; a session without a turn is not written")
    }
}

/// Sorts by time, the newest first, then by session id.
pub(crate) fn sort_newest_first<T>(found: &mut [T], written: impl Fn(&T) -> (SystemTime, &str)) {
    found.sort_by(|one, other| {
        let ((one_at, one), (other_at, other)) = (written(one), written(other));
        other_at.cmp(&one_at).then_with(|| one.cmp(other))
    });
}

/// The entries of a folder; none if the folder does not exist.
fn entries(folder: &Path) -> Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if is_absent(&error) => Ok(None.into_iter().flatten()),
        Err(error) => Err(unreadable(folder, error)),
    }
}

pub(crate) fn unreadable(path: &Path, error: io::Error) -> Error {
    failed("cannot be read", path, error)
}

pub(crate) fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    let help = "check the permissions of the file and of its folders, and the free space of the disk";
    Error::new(ErrorKind::Io, format!("{} {what}: {error}", path.display()))
        .with_help(help)
        .with_source(error)
}

/// `None` for an empty file: the CLI may leave one where it looked first.
fn session_file(folder: &Folder, session_id: &str) -> Option<SessionFile> {
    let path = folder.path.join(format!("{session_id}.jsonl"));
    let metadata = fs::metadata(&path).ok().filter(|metadata| metadata.is_file() && metadata.len() > 0)?;
    let modified = modified(&metadata);
    let (session_id, folder, size) = (session_id.to_owned(), folder.clone(), metadata.len());
    Some(SessionFile { session_id, path, folder, modified, size })
}

fn modified(metadata: &Metadata) -> SystemTime {
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

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

/// The links of a transcript, and the positions of its entries.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) links: Vec<EntryLink>,
    places: Vec<(u64, usize)>,
    /// Number of lines that are no JSON object.
    pub(crate) skipped: usize,
}

impl Index {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let mut index = Self::default();
        let skipped = each_line(path, |at, bytes, line| {
            let Some(link) = EntryLink::read(line) else { return Ok(false) };
            if link.is_linked() {
                index.links.push(link);
                index.places.push((at, bytes));
            }
            Ok(true)
        })?;
        index.skipped = skipped;
        Ok(index)
    }

    /// The lines of these entries, in the given order.
    pub(crate) fn lines(&self, path: &Path, entries: &[usize]) -> Result<Vec<String>> {
        let read = || -> io::Result<Vec<String>> {
            let mut file = File::open(path)?;
            let mut lines = Vec::new();
            for entry in entries {
                let (at, bytes) = self.places[*entry];
                let mut line = vec![0; bytes];
                file.seek(SeekFrom::Start(at))?;
                file.read_exact(&mut line)?;
                lines.push(String::from_utf8_lossy(&line).into_owned());
            }
            Ok(lines)
        };
        read().map_err(|error| unreadable(path, error))
    }
}

/// Calls `take` for each line that starts with `{`, with its position, length and text. Returns the number of lines
/// that are no entries: lines that start otherwise, and lines for which `take` returned false.
pub(crate) fn each_line(
    path: &Path,
    mut take: impl FnMut(u64, usize, &str) -> Result<bool>,
) -> Result<usize> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let mut reader = BufReader::with_capacity(EDGE, file);
    let (mut at, mut line, mut skipped) = (0, Vec::new(), 0);
    loop {
        line.clear();
        let bytes = reader.read_until(b'\n', &mut line).map_err(|error| unreadable(path, error))?;
        if bytes == 0 {
            return Ok(skipped);
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        let is_read = text.is_empty() || (text.starts_with('{') && take(at, bytes, text)?);
        skipped += usize::from(!is_read);
        at += bytes as u64;
    }
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

pub(crate) fn sidecar_path(transcript: &Path) -> PathBuf {
    transcript.with_extension("meta.json")
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
