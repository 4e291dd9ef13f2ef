//! The archive mark of a session: a file of its own beside the transcript, which is not touched.
//!
//! The form is that of TypeScript SDK 0.3.330: `archived.json` in the session's folder, with the state and the time of
//! the change.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::json;

use super::find::disk::{self, SessionFile};
use super::read::summary::millis;
use crate::error::Result;
use crate::files::private_folders;

const FILE: &str = "archived.json";

/// Most bytes of a mark; a larger file is ignored.
const MARK: u64 = 4096;

#[derive(Deserialize)]
struct ArchiveMark {
    archived: bool,
    at: String,
}

/// Whether the session is archived; `None` if it has no mark. A prompt after the time of the mark unarchives the
/// session.
pub(crate) fn state(file: &SessionFile, last_asked: Option<u64>) -> Option<bool> {
    let mut text = String::new();
    let mut mark = File::open(file.own_folder().join(FILE)).ok()?.take(MARK + 1);
    mark.read_to_string(&mut text).ok()?;
    if text.len() as u64 > MARK {
        return None;
    }
    let mark: ArchiveMark = serde_json::from_str(&text).ok()?;
    let at = millis(&mark.at)?;
    Some(mark.archived && last_asked.is_none_or(|asked| asked <= at))
}

/// Writes the mark atomically.
pub(crate) fn mark(file: &SessionFile, archived: bool) -> Result<()> {
    let folder = file.own_folder();
    let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let text = json!({ "archived": archived, "at": at, "by": "sdk" }).to_string();
    write(&folder, &text).map_err(|error| disk::failed("cannot be written", &folder.join(FILE), error))
}

fn write(folder: &Path, text: &str) -> std::io::Result<()> {
    private_folders(folder)?;
    // A temporary file has mode 0600, and keeps it when it is renamed.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(folder.join(FILE)).map_err(|error| error.error)?;
    Ok(())
}
