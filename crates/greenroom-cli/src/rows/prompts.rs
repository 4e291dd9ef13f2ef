//! The lines of a list of prompts.

use greenroom_fleet::{Labels, PromptEntry, PromptOutcome, PromptState};
use serde::Serialize;

use crate::output::Row;
use crate::text::{first_line, moment_of};

/// Characters of a prompt's text in a line.
const TEXT: usize = 80;

/// A prompt of a session. Moments are in milliseconds since 1970.
#[derive(Serialize)]
pub(crate) struct PromptRow {
    id: String,
    state: &'static str,
    accepted_at: u64,
    due_at: u64,
    expires_at: u64,
    begun_at: Option<u64>,
    ended_at: Option<u64>,
    /// The outcome in a word.
    outcome: Option<&'static str>,
    /// Runs that have ended, and those of them that did not tell their cost.
    turns: u64,
    unmetered: u64,
    cost_usd: f64,
    /// The application's key.
    key: Option<String>,
    labels: Labels,
    cursor: String,
    /// `None`: nobody has asked for it. `Some(None)`: there is none, or it is no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Option<String>>,
}

impl PromptRow {
    pub(crate) fn of(entry: &PromptEntry, with_text: bool) -> Self {
        let record = &entry.record;
        let (state, begun_at, ended_at) = match &record.state {
            PromptState::Queued => ("waiting", None, None),
            PromptState::Begun { at, .. } => ("running", Some(at.0), None),
            PromptState::Parked { .. } => ("parked", None, None),
            PromptState::Ended { at, .. } => ("ended", None, Some(at.0)),
            _ => ("unknown", None, None),
        };
        Self {
            id: record.id.to_string(),
            state,
            accepted_at: record.accepted_at.0,
            due_at: record.due_at.0,
            expires_at: record.expires_at.0,
            begun_at,
            ended_at,
            outcome: entry.outcome.as_ref().map(PromptOutcome::word),
            turns: record.usage.turns,
            unmetered: record.usage.unmetered,
            cost_usd: record.usage.cost_usd(),
            key: record.key.clone(),
            labels: record.labels.clone(),
            cursor: entry.cursor().to_string(),
            text: with_text.then(|| entry.text()),
        }
    }
}

impl Row for PromptRow {
    const COLUMNS: &'static [&'static str] =
        &["PROMPT", "STATE", "ACCEPTED", "DUE", "ENDED", "OUTCOME", "COST", "LABELS", "TEXT"];

    fn cells(&self) -> Vec<String> {
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        let labels: Vec<_> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut cells = vec![
            self.id.clone(),
            self.state.to_owned(),
            moment_of(self.accepted_at),
            or_dash((self.due_at > self.accepted_at).then(|| moment_of(self.due_at))),
            or_dash(self.ended_at.map(moment_of)),
            or_dash(self.outcome.map(str::to_owned)),
            or_dash((self.turns > self.unmetered).then(|| format!("{:.6}", self.cost_usd))),
            or_dash((!labels.is_empty()).then(|| labels.join(" "))),
        ];
        cells
            .extend(self.text.as_ref().map(|text| or_dash(text.as_ref().map(|text| first_line(text, TEXT)))));
        cells
    }
}
