//! Prompts expire, and outcomes are forgotten after their time.

use super::key::{Key, Table, last_id};
use super::turns::EXPIRED;
use super::{Result, Step};
use crate::id::{PromptId, Timestamp};
use crate::record::PromptState;

/// Rows of messages and questions that one request forgets. A row of short messages has up to 16 KB.
const ROWS: usize = 256;
/// Prompts that one request forgets.
const PROMPTS: usize = 32;
/// Rows that it reads of each prompt but the first.
const OF_NEXT: usize = 64;

impl Step<'_> {
    /// Ends prompts that have waited until their time had passed. Answers with their number.
    pub(crate) fn expire_prompts(&mut self, limit: usize) -> Result<usize> {
        let due =
            self.txn.up_to(&Key::of(Table::Expiries), &Key::of(Table::Expiries).time(self.now), limit)?;
        for (key, _) in &due {
            let id = PromptId(last_id(key)?);
            // A prompt that cannot be read does not expire.
            match self.readable(self.prompt(id))? {
                Some(prompt) if prompt.state == PromptState::Queued => self.end_waiting(prompt, &EXPIRED)?,
                _ => self.txn.delete(&[Key::of(Table::Expiries).bytes(), key].concat())?,
            }
        }
        Ok(due.len())
    }

    /// Removes prompts that ended before `before`, with their outcomes, messages, decided questions and keys. Answers with the number
    /// of prompts that it worked at: the last one may have messages or questions left for the next request.
    pub(crate) fn forget(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        let Some(last) = before.0.checked_sub(1).map(Timestamp) else { return Ok(0) };
        let limit = limit.min(PROMPTS);
        let ended = self.txn.up_to(&Key::of(Table::Ended), &Key::of(Table::Ended).time(last), limit)?;
        let mut rows = ROWS;
        for (at, (key, place)) in ended.iter().enumerate() {
            // The numbers of rows to read do not depend on the prompts before, so that all are read together.
            let most = if at == 0 { ROWS } else { OF_NEXT };
            self.txn.remove(&Key::of(Table::EndedOf).followed_by(place))?;
            if !self.forget_prompt(PromptId(last_id(key)?), most, &mut rows)? {
                return Ok(at + 1);
            }
            self.txn.delete(&[Key::of(Table::Ended).bytes(), key].concat())?;
        }
        Ok(ended.len())
    }

    /// Removes a prompt, then what belongs to it, up to `most` rows of each kind. Counts them down from `rows`. `false`: something
    /// is left, or `rows` is down.
    pub(super) fn forget_prompt(&mut self, id: PromptId, most: usize, rows: &mut usize) -> Result<bool> {
        // The key of a prompt that cannot be read leads to no prompt from now on, and is free.
        let prompt = self.readable(self.prompt(id))?;
        if let Some(prompt) = prompt
            && let Some(key) = &prompt.key
        {
            let key = Key::of(Table::Keys).name(&prompt.name).text(key);
            // A session of the same name that was made anew may use the key for another prompt.
            if self.txn.read::<PromptId>(&key)? == Some(id) {
                self.txn.remove(&key)?;
            }
        }
        self.txn.remove(&Key::of(Table::Prompts).prompt(id))?;
        for table in [Table::Contents, Table::Outcomes] {
            // The prompt has one row in the table, which may be long.
            if self.txn.remove_under(&Key::of(table).prompt(id), 2)?.is_none() {
                return Ok(false);
            }
        }
        for of_prompt in [Self::forget_messages, Self::forget_questions] {
            let Some(removed) = of_prompt(self, id, most)? else { return Ok(false) };
            *rows = rows.saturating_sub(removed);
            if *rows == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
