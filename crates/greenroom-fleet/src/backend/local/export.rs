//! An export: a text with a line for the format, then a line for each row.

use std::sync::Weak;

use redb::ReadableDatabase;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::database::{OpenDatabase, ROWS};
use super::error::failed;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::{FIRST_KEY, FORMAT, Result, Row, is_key};

#[derive(Serialize, Deserialize)]
struct Header {
    greenroom_fleet: u32,
}

/// A row: its key in hexadecimal digits, and its value.
#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
    /// A value that is not one line of JSON, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
}

/// The text of everything that is committed now. Ends early when the caller is gone.
pub(super) fn write(open: &OpenDatabase, caller: &Weak<()>) -> Result<String> {
    let snapshot = open.database.begin_read().map_err(failed)?;
    let table = snapshot.open_table(ROWS).map_err(failed)?;
    let mut text = line(&Header { greenroom_fleet: FORMAT })?;
    for row in table.range(FIRST_KEY..).map_err(failed)? {
        if open.is_ending() || caller.strong_count() == 0 {
            let message = "the export was ended, because the file is closed or opened again: repeat it";
            return Err(BackendError::new(BackendErrorKind::Unavailable, message));
        }
        let (key, value) = row.map_err(failed)?;
        text += &line(&Line::of(key.value(), value.value()))?;
    }
    Ok(text)
}

impl Line {
    fn of(key: &[u8], value: &[u8]) -> Self {
        let key = hex(key);
        match one_line(value) {
            _ if value.is_empty() => Self { key, value: None, bytes: None },
            Some(value) => Self { key, value: Some(value), bytes: None },
            None => Self { key, value: None, bytes: Some(hex(value)) },
        }
    }
}

/// The rows of a text.
pub(super) fn read(text: &str) -> Result<Vec<Row>> {
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().ok_or_else(|| unreadable(1, "it is empty"))?;
    let header: Header = serde_json::from_str(first).map_err(|error| unreadable(1, error))?;
    let found = header.greenroom_fleet;
    if found != FORMAT {
        let message =
            format!("the export has the format {found}, and this version of greenroom reads {FORMAT}");
        return Err(BackendError::new(BackendErrorKind::Version, message));
    }
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| row(line).map_err(|why| unreadable(at + 1, why)))
        .collect()
}

fn row(line: &str) -> std::result::Result<Row, String> {
    let Line { key, value, bytes } = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let key = unhex(&key).ok_or("the key is no hexadecimal number of whole bytes")?;
    if !is_key(&key) {
        return Err("the key is of no part of the registry".to_owned());
    }
    let value = match (value, bytes) {
        (Some(value), _) => value.get().as_bytes().to_vec(),
        (None, Some(bytes)) => unhex(&bytes).ok_or("the bytes are no hexadecimal number of whole bytes")?,
        (None, None) => Vec::new(),
    };
    Ok((key, value))
}

/// The value as it is, if a line can hold it and a reader gets the same bytes.
fn one_line(value: &[u8]) -> Option<Box<RawValue>> {
    let json: Box<RawValue> = serde_json::from_slice(value).ok()?;
    let whole = json.get().as_bytes() == value && json.get() != "null";
    (whole && !value.contains(&b'\n')).then_some(json)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let whole = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    if whole { (0..digits.len()).step_by(2).map(byte).collect() } else { None }
}

fn line(value: &impl Serialize) -> Result<String> {
    let mut line = serde_json::to_string(value).map_err(BackendError::damaged)?;
    line.push('\n');
    Ok(line)
}

fn unreadable(line: usize, why: impl std::fmt::Display) -> BackendError {
    let message = format!("line {line} is no line of an export: {why}; nothing was imported");
    BackendError::new(BackendErrorKind::Damaged, message)
}
