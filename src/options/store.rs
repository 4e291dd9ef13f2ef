//! How a session is mirrored to a store, and loaded from one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::timeouts::{FOREVER, millis};
use crate::error::{Error, Result};

/// How long a `FileStore` waits before it looks again whether a file is still locked. No limit: that is `append`.
pub(crate) const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// How a session deals with its [`SessionStore`](crate::store::SessionStore), which is given to the
/// [`SessionBuilder`](crate::SessionBuilder::session_store). Without a store nothing here counts.
///
/// The defaults are those of the official SDKs, where these have one.
///
/// ```
/// use greenroom::{StoreFlush, StoreOptions};
///
/// let store = StoreOptions { flush: StoreFlush::Eager, ..StoreOptions::default() };
/// assert_eq!(store.batch_entries, 500);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreOptions {
    /// When the store is given what the CLI has written. Default: [`StoreFlush::Batched`].
    pub flush: StoreFlush,
    /// The scope under which sessions are kept, a tenant for instance. Default: `None`, the
    /// [`project_key`](crate::sessions::project_key) of the working directory.
    pub project_key: Option<String>,
    /// How many entries may wait before the store is given them, without a result. Default: 500.
    pub batch_entries: usize,
    /// How many bytes of entries may wait before the store is given them, without a result. Default: 1 MiB.
    pub batch_bytes: usize,
    /// How many bytes of entries may wait for a store that is slow, those that it is being given among them. What comes
    /// beyond it is not mirrored, which is told by [`Event::MirrorFailed`](crate::Event::MirrorFailed); the CLI's own
    /// transcript has it, and [`StoredSessions::import`](crate::store::StoredSessions::import) brings it to the store.
    /// Default: 64 MiB.
    pub queue_bytes: usize,
    /// How many bytes of messages may wait behind a turn's outcome while the store is given what came before it. Beyond it
    /// the outcome is given without waiting any longer. Default: 16 MiB.
    pub held_bytes: usize,
    /// How long to wait before an append that has failed is tried again, once for each. In a config file they are numbers of
    /// milliseconds. Default: 200 ms, 800 ms.
    #[serde(with = "list_of_millis")]
    pub retry_pauses: Vec<Duration>,
    /// How long an append may take. One that takes longer is given up and not tried again, for it may still come to its end.
    /// Default: 60 s.
    #[serde(with = "millis")]
    pub append: Duration,
    /// How long each call may take that loads a session before the CLI starts. Default: 60 s.
    #[serde(with = "millis")]
    pub load: Duration,
    /// How long a session that stops waits for the store to take what is left; then that is told as lost. A part of
    /// [`Session::shutdown_bound`](crate::Session::shutdown_bound) of a session with a store. Default: 10 s.
    #[serde(with = "millis")]
    pub stop: Duration,
}

/// When a store is given what the CLI has written.
///
/// ```
/// assert_eq!(greenroom::StoreFlush::default(), greenroom::StoreFlush::Batched);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreFlush {
    /// Before each result, when a batch is full, and when the CLI ends.
    #[default]
    Batched,
    /// At once, each frame of the CLI by itself.
    Eager,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            flush: StoreFlush::Batched,
            project_key: None,
            batch_entries: 500,
            batch_bytes: 1 << 20,
            queue_bytes: 64 << 20,
            held_bytes: 16 << 20,
            retry_pauses: vec![Duration::from_millis(200), Duration::from_millis(800)],
            append: Duration::from_secs(60),
            load: Duration::from_secs(60),
            stop: Duration::from_secs(10),
        }
    }
}

impl StoreOptions {
    pub(super) fn validate(&self) -> Result<()> {
        let bounds = [
            ("batch_entries", self.batch_entries),
            ("batch_bytes", self.batch_bytes),
            ("queue_bytes", self.queue_bytes),
            ("held_bytes", self.held_bytes),
        ];
        if let Some((name, _)) = bounds.iter().find(|(_, value)| *value == 0) {
            return Err(Error::invalid_option(format!("option `store.{name}` must be at least 1")));
        }
        if self.project_key.as_deref() == Some("") {
            return Err(Error::invalid_option("option `store.project_key` is empty")
                .with_help("leave it out for the name of the working directory"));
        }
        Ok(())
    }

    /// Cuts limits that a clock could not add up.
    pub(crate) fn clamp(&mut self) {
        let limits = [&mut self.append, &mut self.load, &mut self.stop];
        for limit in limits.into_iter().chain(&mut self.retry_pauses) {
            *limit = (*limit).min(FOREVER);
        }
    }
}

/// Durations as numbers of milliseconds.
mod list_of_millis {
    use super::{Deserialize, Duration};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(value.iter().map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Duration>, D::Error> {
        Ok(Vec::<u64>::deserialize(deserializer)?.into_iter().map(Duration::from_millis).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_file_says_milliseconds() {
        let options: StoreOptions =
            serde_json::from_str(r#"{"flush": "eager", "retry_pauses": [5], "append": 100}"#).unwrap();
        assert_eq!(options.retry_pauses, [Duration::from_millis(5)]);
        assert_eq!((options.flush, options.append), (StoreFlush::Eager, Duration::from_millis(100)));
        let again: StoreOptions = serde_json::from_str(&serde_json::to_string(&options).unwrap()).unwrap();
        assert_eq!(again, options);
        assert!(serde_json::from_str::<StoreOptions>(r#"{"apend": 1}"#).is_err(), "a typing error is told");
    }

    #[test]
    fn a_bound_of_nothing_is_refused_and_a_limit_of_for_ever_is_not() {
        let mut options =
            StoreOptions { append: Duration::MAX, retry_pauses: vec![Duration::MAX], ..Default::default() };
        options.clamp();
        assert_eq!((options.append, options.retry_pauses[0]), (FOREVER, FOREVER));
        options.queue_bytes = 0;
        let error = options.validate().unwrap_err();
        assert!(error.to_string().contains("store.queue_bytes"), "{error}");
        let options = StoreOptions { project_key: Some(String::new()), ..Default::default() };
        assert!(options.validate().is_err());
    }
}
