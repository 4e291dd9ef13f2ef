//! A store in a folder: plain JSONL, one file for each key.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use futures_util::future::BoxFuture;

use super::{SessionKey, SessionStore, SessionSummary, StoreResult, StoredSession, TranscriptEntry, dedup};
use crate::options::LOCK_PAUSE;
use crate::sessions::{each_line, fold_edges, is_absent, transcripts};

/// A [`SessionStore`] in a folder: on a disk of one's own, or on a file system that several machines share.
///
/// Each key is a file of JSON lines, `<project>/<session>.jsonl` and `<project>/<session>/<subpath>.jsonl`, readable with
/// any tool; what could not stand in a file's name is escaped as `%XX`. Several processes may use one folder: an append
/// holds a lock on its file, and is taken whole or not at all. One that is dropped while it waits for the lock writes
/// nothing. The runtime needs its time driver, as it does for a session. An entry that came twice, by its uuid, is loaded once. A
/// line that a crash of the machine has cut off is passed over.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use greenroom::store::{FileStore, SessionKey, SessionStore, TranscriptEntry};
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

/// When an append of a [`FileStore`] counts as done.
///
/// ```
/// use greenroom::store::{Durability, FileStore};
///
/// let fast = FileStore::new("/var/lib/agents").durability(Durability::Written);
/// assert_eq!(Durability::default(), Durability::Synced);
/// # let _ = fast;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the disk has it: it survives the machine (`fsync`).
    #[default]
    Synced,
    /// When the system has it: it survives the process.
    Written,
}

impl FileStore {
    /// A store in this folder, which is made when something is appended.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), durability: Durability::default() }
    }

    /// When an append counts as done. Default: [`Durability::Synced`].
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
        // What is escaped has no dot, so a folder is never called like a file.
        path.join(name + ".jsonl")
    }

    /// Appends text, if nobody else holds the file and if it is still asked for. Says whether it was done; if not, it may be
    /// tried again.
    fn try_append(&self, path: &Path, text: &[u8], asked: &Weak<()>) -> io::Result<bool> {
        let mut file = self.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if !is_still(&file, path)? || asked.strong_count() == 0 {
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
            // What a crash has cut off stays a line of its own.
            _ => file.write_all(&[b"\n", text].concat()),
        };
        let written = written.and_then(|()| match self.durability {
            Durability::Synced => file.sync_data(),
            Durability::Written => Ok(()),
        });
        if let Err(error) = written {
            // Whole or not at all. If this fails as well, the line is passed over by whoever reads it.
            file.set_len(end).ok();
            return Err(error);
        }
        // Whoever writes the first of it, which may not be who made it.
        if end == 0 && self.durability == Durability::Synced {
            self.sync_folders(path)?;
        }
        Ok(true)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(true);
        match options.open(path) {
            Err(error) if is_absent(&error) => {}
            opened => return opened,
        }
        if let Some(folder) = path.parent() {
            private_folders(folder)?;
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        options.create(true).open(path)
    }

    /// A file is there after a crash only if its folders say so.
    fn sync_folders(&self, path: &Path) -> io::Result<()> {
        if cfg!(unix) {
            for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.root)) {
                File::open(folder)?.sync_all()?;
            }
        }
        Ok(())
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
    fn files(&self, project_key: &str) -> io::Result<Vec<Listed>> {
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
                // It has gone in between.
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

    /// Does file work on a thread that may block.
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
            // Goes with this future: what nobody waits for any more is not written either, nor does it hold a thread until
            // it could be.
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

/// A session's id, its file, and when it was last written to.
type Listed = (String, PathBuf, SystemTime);

fn summaries(files: Vec<Listed>) -> io::Result<Vec<SessionSummary>> {
    // Both ends of a file are read quickly, and are never behind it.
    let fold = |(id, path, modified): Listed| match fold_edges(&path) {
        // It has gone since it was listed.
        Err(error) if is_absent(&error) => None,
        folded => Some(folded.map(|folded| SessionSummary::of(id, modified, folded))),
    };
    files.into_iter().filter_map(fold).collect()
}

/// Entries as the lines of a file.
fn lines(entries: &[TranscriptEntry]) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in entries {
        let json = entry.raw().get();
        // A line break inside an entry can only be white space between its parts.
        text.extend(json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        text.push(b'\n');
    }
    text
}

/// Whether what was opened is what the path names; it may have been deleted since, and made anew.
fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    let named = match fs::metadata(path) {
        Err(error) if is_absent(&error) => return Ok(false),
        named => named?,
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let opened = file.metadata()?;
        Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino()))
    }
    #[cfg(not(unix))]
    {
        // An open file cannot be deleted and made anew there.
        Ok(file.metadata().is_ok() && named.is_file())
    }
}

