//! The arguments of the program.

use std::path::PathBuf;
use std::time::Duration;

use crate::Failure;

pub(crate) struct Arguments {
    pub(crate) data: Option<PathBuf>,
    /// The time that the model takes for an answer.
    pub(crate) pace: Duration,
}

impl Arguments {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut read = Self { data: None, pace: Duration::from_millis(100) };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("a value is missing after {word}"));
            match word.as_str() {
                "--data" => read.data = Some(value()?.into()),
                "--pace" => read.pace = Duration::from_millis(value()?.parse()?),
                _ => return Err("usage: fleet [--data FOLDER] [--pace MILLISECONDS]".into()),
            }
        }
        Ok(read)
    }
}
