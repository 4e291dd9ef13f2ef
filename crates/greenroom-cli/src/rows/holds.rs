//! Credentials that the API rejects for now.

use greenroom_fleet::{Cause, Hold, Timestamp};
use serde::Serialize;

use crate::output::Row;
use crate::text::age;

/// A credential that is held. Moments are in milliseconds since 1970, on the backend's clock.
#[derive(Serialize)]
pub(crate) struct HoldRow {
    credential: String,
    cause: Cause,
    since: u64,
    until: u64,
    resets_at: Option<u64>,
    tries: u32,
    /// The prompt that tries.
    trying: Option<String>,
    why: String,
    #[serde(skip)]
    now: Timestamp,
}

impl HoldRow {
    pub(crate) fn of(hold: &Hold, now: Timestamp) -> Self {
        Self {
            credential: hold.credential.to_string(),
            cause: hold.cause,
            since: hold.since.0,
            until: hold.until.0,
            resets_at: hold.resets_at.map(|at| at.0),
            tries: hold.tries,
            trying: hold.trying.as_ref().map(|trying| trying.prompt.to_string()),
            why: hold.why.clone(),
            now,
        }
    }
}

impl Row for HoldRow {
    const COLUMNS: &'static [&'static str] = &["CREDENTIAL", "CAUSE", "SINCE", "NEXT", "TRIES", "WHY"];

    fn cells(&self) -> Vec<String> {
        let next = match &self.trying {
            Some(_) => "tries".to_owned(),
            None => age(Timestamp(self.until).since(self.now)),
        };
        vec![
            self.credential.clone(),
            self.cause.to_string(),
            age(self.now.since(Timestamp(self.since))),
            next,
            self.tries.to_string(),
            self.why.clone(),
        ]
    }
}
