//! [`FileStore`]: a store in a folder, as plain JSONL with one file for each key.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use futures_util::future::BoxFuture;

use super::name::{escape, unescape};
use super::{SessionKey, SessionStore, SessionSummary, StoreResult, StoredSession, TranscriptEntry, dedup};
use crate::files::{is_absent, is_same_file, private_folders};
use crate::options::LOCK_PAUSE;
use crate::sessions::{each_line, fold_edges, transcripts};

/// A [`SessionStore`] in a folder, on a local disk or on a file system that several machines share.
///
/// Each key is a file of JSON lines, `<project>/<session>.jsonl` or `<project>/<session>/<subpath>.jsonl`; characters
/// that a file name cannot have are escaped as `%XX`. Several processes may use one folder: an append locks its file,
/// and is written whole or not at all. Dropping an append that waits for the lock cancels it. Entries with the same
/// uuid are loaded once, and lines that a crash has torn are skipped. Needs a tokio runtime with the time driver, as a
/// session does.
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use greenroom::sessions::TranscriptEntry;
/// use greenroom::store::{FileStore, SessionKey, SessionStore};
///
/// # let folder = tempfile::tempdir()?;
/// let store = FileStore::new(folder.path());
/// let key = SessionKey::new("project", "1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37");
/// store.append(&key, &[TranscriptEntry::parse(r#"{"type": "tag", "tag": "nightly"}"#)?]).await?;
/// assert_eq!(store.load(&key).await?.unwrap().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FileStore {
    root: PathBuf,
    durability: Durability,
}

/// When an append of a [`FileStore`] is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the disk has the entries (`fsync`): they survive a crash of the machine.
    #[default]
    Synced,
    /// When the system has the entries: they survive a crash of the process.
    Written,
}

