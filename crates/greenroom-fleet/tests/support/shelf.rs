//! A backend over a `BTreeMap` behind a lock: the least that a backend is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use greenroom_fleet::backend::{
    Backend, Channels, Commit, Committed, Lane, Map, MapMut, Range, Reply, Row, Rows, Wanted, commit_rows,
    read_rows,
};
use greenroom_fleet::{BackendError, Clock, Timestamp};

type Result<T> = std::result::Result<T, BackendError>;

#[derive(Clone)]
pub(crate) struct Shelf {
    rows: Arc<Mutex<Sorted>>,
    clock: Clock,
    channels: Channels,
}

/// The rows, which outlive the backends over them.
#[derive(Default)]
pub(crate) struct Sorted(BTreeMap<Vec<u8>, Vec<u8>>);

impl Map for Sorted {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, range: &Range) -> Result<Vec<Row>> {
        let rows = self.0.range(range.from.clone()..range.to.clone()).take(range.limit);
        Ok(rows.map(|(key, value)| range.row(key, value)).collect())
    }
}

impl MapMut for Sorted {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.remove(key);
        Ok(())
    }
}

impl Shelf {
    /// A backend that hears of no change which another one over the same rows makes.
    pub(crate) fn over(rows: Arc<Mutex<Sorted>>, clock: Clock) -> Self {
        Self { rows, clock, channels: Channels::new() }
    }
}

impl Backend for Shelf {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn read(&self, _: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        Box::pin(async move { read_rows(&*self.rows.lock().unwrap(), wanted) })
    }

    fn commit(&self, _: Lane, commit: Commit) -> Reply<'_, Committed> {
        Box::pin(async move {
            // Other requests come between the read and the commit of a request.
            tokio::task::yield_now().await;
            let mut rows = self.rows.lock().unwrap();
            let committed = commit_rows(&mut *rows, &commit)?;
            if committed == Committed::Done {
                self.channels.tell(commit.told);
            }
            Ok(committed)
        })
    }

    fn channels(&self) -> &Channels {
        &self.channels
    }

    fn is_shared(&self) -> bool {
        false
    }
}
