//! Messages of turns, and rows of texts: texts that are kept together share a row.
//!
//! The key ends with the number of the last text in the row, so a scan from a number begins with the row that has it. The value is a
//! JSON array: the lengths of the texts in bytes, then the texts as they are, such as `[[4,1],"ab",7]`.

use super::key::{Key, Table, number};
use super::{Result, Step};
use crate::error::BackendError;
use crate::id::PromptId;
use crate::request::StoredMessage;

/// Texts in a row.
const MOST: usize = 64;
/// Bytes of the texts in a row: the row and its key fill a page of 16 KiB. One text may be longer.
const MOST_BYTES: usize = 15_900;

/// Texts on their way into a row.
#[derive(Default)]
pub(super) struct TextRow<'a> {
    texts: Vec<&'a str>,
    bytes: usize,
    last_seq: u64,
}

impl TextRow<'_> {
    fn has_room(&self, json: &str) -> bool {
        self.texts.len() < MOST && self.bytes + json.len() <= MOST_BYTES
    }

    fn value(&self) -> Vec<u8> {
        let lengths: Vec<String> = self.texts.iter().map(|json| json.len().to_string()).collect();
        let mut value = format!("[[{}]", lengths.join(","));
        value.reserve_exact(self.bytes + self.texts.len() + 1);
        for json in &self.texts {
            value.push(',');
            value.push_str(json);
        }
        value.push(']');
        value.into_bytes()
    }
}

impl Step<'_> {
    /// Adds the next message of a turn to a row, and keeps the row first if it has no room. The caller keeps the last row.
    pub(super) fn add_message<'a>(
        &mut self,
        prompt: PromptId,
        row: &mut TextRow<'a>,
        seq: u64,
        json: &'a str,
    ) -> Result<()> {
        self.add_text(&of_prompt(prompt), row, seq, json)
    }

    /// Keeps a row of messages, unless it is empty.
    pub(super) fn keep_messages(&mut self, prompt: PromptId, row: TextRow<'_>) -> Result<()> {
        self.keep_texts(&of_prompt(prompt), row)
    }

    /// Kept messages of a turn with numbers after `after`, in order.
    pub(crate) fn messages(&self, prompt: PromptId, after: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        // Messages of a prompt that is being forgotten may still be there.
        if self.txn.get(Key::of(Table::Prompts).prompt(prompt).bytes())?.is_none() {
            return Ok(Vec::new());
        }
        let prefix = of_prompt(prompt);
        let mut found: Vec<StoredMessage> = Vec::new();
        // A row has one message or many. Few rows first, so that few are read in vain.
        let (mut last, mut rows) = (after, 1);
        while found.len() < limit {
            let scanned = self.txn.after(&prefix, &prefix.clone().number(last), rows)?;
            for (key, value) in &scanned {
                last = number(key)?;
                let (left, texts) = (limit - found.len(), of_row(last, value)?);
                found.extend(texts.filter(|message| message.0 > after).take(left).map(stored));
            }
            if scanned.len() < rows {
                break;
            }
            rows = (rows * 2).min(limit - found.len());
        }
        Ok(found)
    }

    /// Removes messages of a turn, up to a number of rows. Answers with the number of rows. `None`: there may be more.
    pub(super) fn forget_messages(&mut self, id: PromptId, limit: usize) -> Result<Option<usize>> {
        self.txn.remove_under(&of_prompt(id), limit)
    }

    /// Adds the next text to a row, and keeps the row first if it has no room. The caller keeps the last row.
    pub(super) fn add_text<'a>(
        &mut self,
        prefix: &Key,
        row: &mut TextRow<'a>,
        seq: u64,
        json: &'a str,
    ) -> Result<()> {
        if !row.has_room(json) {
            self.keep_texts(prefix, std::mem::take(row))?;
        }
        row.texts.push(json);
        row.bytes += json.len();
        row.last_seq = seq;
        Ok(())
    }

    /// Keeps a row of texts, unless it is empty.
    pub(super) fn keep_texts(&mut self, prefix: &Key, row: TextRow<'_>) -> Result<()> {
        if row.texts.is_empty() {
            return Ok(());
        }
        self.txn.put(prefix.clone().number(row.last_seq).bytes(), &row.value())
    }
}

fn of_prompt(prompt: PromptId) -> Key {
    Key::of(Table::Messages).prompt(prompt)
}

/// The texts of a row with their numbers.
pub(super) fn of_row(last: u64, value: &[u8]) -> Result<impl Iterator<Item = (u64, &str)>> {
    let texts = texts(value)?;
    let before = last.checked_sub(texts.len() as u64).ok_or_else(spoilt)?;
    Ok((before + 1..).zip(texts))
}

fn stored((seq, json): (u64, &str)) -> StoredMessage {
    StoredMessage { seq, json: json.to_owned() }
}

fn texts(value: &[u8]) -> Result<Vec<&str>> {
    let value = std::str::from_utf8(value).map_err(BackendError::damaged)?;
    let (lengths, mut rest) =
        value.strip_prefix("[[").and_then(|value| value.split_once(']')).ok_or_else(spoilt)?;
    let mut texts = Vec::new();
    for length in lengths.split(',') {
        let length: usize = length.parse().map_err(BackendError::damaged)?;
        let text = rest.strip_prefix(',').ok_or_else(spoilt)?;
        let text = text.split_at_checked(length).ok_or_else(spoilt)?;
        texts.push(text.0);
        rest = text.1;
    }
    if rest == "]" { Ok(texts) } else { Err(spoilt()) }
}

#[derive(Debug, thiserror::Error)]
#[error("a row of texts has not the lengths that it names")]
struct Spoilt;

fn spoilt() -> BackendError {
    BackendError::damaged(Spoilt)
}
