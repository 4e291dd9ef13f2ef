//! The files that backends of this process have open. The system's lock refuses at once; this table lets an opening wait for a
//! backend of this process that is closing.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The time for which an opening waits for a backend of this process that has the file. A backend closes some time
/// after its last clone was dropped: it finishes what waits, and tasks of a fleet that has just ended may still hold a
/// clone.
const CLOSES: Duration = Duration::from_secs(2);

static HELD: Mutex<Option<HashSet<String>>> = Mutex::new(None);
static FREED: Condvar = Condvar::new();

/// A file that a backend of this process has open, until this is dropped.
#[derive(Debug)]
pub(super) struct Hold(String);

impl Hold {
    /// Holds a file, by its identity. `None`: another backend of this process holds it, and does not close.
    pub(super) fn take(identity: String) -> Option<Self> {
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        let is_held = |held: &mut Option<HashSet<String>>| held.get_or_insert_default().contains(&identity);
        let waited = FREED.wait_timeout_while(held, CLOSES, is_held);
        let (mut held, _) = waited.unwrap_or_else(PoisonError::into_inner);
        held.get_or_insert_default().insert(identity.clone()).then(|| Self(identity))
    }

    pub(super) fn is(&self, identity: &str) -> bool {
        self.0 == identity
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().remove(&self.0);
        FREED.notify_all();
    }
}

/// The identity of an open file: the same one for all its names.
pub(super) fn identity(file: &File) -> io::Result<String> {
    let found = file.metadata()?;
    Ok(format!("{}:{}", found.dev(), found.ino()))
}
