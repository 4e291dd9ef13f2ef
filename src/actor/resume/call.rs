//! A deferred call in the transcript of its conversation: found while its question is open, and written down as deferred
//! before a CLI resumes it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Loading;
use crate::Options;
use crate::actor::base::deadlines::after;
use crate::actor::context::Shared;
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::files::open_of;
use crate::options::OsUser;
use crate::report::DeferredCall;
use crate::sessions::{
    CallSearch, OpenCall, TranscriptEntry, check_session_id, config_dir, each_line, is_session_id,
    marked_call, transcripts_of, unreadable, variable,
};
use crate::store::SessionKey;

/// The pause between two looks for a call that the CLI asks about. CLI 2.1.330 writes its transcript about 100 ms late, and
/// tells nobody.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the transcript of the running session has the call, without a result; at most as long as for an answer to a
/// request.
pub(crate) async fn open_call(shared: &Shared, session_id: &str, tool_use_id: &str) -> Result<OpenCall> {
    let until = after(Instant::now(), shared.options().timeouts.control_request);
    let looking = look_for(shared, session_id, tool_use_id, until);
    tokio::time::timeout_at(until, looking)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::NotDeferrable, "the store does not answer in time")))
}

async fn look_for(shared: &Shared, session_id: &str, tool_use_id: &str, until: Instant) -> Result<OpenCall> {
    let mut pause = PAUSE;
    loop {
        let found = match shared.mirror() {
            Some(mirror) => {
                mirror.flushed().await;
                let loading = Loading::of(mirror.store(), shared.options()).await?;
                let entries = loading.load(&SessionKey::new(&loading.project_key, session_id)).await?;
                search(tool_use_id, &entries.unwrap_or_default())
            }
            None => {
                let options = shared.options();
                let config_dir = config_dir(|name| variable(options, name))?;
                let (id, call, user) = (session_id.to_owned(), tool_use_id.to_owned(), options.user);
                blocking(move || Ok(on_disk(config_dir, &id, &call, user)?.1)).await?
            }
        };
        match found {
            Ok(call) => return Ok(call),
            Err(why) if Instant::now() + pause >= until => {
                return Err(Error::new(ErrorKind::NotDeferrable, why));
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause *= 2;
    }
}

/// Has a conversation on disk not go on by itself with a call that was deferred: the CLI would ask for it at once, outside of any turn.
/// The options name the conversation that is resumed.
pub(crate) async fn abandon_on_disk(options: &Options) -> Result<()> {
    let named = options.conversation.as_ref().or(options.resume.as_ref());
    let Some(id) = named.filter(|id| is_session_id(id) && !options.fork_session) else { return Ok(()) };
    let config_dir = config_dir(|name| variable(options, name))?;
    let (id, user) = (id.clone(), options.user);
    blocking(move || {
        for path in transcripts_of(config_dir, &id)? {
            let Some(call) = last_entry(&path, user)?.as_ref().and_then(marked_call) else { continue };
            let entries = read(&path, &call, user)?.abandon();
            append(&path, user, &entries).map_err(|error| not_written(&path, error))?;
        }
        Ok(())
    })
    .await
}

/// Writes a call down as deferred in the transcript on disk.
pub(crate) async fn defer_on_disk(options: &Options, call: &DeferredCall) -> Result<()> {
    check_session_id(&call.session_id)?;
    let config_dir = config_dir(|name| variable(options, name))?;
    let (of, user) = (call.clone(), options.user);
    blocking(move || {
        let (path, found) = on_disk(config_dir, &of.session_id, &of.tool_use_id, user)?;
        let open = found.map_err(|why| not_open(&of, why))?;
        let Some(path) = path else { return Err(not_open(&of, "there is no transcript")) };
        append(&path, user, &open.entries).map_err(|error| not_written(&path, error))
    })
    .await
}

/// Bytes of a transcript that are looked at first for its last entry.
const TAIL: u64 = 256 << 10;

type Found = Result<OpenCall, &'static str>;

/// The newest transcript of the session, and the call in it.
fn on_disk(
    config_dir: PathBuf,
    session_id: &str,
    tool_use_id: &str,
    user: Option<OsUser>,
) -> Result<(Option<PathBuf>, Found)> {
    let Some(path) = transcripts_of(config_dir, session_id)?.into_iter().next() else {
        return Ok((None, Err("there is no transcript")));
    };
    let search = read(&path, tool_use_id, user)?;
    Ok((Some(path), search.end()))
}

fn read(path: &Path, tool_use_id: &str, user: Option<OsUser>) -> Result<CallSearch> {
    let mut search = CallSearch::new(tool_use_id);
    each_line(path, user, |line| TranscriptEntry::parse(line).map(|entry| search.read(&entry)).is_ok())?;
    Ok(search)
}

/// The last entry of the conversation.
fn last_entry(path: &Path, user: Option<OsUser>) -> Result<Option<TranscriptEntry>> {
    let owners: Vec<_> = user.map(|owner| owner.uid).into_iter().collect();
    let failed = |error| unreadable(path, error);
    let mut file = open_of(path, &owners).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut size = TAIL.min(length);
    loop {
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(length - size)).map_err(failed)?;
        Read::by_ref(&mut file).take(size).read_to_end(&mut tail).map_err(failed)?;
        let text = String::from_utf8_lossy(&tail);
        // The first line of a part may be cut off.
        let whole = text.lines().skip(usize::from(size < length));
        let entries = whole.filter_map(|line| TranscriptEntry::parse(line).ok());
        let last = entries.filter(|entry| entry.uuid().is_some()).last();
        if last.is_some() || size == length {
            return Ok(last);
        }
        size = (size * 4).min(length);
    }
}

fn not_written(path: &Path, error: std::io::Error) -> Error {
    let text = format!("the deferred call cannot be written to {}: {error}", path.display());
    Error::new(ErrorKind::Io, text).with_source(error)
}

fn search(tool_use_id: &str, entries: &[TranscriptEntry]) -> Found {
    let mut search = CallSearch::new(tool_use_id);
    entries.iter().for_each(|entry| search.read(entry));
    search.end()
}

fn append(path: &Path, user: Option<OsUser>, entries: &[TranscriptEntry]) -> std::io::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let owner = file.metadata()?.uid();
    if user.is_some_and(|user| user.uid != owner) {
        return Err(std::io::Error::new(
            std::io::ErrorKind::PermissionDenied,
            "it belongs to another user than the CLI's",
        ));
    }
    let mut lines = if is_torn(&mut file)? { vec![b'\n'] } else { Vec::new() };
    for entry in entries {
        lines.extend_from_slice(entry.raw().get().as_bytes());
        lines.push(b'\n');
    }
    file.write_all(&lines)?;
    file.sync_data()
}

