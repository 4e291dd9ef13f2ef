//! Finds transcripts on disk, and reads them line by line. All functions block.

#![cfg_attr(not(feature = "sessions"), allow(dead_code, reason = "most callers need the feature"))]

use std::fs::{self, Metadata};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::key::{canonical, key_of_path, long_prefix, session_id_of};
use super::worktree::worktrees;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{is_absent, open_of};
use crate::options::OsUser;
use crate::sessions::read::TranscriptEntry;

/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;

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

/// Whether any project folder has a transcript of this session, with or without messages.
pub(crate) fn has_transcript(config_dir: PathBuf, session_id: &str) -> Result<bool> {
    Ok(!transcripts_of(config_dir, session_id)?.is_empty())
}

/// The transcripts of this session in all project folders, the newest first.
pub(crate) fn transcripts_of(config_dir: PathBuf, session_id: &str) -> Result<Vec<PathBuf>> {
    let scope = SearchScope { config_dir, directory: None, worktrees: true, programmatic: true };
    let mut files = scope.find_all(session_id)?;
    sort_newest_first(&mut files, |file| (file.modified, &file.session_id));
    Ok(files.into_iter().map(|file| file.path).collect())
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

    /// The empty files of one session.
    #[cfg(feature = "sessions")]
    pub(crate) fn empty_files(&self, session_id: &str) -> Result<Vec<PathBuf>> {
        let paths = self.folders()?.into_iter().map(|folder| folder.path.join(format!("{session_id}.jsonl")));
        let is_empty =
            |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
        Ok(paths.filter(is_empty).collect())
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
pub(super) fn entries(folder: &Path) -> Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
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

/// Calls `take` for each line that starts with `{`. Returns the number of lines that are no entries: lines that start
/// otherwise, and lines for which `take` returned false.
///
/// # Errors
/// The file cannot be read, or does not belong to `owner`: a CLI that runs as another user may have put a link to a file of somebody
/// else in its place.
pub(crate) fn each_line(
    path: &Path,
    owner: Option<OsUser>,
    mut take: impl FnMut(&str) -> bool,
) -> Result<usize> {
    let owners: Vec<_> = owner.map(|owner| owner.uid).into_iter().collect();
    let file = open_of(path, &owners).map_err(|error| unreadable(path, error))?;
    let mut reader = BufReader::with_capacity(CHUNK, file);
    let (mut line, mut skipped) = (Vec::new(), 0);
    loop {
        line.clear();
        let bytes = reader.read_until(b'\n', &mut line).map_err(|error| unreadable(path, error))?;
        if bytes == 0 {
            return Ok(skipped);
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        let is_read = text.is_empty() || (text.starts_with('{') && take(text));
        skipped += usize::from(!is_read);
    }
}

/// The entries of a transcript, and the number of lines that are no entries.
pub(crate) fn read_entries(path: &Path) -> Result<(Vec<TranscriptEntry>, usize)> {
    let mut entries = Vec::new();
    let skipped =
        each_line(path, None, |line| TranscriptEntry::parse(line).map(|entry| entries.push(entry)).is_ok())?;
    Ok((entries, skipped))
}

/// The path of the metadata file beside a subagent's transcript.
pub(crate) fn sidecar_path(transcript: &Path) -> PathBuf {
    transcript.with_extension("meta.json")
}
