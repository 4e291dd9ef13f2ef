//! Rows of messages: messages of a turn that are kept together share a row.
//!
//! The key is the prompt and the number of the last message in the row, so a scan from a number begins with the row that has
//! it. The value is a JSON array: the lengths of the messages in bytes, then the messages as they are, such as `[[4,1],"ab",7]`.

use super::key::{Key, Table};
use super::{Result, Step};
use crate::error::BackendError;
use crate::id::PromptId;
use crate::request::StoredMessage;

/// Messages in a row.
const MOST: usize = 64;
/// Bytes of the messages in a row: the row and its key fill a page of 16 KiB. One message may be longer.
const MOST_BYTES: usize = 15_900;

/// Messages on their way into a row.
#[derive(Default)]
pub(super) struct MessageRow<'a> {
    messages: Vec<&'a str>,
    bytes: usize,
    last_seq: u64,
}

impl<'a> MessageRow<'a> {
    fn has_room(&self, json: &str) -> bool {
        self.messages.len() < MOST && self.bytes + json.len() <= MOST_BYTES
    }

    fn value(&self) -> Vec<u8> {
        let lengths: Vec<String> = self.messages.iter().map(|json| json.len().to_string()).collect();
        let mut value = format!("[[{}]", lengths.join(","));
        value.reserve_exact(self.bytes + self.messages.len() + 1);
        for json in &self.messages {
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
        row: &mut MessageRow<'a>,
        seq: u64,
        json: &'a str,
    ) -> Result<()> {
        if !row.has_room(json) {
            self.keep_messages(prompt, std::mem::take(row))?;
        }
        row.messages.push(json);
        row.bytes += json.len();
        row.last_seq = seq;
        Ok(())
    }

    /// Keeps a row, unless it is empty.
    pub(super) fn keep_messages(&mut self, prompt: PromptId, row: MessageRow<'_>) -> Result<()> {
        if row.messages.is_empty() {
            return Ok(());
        }
        let key = Key::of(Table::Messages).prompt(prompt).number(row.last_seq);
        self.txn.put(key.bytes(), &row.value())
    }

    /// Kept messages of a turn with numbers after `after`, in order.
    pub(crate) fn messages(&self, prompt: PromptId, after: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        // Messages of a prompt that is being forgotten may still be there.
        if self.txn.get(Key::of(Table::Prompts).prompt(prompt).bytes())?.is_none() {
            return Ok(Vec::new());
        }
        let prefix = Key::of(Table::Messages).prompt(prompt);
        let mut found: Vec<StoredMessage> = Vec::new();
        // A row has one message or many. Few rows first, so that few are read in vain.
        let (mut last, mut rows) = (after, 1);
        while found.len() < limit {
            let scanned =
                self.txn.after(&prefix, &Key::of(Table::Messages).prompt(prompt).number(last), rows)?;
            for (key, value) in &scanned {
                last = key.as_slice().try_into().map(u64::from_be_bytes).map_err(BackendError::damaged)?;
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

    /// Removes messages of a turn, up to a number of rows. Returns the number of rows.
    pub(super) fn forget_messages(&mut self, id: PromptId, limit: usize) -> Result<usize> {
        self.txn.remove_under(&Key::of(Table::Messages).prompt(id), limit)
    }
}

/// The messages of a row with their numbers.
fn of_row(last: u64, value: &[u8]) -> Result<impl Iterator<Item = (u64, &str)>> {
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
#[error("a row of messages has not the lengths that it names")]
struct Spoilt;

fn spoilt() -> BackendError {
    BackendError::damaged(Spoilt)
}