/// Whether a kill has cut the last line off.
fn is_torn(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

fn not_open(call: &DeferredCall, why: &str) -> Error {
    let DeferredCall { session_id, tool_use_id, .. } = call;
    let text = format!("the conversation {session_id} cannot go on with the call {tool_use_id}: {why}");
    Error::new(ErrorKind::NoOpenCall, text).with_help(
        "start the session without `resume_call`; the CLI then tells the model that the call was interrupted",
    )
}

impl Loading<'_> {
    /// Writes a call down as deferred in the store, and in the entries that were loaded from it.
    pub(super) async fn defer(
        &self,
        call: &DeferredCall,
        session_id: &str,
        main: &mut Vec<TranscriptEntry>,
    ) -> Result<()> {
        if call.session_id != session_id {
            return Err(not_open(call, "another conversation is resumed"));
        }
        let open = search(&call.tool_use_id, main).map_err(|why| not_open(call, why))?;
        self.append(session_id, main, open.entries).await
    }

    /// Has a conversation in the store not go on by itself with a call that was deferred.
    pub(super) async fn abandon(&self, session_id: &str, main: &mut Vec<TranscriptEntry>) -> Result<()> {
        let last = main.iter().rev().find(|entry| entry.uuid().is_some());
        let Some(call) = last.and_then(marked_call) else { return Ok(()) };
        let mut search = CallSearch::new(&call);
        main.iter().for_each(|entry| search.read(entry));
        self.append(session_id, main, search.abandon()).await
    }

    async fn append(
        &self,
        session_id: &str,
        main: &mut Vec<TranscriptEntry>,
        entries: Vec<TranscriptEntry>,
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let key = SessionKey::new(&self.project_key, session_id);
        let (store, entries): (_, Arc<[_]>) = (self.store.clone(), entries.into());
        let (of, new) = (key.clone(), entries.clone());
        self.limited("append", &key, async move { store.append(&of, &new).await }).await??;
        main.extend_from_slice(&entries);
        Ok(())
    }
}
