//! Settings for mirroring a session to a store and loading it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

with_defaults! {
    /// Settings for a session with a [`SessionStore`](crate::store::SessionStore), which is given to
    /// [`SessionBuilder::session_store`](crate::SessionBuilder::session_store). Without a store these options have no
    /// effect.
    ///
    /// The defaults are those of the official SDKs, where the SDKs have the option.
    pub struct StoreOptions {
        /// Where a session that is resumed from the store keeps the copy of its transcripts and of the user's
        /// configuration. The session makes a folder of its own there and removes it when it ends; a host that is
        /// killed leaves it. The folder has to exist, and the user of [`Options::user`](crate::Options::user) has to be
        /// able to enter it. Default: `None`, which is the system's folder for temporary files.
        pub folder: Option<PathBuf> = None,
        /// When entries are sent to the store. Default: [`StoreFlush::Batched`].
        pub flush: StoreFlush = StoreFlush::Batched,
        /// The scope of the stored sessions, for instance a tenant. Default: `None`, which is the
        /// [`project_key`](crate::sessions::project_key) of the working directory.
        pub project_key: Option<String> = None,
        /// A batch is sent without waiting for a result when it has this many entries. Default: 500.
        pub batch_entries: usize = 500,
        /// A batch is sent without waiting for a result when it has this many bytes. Default: 1 MiB.
        pub batch_bytes: usize = 1 << 20,
        /// Most bytes of entries that wait for a slow store, including the batch that is being sent. Entries beyond
        /// this are not mirrored, which [`Event::MirrorFailed`](crate::Event::MirrorFailed) reports. They are in the
        /// CLI's own transcript, from which [`StoredSessions::import`](crate::store::StoredSessions::import) copies
        /// them. Default: 64 MiB.
        pub queue_bytes: usize = 64 << 20,
        /// Most bytes of messages that wait behind a turn's outcome while the store takes the entries before it. Beyond
        /// this the outcome is delivered without waiting for the store. Default: 16 MiB.
        pub held_bytes: usize = 16 << 20,
        /// The pauses before a failed append is tried again, one attempt for each. In JSON a list of milliseconds.
        /// Default: 200 ms, 800 ms.
        pub retry_pauses: Vec<Duration> = vec![Duration::from_millis(200), Duration::from_millis(800)],
        /// Time limit of an append, in milliseconds in JSON. An append that takes longer is not tried again, because it
        /// may still succeed. Default: 60 s.
        pub append: Duration = Duration::from_secs(60),
        /// Time limit of each call that loads a session before the CLI starts, in milliseconds in JSON. Default: 60 s.
        pub load: Duration = Duration::from_secs(60),
        /// Longest wait of a session that stops until the store has taken the remaining entries, in milliseconds in
        /// JSON; then these entries are reported as lost. Part of
        /// [`Session::shutdown_bound`](crate::Session::shutdown_bound). Default: 10 s.
        pub stop: Duration = Duration::from_secs(10),
    }
}

/// When entries are sent to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreFlush {
    /// Before each result, when a batch is full, and when the CLI ends.
    #[default]
    Batched,
    /// At once, each frame of the CLI separately.
    Eager,
}

impl StoreOptions {
    pub(crate) fn validate(&self) -> Result<()> {
        let bounds = [
            ("batch_entries", self.batch_entries),
            ("batch_bytes", self.batch_bytes),
            ("queue_bytes", self.queue_bytes),
            ("held_bytes", self.held_bytes),
        ];
        if let Some((name, _)) = bounds.iter().find(|(_, value)| *value == 0) {
            return Err(Error::invalid_option(format!("option `store.{name}` is 0"))
                .with_help("give it at least 1, or leave it out for the default"));
        }
        if self.project_key.as_deref() == Some("") {
            return Err(Error::invalid_option("option `store.project_key` is empty")
                .with_help("leave it out to use the project key of the working directory"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{FOREVER, Setting};

    #[test]
    fn zero_bounds_are_refused_and_huge_limits_are_cut() {
        let mut options =
            StoreOptions { append: Duration::MAX, retry_pauses: vec![Duration::MAX], ..Default::default() };
        options.cut();
        assert_eq!((options.append, options.retry_pauses[0]), (FOREVER, FOREVER));
        options.queue_bytes = 0;
        let error = options.validate().unwrap_err();
        assert!(error.to_string().contains("store.queue_bytes"), "{error}");
        let options = StoreOptions { project_key: Some(String::new()), ..Default::default() };
        assert!(options.validate().is_err());
    }
}
