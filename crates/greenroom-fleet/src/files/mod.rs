//! The files of a fleet's sessions.
//!
//! Each name has a folder, called by the id of its conversation. No name becomes a path or a part of one: `../`, NUL and two names
//! that differ only in their case are safe.
//!
//! | below the root | mode | created by | removed by |
//! |---|---|---|---|
//! | the root itself | 0700; 0711 with a pool of users | the fleet, when it opens | nobody; the one of a `MemoryBackend` goes with its last clone |
//! | `<conversation>/` | 0700 | the first activation of the name | the deletion of the name |
//! | `<conversation>/name.json` | 0600 | an activation, if its content changes | the deletion, after all other files |
//! | `<conversation>/work` | 0700 | an activation, if it is missing; the CLI and its tools write here | the deletion |
//! | `<conversation>/config-<term>` | 0700 | in place of `config`, an activation whose transcript is in the backend | the next activation of the name on this host, or the deletion |
//! | `<conversation>/config` | 0700 | an activation, if it is missing; the CLI writes its transcripts here | the deletion |
//! | `<conversation>/home`, `tmp` | 0700 | with a pool of users, an activation, if they are missing; the CLI's `HOME` and `TMPDIR` | the deletion |
//! | `users/<user id>` | 0600 | an activation, with a pool of users; see `users/slip.rs` | nobody |
//!
//! | elsewhere | created by | removed by |
//! |---|---|---|
//! | the transcript in a configuration folder that the profile sets | the CLI | the deletion: this conversation alone |
//! | a working directory that the profile sets | the profile | nobody |
//! | the lock file of the conversation | the session | the session; after a `kill -9` the deletion |
//!
//! Folders that exist keep their modes, except where CLIs run as other users: see `owner.rs`. A symbolic link in the place of a name's folder, or of `work` or `config` in it, is
//! refused; links in these folders are removed and never followed.
//!
//! `name.json` tells a person whose folder it is. A deletion reads from it which other folders have files of the session.

mod apply;
mod name_file;
pub(crate) mod owner;
mod remove;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;
use uuid::Uuid;

use crate::error::FilesError;
use crate::record::NameRecord;
pub(crate) use apply::check_conversation;
use name_file::NameFile;
use remove::check_folder;
pub(crate) use remove::remove_tree;

/// The name of a configuration folder of one activation, before its term.
const CONFIG_OF: &str = "config-";

/// The folder with a folder for each name.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    root: PathBuf,
    /// Each activation has a configuration folder of its own, because the backend has the transcripts. The folder begins empty, and the
    /// session loads its conversation from the backend. So entries that an earlier owner has written to its own folder, and that the
    /// backend has refused, are never read again.
    by_term: bool,
    /// CLIs run as other users of the system.
    has_users: bool,
    removing: Arc<Mutex<()>>,
}

/// The folders of a name.
#[derive(Clone, Debug)]
pub(crate) struct NameFolders {
    pub(crate) folder: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) config: PathBuf,
    /// `HOME` and `TMPDIR` of a CLI that runs as another user. They exist only there.
    pub(crate) home: PathBuf,
    pub(crate) temporary: PathBuf,
}

impl Folders {
    /// Creates nothing yet; see [`open`](Folders::open). `by_term`: each activation has a configuration folder of its own.
    pub(crate) fn at(root: PathBuf, by_term: bool) -> Self {
        Self { root, by_term, has_users: false, removing: Arc::default() }
    }

    /// The same folders, for CLIs that run as other users of the system.
    pub(crate) fn for_users(self) -> Self {
        Self { has_users: true, ..self }
    }

    /// Creates the root, and finds out whether this process can write in it.
    pub(crate) async fn open(&self) -> Result<(), FilesError> {
        let (root, has_users) = (self.root.clone(), self.has_users);
        blocking(move || {
            let mode = if has_users { 0o711 } else { 0o700 };
            DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(&root)
                .and_then(|()| if has_users { let_pass(&root) } else { Ok(()) })
                .map_err(|error| FilesError::of("create the folder", &root, error))?;
            let probe = root.join(format!("probe-{}", Uuid::new_v4()));
            let written = fs::write(&probe, "a fleet tries whether it can write here\n");
            let removed = fs::remove_file(&probe);
            written.and(removed).map_err(|error| FilesError::of("write to the folder", &root, error))
        })
        .await
    }

    /// Creates the folders of a name, for this user alone, and removes configuration folders of earlier terms.
    pub(crate) async fn create(&self, name: &NameRecord) -> Result<NameFolders, FilesError> {
        let (folders, name) = (self.clone(), name.clone());
        blocking(move || {
            let (folder, term) = (folders.folder(name.conversation), name.term.0);
            let own = folders.of(name.conversation, term);
            let of_user = [&own.home, &own.temporary].into_iter().filter(|_| folders.has_users);
            for path in [&folders.root, &folder, &own.work, &own.config].into_iter().chain(of_user) {
                // The root may be a link, which the operator has made.
                own_folder(path, *path == folders.root)?;
            }
            NameFile::change(&folder, |file| file.name_of(&name))?;
            if folders.by_term {
                let removed = remove_earlier(&folder, term);
                removed.map_err(|error| FilesError::of("remove earlier folders in", &folder, error))?;
            }
            Ok(own)
        })
        .await
    }

    /// The folder of the fleet.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folders of a conversation, which need not exist.
    pub(crate) fn of(&self, conversation: Uuid, term: u64) -> NameFolders {
        let folder = self.folder(conversation);
        let config = if self.by_term { format!("{CONFIG_OF}{term}") } else { "config".to_owned() };
        let [work, config, home, temporary] = ["work", &config, "home", "tmp"].map(|name| folder.join(name));
        NameFolders { folder, work, config, home, temporary }
    }

    fn folder(&self, conversation: Uuid) -> PathBuf {
        self.root.join(conversation.to_string())
    }
}

/// Creates a folder, or finds out that it exists and is no link.
fn own_folder(path: &Path, may_be_link: bool) -> Result<(), FilesError> {
    const DOING: &str = "create the folder";
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created.map_err(|error| FilesError::of(DOING, path, error)),
    }
    let found = if may_be_link { fs::metadata(path) } else { fs::symlink_metadata(path) };
    let found = found.map_err(|error| FilesError::of(DOING, path, error))?;
    check_folder(DOING, path, &found)
}

/// Lets other users pass a folder. They need not list it.
fn let_pass(folder: &Path) -> io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode();
    if mode & 0o011 == 0o011 {
        return Ok(());
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(mode | 0o011))
}

/// Removes the configuration folders of terms before this one.
fn remove_earlier(folder: &Path, term: u64) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix(CONFIG_OF));
        if name.and_then(|of| of.parse::<u64>().ok()).is_some_and(|of| of < term) {
            remove_tree(&path)?;
        }
    }
    Ok(())
}

/// `None`: there is nothing at the path.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Runs file work on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FilesError> + Send + 'static,
) -> Result<T, FilesError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(FilesError::of("finish its work in", Path::new("its folders"), io::Error::other(error)))
    })
}
