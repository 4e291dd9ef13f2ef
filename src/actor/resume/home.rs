//! The configuration folder of a session from a store, laid out for the CLI and removed with the session.
//!
//! ```text
//!   <temporary>/projects/<project>/<session>.jsonl                        from the store
//!                                 /<session>/subagents/agent-1.jsonl      from the store
//!                                                     /agent-1.meta.json  from the store's `agent_metadata` entry
//!   <temporary>/.credentials.json      from the user's configuration, without the refresh token
//!              /.claude.json           from the user's configuration
//!              /settings.json          from the user's configuration, without plugins
//! ```
//!
//! The copy of the login has no refresh token, because that can be used once: a CLI that used it here would log the
//! user out everywhere else.
//!
//! The folder belongs to the user that the CLI runs as, and is closed to others (0700). A host that is killed leaves
//! the folder behind, in `store.folder` or the system's folder for temporary files.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;
use tempfile::TempDir;

use super::Loaded;
use crate::Options;
use crate::blocking::in_background;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{is_absent, open_of};
use crate::options::OsUser;
use crate::sessions::{TranscriptEntry, config_dir, sidecar_path, variable};
use crate::store::{AGENT_METADATA, metadata};
use crate::transport::private::{hand_to, private_dir_in, write_private};

/// Settings that are not copied: the CLI would install plugins again into the empty folder.
const NOT_COPIED: [&str; 2] = ["enabledPlugins", "extraKnownMarketplaces"];

/// The configuration folder of a session that was loaded from a store. Dropping it removes the folder.
pub(crate) struct ResumeHome(Option<TempDir>);

impl ResumeHome {
    pub(super) fn new(dir: TempDir) -> Self {
        Self(Some(dir))
    }

    /// Removes the folder. Call this when the CLI is gone.
    pub(crate) async fn remove(mut self) {
        if let Some(dir) = self.0.take() {
            // `remove` logs its errors.
            tokio::task::spawn_blocking(move || remove(dir)).await.ok();
        }
    }
}

impl Drop for ResumeHome {
    fn drop(&mut self) {
        if let Some(dir) = self.0.take() {
            in_background(move || remove(dir));
        }
    }
}

fn remove(dir: TempDir) {
    let path = dir.path().to_owned();
    // Tried twice: a CLI that was killed a moment ago may have added a file while the others were being removed.
    if dir.close().is_err()
        && let Err(error) = fs::remove_dir_all(&path)
        && !is_absent(&error)
    {
        tracing::warn!(path = %path.display(), %error, "a copy of a session could not be removed");
    }
}

/// The paths of the user's own configuration.
pub(super) struct UserConfig {
    config_dir: PathBuf,
    claude_json: PathBuf,
}

impl UserConfig {
    pub(super) fn of(options: &Options) -> Result<Self> {
        let look_up = |name: &str| variable(options, name);
        let config_dir = config_dir(look_up)?;
        let is_set = look_up("CLAUDE_CONFIG_DIR").is_some_and(|dir| !dir.is_empty());
        // Without the variable, `.claude.json` is beside the folder and not in it.
        let beside = config_dir.parent().filter(|_| !is_set).unwrap_or(&config_dir);
        Ok(Self { claude_json: beside.join(".claude.json"), config_dir })
    }
}

/// Creates the folder from the loaded transcripts and a copy of the user's configuration.
pub(super) fn write(
    parent: &Path,
    folder: &str,
    loaded: Loaded,
    config: &UserConfig,
    user: Option<OsUser>,
) -> Result<TempDir> {
    let refused = |error: io::Error| {
        let text = format!("the session could not be written for the CLI: {error}");
        Error::new(ErrorKind::Io, text).with_source(error)
    };
    let home = private_dir_in(parent).map_err(refused)?;
    let project = home.path().join("projects").join(folder);
    let Loaded { session_id, main, parts } = loaded;
    write_entries(&project.join(format!("{session_id}.jsonl")), &main).map_err(refused)?;
    for (subpath, mut entries) in parts {
        let path = project.join(&session_id).join(format!("{subpath}.jsonl"));
        let note = metadata(&entries);
        entries.retain(|entry| entry.kind() != Some(AGENT_METADATA));
        write_entries(&path, &entries).map_err(refused)?;
        if let Some(note) = note {
            write_private(&sidecar_path(&path), note.to_string().as_bytes()).map_err(refused)?;
        }
    }
    let owners = owners(config, user);
    let copy = |from: &Path, to: &Path, change: fn(&mut Value)| copy(from, to, &owners, change);
    copy(
        &config.config_dir.join(".credentials.json"),
        &home.path().join(".credentials.json"),
        without_refresh,
    );
    copy(&config.claude_json, &home.path().join(".claude.json"), |_| {});
    for name in ["settings.json", "cowork_settings.json"] {
        copy(&config.config_dir.join(name), &home.path().join(name), without_plugins);
    }
    hand_to(user, home.path()).map_err(refused)?;
    Ok(home)
}

fn write_entries(path: &Path, entries: &[TranscriptEntry]) -> io::Result<()> {
    let mut text = Vec::new();
    for entry in entries {
        // A line break inside an entry can only be white space between its tokens: a string would escape it.
        text.extend(
            entry.raw().get().bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }),
        );
        text.push(b'\n');
    }
    write_private(path, &text)
}

/// The users whose files are copied for a CLI that runs as another user: that user, and the owner of the configuration folder. In a
/// folder of its own the CLI may have made links to files of others.
fn owners(config: &UserConfig, user: Option<OsUser>) -> Vec<u32> {
    let of_folder = fs::metadata(&config.config_dir).ok().map(|found| found.uid());
    user.map(|user| [Some(user.uid), of_folder]).into_iter().flatten().flatten().collect()
}

/// Copies a file of the user's configuration, changed. A missing file is skipped; a file that cannot be read, or belongs to nobody of
/// the `owners` if there are any, is logged.
fn copy(from: &Path, to: &Path, owners: &[u32], change: impl FnOnce(&mut Value)) {
    let copied = || -> io::Result<()> {
        if !fs::metadata(from)?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut text = Vec::new();
        open_of(from, owners)?.read_to_end(&mut text)?;
        let json = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        let Ok(mut value) = serde_json::from_slice::<Value>(json) else {
            // Not copied as it is: it may hold a login with its refresh token.
            return Err(io::Error::other("it is no JSON"));
        };
        change(&mut value);
        write_private(to, value.to_string().as_bytes())
    };
    match copied() {
        Err(error) if !is_absent(&error) => {
            tracing::warn!(path = %from.display(), %error, "a resumed session goes without this file");
        }
        _ => {}
    }
}

fn without_refresh(credentials: &mut Value) {
    if let Some(login) = credentials.get_mut("claudeAiOauth").and_then(Value::as_object_mut) {
        login.remove("refreshToken");
    }
}

fn without_plugins(settings: &mut Value) {
    let Some(settings) = settings.as_object_mut() else { return };
    for name in NOT_COPIED {
        settings.remove(name);
    }
    // The setting would lead the CLI away from this folder.
    if let Some(env) = settings.get_mut("env").and_then(Value::as_object_mut) {
        env.remove("CLAUDE_CONFIG_DIR");
    }
}