impl FileStore {
    /// A store in this folder. The folder is created by the first append.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), durability: Durability::default() }
    }

    /// Sets when an append is done. Default: [`Durability::Synced`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    fn project(&self, project_key: &str) -> PathBuf {
        self.root.join(escape(project_key))
    }

    fn path(&self, key: &SessionKey) -> PathBuf {
        let mut path = self.project(&key.project_key);
        let mut name = escape(&key.session_id);
        for part in key.subpath.iter().flat_map(|subpath| subpath.split('/')) {
            path.push(name);
            name = escape(part);
        }
        // Escaped names have no dot, so a folder never has the name of a file.
        path.join(name + ".jsonl")
    }

    /// Appends text unless another process holds the lock or the caller has dropped its future. Returns whether it did;
    /// if not, the caller may try again.
    fn try_append(&self, path: &Path, text: &[u8], asked: &Weak<()>) -> io::Result<bool> {
        let mut file = self.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if !is_same_file(&file, path)? || asked.strong_count() == 0 {
            return Ok(false);
        }
        let end = file.seek(SeekFrom::End(0))?;
        let mut last = *b"\n";
        if end > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let written = match &last {
            b"\n" => file.write_all(text),
            // A torn line stays a line of its own.
            _ => file.write_all(&[b"\n", text].concat()),
        };
        let written = written.and_then(|()| match self.durability {
            Durability::Synced => file.sync_data(),
            Durability::Written => Ok(()),
        });
        if let Err(error) = written {
            // Whole or not at all. If this fails too, readers skip the torn line.
            file.set_len(end).ok();
            return Err(error);
        }
        // By the process that writes the first entry, which may not be the one that created the file.
        if end == 0 && self.durability == Durability::Synced {
            self.sync_folders(path)?;
        }
        Ok(true)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).mode(0o600);
        match options.open(path) {
            Err(error) if is_absent(&error) => {}
            opened => return opened,
        }
        if let Some(folder) = path.parent() {
            private_folders(folder)?;
        }
        options.create(true).open(path)
    }

    /// Syncs the folders, without which a new file may be missing after a crash of the machine.
    fn sync_folders(&self, path: &Path) -> io::Result<()> {
        let mut folders = path.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.root));
        folders.try_for_each(|folder| File::open(folder)?.sync_all())
    }

    fn do_load(&self, key: &SessionKey) -> StoreResult<Option<Vec<TranscriptEntry>>> {
        let path = self.path(key);
        if fs::metadata(&path).is_err_and(|error| is_absent(&error)) {
            return Ok(None);
        }
        let mut entries = Vec::new();
        each_line(&path, |_, _, line| {
            Ok(TranscriptEntry::parse(line).map(|entry| entries.push(entry)).is_ok())
        })?;
        dedup(&mut entries);
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    /// The sessions of a project.
    fn files(&self, project_key: &str) -> io::Result<Vec<ListedFile>> {
        let mut files = Vec::new();
        let folder = match fs::read_dir(self.project(project_key)) {
            Err(error) if is_absent(&error) => return Ok(files),
            folder => folder?,
        };
        for entry in folder {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".jsonl")) else { continue };
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() && metadata.len() > 0 => {
                    files.push((unescape(name), entry.path(), metadata.modified()?));
                }
                Ok(_) => {}
                // Deleted meanwhile.
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    fn do_delete(&self, key: &SessionKey) -> io::Result<()> {
        let path = self.path(key);
        let parts = if key.subpath.is_none() { fs::remove_dir_all(path.with_extension("")) } else { Ok(()) };
        for removed in [fs::remove_file(&path), parts] {
            match removed {
                Err(error) if !is_absent(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn do_list_subkeys(&self, key: &SessionKey) -> StoreResult<Vec<String>> {
        let folder = self.path(&key.main()).with_extension("");
        let files = transcripts(&folder)?;
        let below = files
            .iter()
            .filter_map(|file| file.with_extension("").strip_prefix(&folder).ok().map(Path::to_owned));
        let subpath = |path: PathBuf| {
            let parts = path.iter().map(|part| unescape(&part.to_string_lossy()));
            parts.collect::<Vec<_>>().join("/")
        };
        Ok(below.map(subpath).collect())
    }

    /// Runs blocking file work on a blocking thread.
    fn blocking<'a, T: Send + 'static, E: Into<super::StoreError> + Send + 'static>(
        &self,
        work: impl FnOnce(Self) -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'a, StoreResult<T>> {
        let this = self.clone();
        Box::pin(async move { tokio::task::spawn_blocking(move || work(this)).await?.map_err(Into::into) })
    }
}

impl SessionStore for FileStore {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        if entries.is_empty() {
            return Box::pin(std::future::ready(Ok(())));
        }
        let appended: Arc<(PathBuf, Vec<u8>)> = Arc::new((self.path(key), lines(entries)));
        Box::pin(async move {
            // Dropped with this future, so that an append that was cancelled is not written later.
            let asked = Arc::new(());
            loop {
                let (appended, asked) = (appended.clone(), Arc::downgrade(&asked));
                let trying = self.blocking(move |this| this.try_append(&appended.0, &appended.1, &asked));
                if trying.await? {
                    return Ok(());
                }
                tokio::time::sleep(LOCK_PAUSE).await;
            }
        })
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        let key = key.clone();
        self.blocking(move |this| this.do_load(&key))
    }

    fn list_sessions<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<StoredSession>>> {
        let project_key = project_key.to_owned();
        self.blocking(move |this| {
            let files = this.files(&project_key)?.into_iter();
            Ok::<_, io::Error>(files.map(|(id, _, modified)| StoredSession::new(id, modified)).collect())
        })
    }

    fn list_summaries<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<SessionSummary>>> {
        let project_key = project_key.to_owned();
        self.blocking(move |this| {
            let files = this.files(&project_key)?;
            summaries(files)
        })
    }

    fn delete<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<()>> {
        let key = key.clone();
        self.blocking(move |this| this.do_delete(&key))
    }

    fn list_subkeys<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Vec<String>>> {
        let key = key.clone();
        self.blocking(move |this| this.do_list_subkeys(&key))
    }
}

/// A session's id, its file, and the time of the last write.
type ListedFile = (String, PathBuf, SystemTime);

fn summaries(files: Vec<ListedFile>) -> io::Result<Vec<SessionSummary>> {
    // Folded from both ends of each file, which is fast and always up to date.
    let fold = |(id, path, modified): ListedFile| match fold_edges(&path) {
        // Deleted meanwhile.
        Err(error) if is_absent(&error) => None,
        folded => Some(folded.map(|folded| SessionSummary::of(id, modified, folded))),
    };
    files.into_iter().filter_map(fold).collect()
}

/// The entries as lines of a file.
fn lines(entries: &[TranscriptEntry]) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in entries {
        let json = entry.raw().get();
        // In valid JSON a line break is white space between tokens.
        text.extend(json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests;
