//! Messages of turns, and rows of texts: texts that are kept together share a row.
//!
//! The key ends with the number of the last text in the row, so a scan from a number begins with the row that has it. The value is a
//! JSON array: the lengths of the texts in bytes, then the texts as they are, such as `[[4,1],"ab",7]`.

use super::key::{Key, Table, number};
use super::{Result, Step};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::PromptId;
use crate::request::StoredText;

/// Texts in a row.
const MOST: usize = 64;
/// Bytes of the texts in a row: the row and its key fill a page of 16 KiB. One text may be longer.
const MOST_BYTES: usize = 15_900;
/// Rows of a page of texts.
const PAGE_ROWS: usize = 256;
/// Bytes of a page of messages. The last row may have more bytes.
const MESSAGES_BYTES: u64 = 1 << 20;

impl Step<'_> {
    /// A page of kept messages of a turn with numbers after `after`, in order.
    pub(crate) fn messages(&self, prompt: PromptId, after: u64, limit: usize) -> Result<Vec<StoredText>> {
        // Messages of a prompt that is being forgotten may still be there.
        if self.txn.get(Key::of(Table::Prompts).prompt(prompt).bytes()).is_none() {
            return Ok(Vec::new());
        }
        self.texts(&of_prompt(prompt), after, limit, MESSAGES_BYTES)
    }

    /// The first texts with numbers after `after`: up to `limit`, and up to the row that reaches this many bytes.
    pub(super) fn texts(
        &self,
        prefix: &Key,
        after: u64,
        limit: usize,
        bytes: u64,
    ) -> Result<Vec<StoredText>> {
        let mut texts = Vec::new();
        let last = prefix.clone().number(after);
        for (key, row) in self.txn.after_within(prefix, &last, limit.min(PAGE_ROWS), bytes)? {
            texts.extend(of_row(number(&key)?, &row, after)?);
        }
        texts.truncate(limit);
        Ok(texts)
    }

    /// Keeps texts with the numbers from `first` on, in as few rows as have room for them.
    pub(super) fn keep_texts(&mut self, prefix: &Key, first: u64, texts: &[&str]) {
        let mut next = first;
        for row in runs(texts, MOST, MOST_BYTES, |text| text.len()) {
            next += row.len() as u64;
            let lengths: Vec<_> = row.iter().map(|text| text.len().to_string()).collect();
            let value = format!("[[{}],{}]", lengths.join(","), row.join(","));
            self.txn.put(prefix.clone().number(next - 1).bytes(), value.as_bytes());
        }
    }
}

/// Splits items into runs of `most` items and `most_bytes` bytes at most. One item may have more bytes.
pub(crate) fn runs<T>(
    mut items: &[T],
    most: usize,
    most_bytes: usize,
    bytes: impl Fn(&T) -> usize,
) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut sum = 0;
        let fits = items.iter().take(most).take_while(|item| {
            sum += bytes(item);
            sum <= most_bytes
        });
        let (run, rest) = items.split_at(fits.count().max(1).min(items.len()));
        items = rest;
        (!run.is_empty()).then_some(run)
    })
}

pub(super) fn of_prompt(prompt: PromptId) -> Key {
    Key::of(Table::Messages).prompt(prompt)
}

/// The texts of a row with numbers after `after`.
fn of_row(last: u64, value: &[u8], after: u64) -> Result<impl Iterator<Item = StoredText>> {
    let spoilt = || {
        let message = "a row of texts has not the lengths that it names; restore the file from a backup";
        BackendError::new(BackendErrorKind::Damaged, message)
    };
    let texts = texts(value).ok_or_else(spoilt)?;
    let before = last.checked_sub(texts.len() as u64).ok_or_else(spoilt)?;
    let later = (before + 1..).zip(texts).filter(move |(number, _)| *number > after);
    Ok(later.map(|(number, json)| StoredText { number, json: json.to_owned() }))
}

/// The texts of a row. `None`: it has not the lengths that it names.
fn texts(value: &[u8]) -> Option<Vec<&str>> {
    let value = std::str::from_utf8(value).ok()?;
    let (lengths, mut rest) = value.strip_prefix("[[")?.split_once(']')?;
    let mut texts = Vec::new();
    for length in lengths.split(',') {
        let (text, behind) = rest.strip_prefix(',')?.split_at_checked(length.parse().ok()?)?;
        texts.push(text);
        rest = behind;
    }
    (rest == "]").then_some(texts)
}
