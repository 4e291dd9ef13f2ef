//! A configuration folder for each activation, for sessions whose transcripts are in the backend.
//!
//! The folder begins empty, and the session loads its conversation from the backend. So entries that an earlier owner has written to
//! its own folder, and that the backend has refused, are never read again.

use std::fs;
use std::path::Path;

use super::remove::remove_tree;
use super::{Folders, NameFolders, blocking};
use crate::error::{FilesError, FilesResult as Result};
use crate::record::NameRecord;

/// The name of the folder, before the term.
const PREFIX: &str = "config-";

impl Folders {
    /// Creates the folders of a name, with a configuration folder of this term alone, and removes those of earlier terms.
    pub(crate) async fn create_for_term(&self, name: &NameRecord) -> Result<NameFolders> {
        let (folder, term) = (self.folder(name.conversation), name.term.0);
        let own =
            NameFolders { config: folder.join(format!("{PREFIX}{term}")), ..self.of(name.conversation) };
        let own = self.create_as(name, own).await?;
        blocking(move || remove_earlier(&folder, term)).await?;
        Ok(own)
    }
}

fn remove_earlier(folder: &Path, term: u64) -> Result<()> {
    let failed = |path: &Path, error| FilesError::of("remove", path, error);
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        let of = path.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX)?.parse::<u64>().ok());
        if of.is_some_and(|of| of < term) {
            remove_tree(&path).map_err(|error| failed(&path, error))?;
        }
    }
    Ok(())
}
