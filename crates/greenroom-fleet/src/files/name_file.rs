//! `name.json`: whose folder it is, and where else the session has files.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::found;
use crate::error::FilesError;
use crate::record::NameRecord;

pub(super) const FILE: &str = "name.json";

/// The longest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// The content of `name.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NameFile {
    name: String,
    profile: String,
    /// Configuration folders that the profile has set. The session's transcript lies there.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) config_folders: BTreeSet<PathBuf>,
    /// Folders for lock files that the profile has set.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) lock_folders: BTreeSet<PathBuf>,
}

impl NameFile {
    pub(super) fn name_of(&mut self, record: &NameRecord) {
        self.name = record.name.to_string();
        self.profile.clone_from(&record.profile);
    }

    /// Reads the file in a name's folder. A missing or spoilt one is empty: the folder is found by its id alone.
    pub(super) fn read(folder: &Path) -> Result<Self, FilesError> {
        let path = folder.join(FILE);
        let text = found(text_of(&path)).map_err(|error| FilesError::of("read the file", &path, error))?;
        let Some(text) = text else { return Ok(Self::default()) };
        Ok(serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "the file that names a session's folder is spoilt");
            Self::default()
        }))
    }

    /// Changes the content of the file in a name's folder, and writes the file if its content is another one then. A power cut leaves the old or the new one.
    pub(super) fn change(folder: &Path, change: impl FnOnce(&mut Self)) -> Result<(), FilesError> {
        let known = Self::read(folder)?;
        let mut file = known.clone();
        change(&mut file);
        if file == known {
            return Ok(());
        }
        let path = folder.join(FILE);
        let new = folder.join("name.json.new");
        file.write(&new, &path).map_err(|error| FilesError::of("write the file", &path, error))
    }

    fn write(&self, new: &Path, path: &Path) -> io::Result<()> {
        // A rest of an attempt that a crash has cut off, or something in the way of it.
        found(fs::remove_file(new))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(new, path)
    }
}

/// The text of the file. The session's tools can write beside it: a pipe or an endless file in its place counts as empty.
fn text_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if fs::symlink_metadata(path)?.is_file() {
        fs::File::open(path)?.take(MAX_BYTES).read_to_end(&mut text)?;
    }
    Ok(text)
}