fn private_folders(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.recursive(true).create(folder)
}

/// Anything as a name for a file: one that is not empty, has no dot, and leads nowhere else.
fn escape(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => escaped.push(byte.into()),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    if escaped.is_empty() { "%".into() } else { escaped }
}

fn unescape(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *byte == b'%') {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &after[2..];
            }
            None => {
                bytes.extend((*byte != b'%').then_some(*byte));
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(json: &str) -> TranscriptEntry {
        TranscriptEntry::parse(json).unwrap()
    }

    #[tokio::test]
    async fn what_a_crash_has_cut_off_harms_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path());
        let key = SessionKey::new("../p", "s");
        store.append(&key, &[entry(r#"{"uuid":"a"}"#)]).await.unwrap();
        let path = folder.path().join("%2E%2E%2Fp/s.jsonl");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"uuid\":\"to").unwrap();
        store.append(&key, &[entry("{\"uuid\":\n\"b\"}"), entry(r#"{"uuid":"a"}"#)]).await.unwrap();
        let uuids: Vec<_> = store.load(&key).await.unwrap().unwrap();
        assert_eq!(uuids.iter().filter_map(|entry| entry.uuid()).collect::<Vec<_>>(), ["a", "b"]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[tokio::test]
    async fn an_append_that_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path().join("file"));
        fs::write(folder.path().join("file"), "not a folder").unwrap();
        assert!(store.append(&SessionKey::new("p", "s"), &[entry("{}")]).await.is_err());
        assert!(store.load(&SessionKey::new("p", "s")).await.unwrap().is_none());
    }

    #[test]
    fn a_file_that_was_made_anew_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        let opened = FileStore::new(folder.path()).open(&path).unwrap();
        assert!(is_still(&opened, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_still(&opened, &path).unwrap());
        fs::write(&path, "anew").unwrap();
        assert_eq!(is_still(&opened, &path).unwrap(), cfg!(not(unix)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_append_that_was_given_up_writes_nothing_later() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path());
        let key = SessionKey::new("p", "s");
        store.append(&key, &[entry(r#"{"uuid":"a"}"#)]).await.unwrap();
        let path = store.path(&key);
        let held = store.open(&path).unwrap();
        held.lock().unwrap();
        let late = [entry(r#"{"uuid":"late"}"#)];
        assert!(tokio::time::timeout(LOCK_PAUSE * 10, store.append(&key, &late)).await.is_err());
        // Nor does what had begun when it was given up.
        drop(held);
        assert!(!store.try_append(&path, b"{}\n", &Weak::new()).unwrap());
        store.append(&key, &[entry(r#"{"uuid":"b"}"#)]).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"uuid\":\"a\"}\n{\"uuid\":\"b\"}\n");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn appends_from_everywhere_at_once_are_all_there_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let key = SessionKey::new("p", "s");
        let appends = (0..16).map(|number| {
            let (store, key) = (FileStore::new(folder.path()).durability(Durability::Written), key.clone());
            async move {
                for round in 0..8 {
                    let entries =
                        [entry(&format!(r#"{{"uuid":"{number}-{round}","x":"{}"}}"#, "y".repeat(5000)))];
                    store.append(&key, &entries).await.unwrap();
                }
            }
        });
        futures_util::future::join_all(appends).await;
        let loaded = FileStore::new(folder.path()).load(&key).await.unwrap().unwrap();
        assert_eq!(loaded.len(), 128);
    }

    #[tokio::test]
    async fn a_session_that_goes_while_all_are_listed_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path());
        for id in ["a", "b"] {
            store.append(&SessionKey::new("p", id), &[entry(r#"{"type":"tag","tag":"t"}"#)]).await.unwrap();
        }
        let files = store.files("p").unwrap();
        store.delete(&SessionKey::new("p", "a")).await.unwrap();
        let left = summaries(files).unwrap();
        assert_eq!(left.iter().map(|summary| summary.session_id()).collect::<Vec<_>>(), ["b"]);
    }

    proptest! {
        #[test]
        fn any_name_is_one_of_its_own_and_comes_back(name in "\\PC{0,40}|[./%\\\\a]{0,8}", other in "[./%a]{0,8}") {
            let escaped = escape(&name);
            prop_assert!(!escaped.is_empty() && !escaped.contains(['/', '\\', '.', '\0']));
            prop_assert_eq!(unescape(&escaped), name.as_str());
            prop_assert_eq!(escape(&other) == escaped, other == name);
        }
    }
}
