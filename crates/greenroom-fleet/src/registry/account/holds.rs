//! Credentials that the API rejects for now: `record/hold.rs` has their machine.
//!
//! A begin expects the row of its credential, so no prompt begins that could have known of the hold, on any node. The prompt that tries is
//! in the row. It tries as long as its attempt runs, which its own record says: a node that is lost leaves the try to the next one.

use std::time::Duration;

use crate::id::{AttemptId, Timestamp};
use crate::query::feed::FeedEvent;
use crate::record::{Credential, Hold, PromptRecord, PromptState, Trying};
use crate::registry::map::key::{Key, Table};
use crate::registry::names::shortened;
use crate::registry::prompts::expiry_key;
use crate::registry::{BATCH, Result, Step, parsed};
use crate::request::{Begin, Change, Owned, Page, Reject};

/// The longest time until a credential is tried again: a later reset is looked at on the way.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// A prompt that was rejected so often, each time after the API had taken others of its credential, is the cause itself.
const RETURNS: u32 = 3;
/// Credentials that are held at a time. The turns of further ones fail, one by one.
const HOLDS: u64 = 16_384;

impl Step<'_> {
    /// True if the credential of a prompt keeps it from beginning: it is held, and the pause is not over, or another prompt tries.
    pub(in crate::registry) fn is_held(&self, begin: &Begin) -> Result<bool> {
        let Some(hold) = self.hold_of(begin)? else { return Ok(false) };
        let Some(trying) = hold.trying.filter(|_| self.now >= hold.until) else {
            return Ok(self.now < hold.until);
        };
        let prompt = self.readable(self.prompt_record(trying.prompt))?;
        Ok(prompt.is_some_and(|prompt| runs(&prompt, trying.attempt)))
    }

    /// Notes that a prompt tries its credential, if that is held.
    pub(in crate::registry) fn begin_try(&mut self, begin: &Begin) -> Result<()> {
        let Some(mut hold) = self.hold_of(begin)? else { return Ok(()) };
        hold.trying = Some(Trying { prompt: begin.prompt, attempt: begin.attempt, node: begin.owner.node });
        self.put_hold(&hold)
    }

    fn hold_of(&self, begin: &Begin) -> Result<Option<Hold>> {
        begin.credential.clone().map_or(Ok(None), |credential| self.hold(credential))
    }

    /// Names the row of a credential. This saves a read.
    pub(in crate::registry) fn want_hold(&self, credential: Option<&Credential>) {
        credential.iter().for_each(|credential| self.txn.want(&hold_key(credential)));
    }

    /// Ends a turn that the API has rejected, and holds its credential. Its prompt waits again at its place, or has its outcome.
    pub(crate) fn reject(&mut self, reject: Reject) -> Result<Owned<bool>> {
        self.want_hold(Some(&reject.credential));
        self.txn.want(&Key::of(Table::HoldsHeld));
        self.txn.want(&Key::of(Table::Prompts).prompt(reject.finish.prompt));
        self.want_place(&reject.finish.owner.name, 0);
        self.want_feed(&reject.finish.owner.name);
        self.txn.want_under(&Key::of(Table::QuestionsOfPrompt).prompt(reject.finish.prompt), BATCH);
        let (id, attempt) = (reject.finish.prompt, reject.finish.attempt);
        let name = self.owned(&reject.finish.owner)?.filter(|name| name.turns().any(|turn| turn == id));
        let prompt = self.prompt_record(id)?.filter(|prompt| runs(prompt, attempt));
        let Some((mut name, mut prompt)) = name.zip(prompt) else {
            if self.returned_before(&reject)? {
                return Ok(Owned::Done(true));
            }
            return self.finish(reject.finish);
        };
        let is_first = self.hold(reject.credential.clone())?.is_none();
        if reject.again && is_first && prompt.returns.alone >= RETURNS {
            return self.finish(reject.finish);
        }
        let is_held = self.hold_credential(&reject)?;
        // Without a hold the prompt would be sent again at once.
        // A call of a turn that was parked may have run.
        if !(reject.again && is_held && name.running == Some(id) && prompt.parked_by.is_none()) {
            return self.finish(reject.finish);
        }
        name.running = None;
        // Nothing has run: an unknown cost is none.
        self.settle(&mut prompt, Some(reject.finish.cost.unwrap_or_default()))?;
        if let Some(used) = reject.finish.usage.filter(|used| !used.is_nothing()) {
            // Of work in the background, since the turn before.
            self.meter(&mut prompt, Some(used))?;
        }
        prompt.begins -= 1;
        prompt.returns.alone += u32::from(is_first);
        (prompt.state, prompt.returns.last) = (PromptState::Queued, Some(attempt));
        prompt.calls.clear();
        if prompt.begins > 0 {
            name.continues.get_or_insert(prompt.id);
        } else {
            self.txn.mark(&expiry_key(&prompt));
        }
        name.last_failure = Some(shortened(&format!("{}: {}", reject.cause, reject.why)));
        self.end_questions(prompt.id)?;
        self.enqueue(&mut name, &prompt)?;
        self.put_name(&mut name)?;
        self.happened(&prompt.name, FeedEvent::Held { prompt: prompt.id })?;
        Ok(Owned::Done(true))
    }

    /// True for a repeated rejection: this attempt has put its prompt back.
    fn returned_before(&self, reject: &Reject) -> Result<bool> {
        let prompt = self.prompt_record(reject.finish.prompt)?;
        Ok(prompt.is_some_and(|prompt| prompt.returns.last == Some(reject.finish.attempt)))
    }

    /// Holds the credential of a turn that was rejected. `false`: too many are held.
    fn hold_credential(&mut self, reject: &Reject) -> Result<bool> {
        let known = self.hold(reject.credential.clone())?;
        if known.is_none() {
            if self.txn.count(&Key::of(Table::HoldsHeld))? >= HOLDS {
                return Ok(false);
            }
            self.txn.add(&Key::of(Table::HoldsHeld), 1);
        }
        let mut hold = known.clone().unwrap_or_else(|| Hold {
            credential: reject.credential.clone(),
            cause: reject.cause,
            why: String::new(),
            since: self.now,
            until: self.now,
            resets_at: None,
            tries: 0,
            trying: None,
        });
        let tried = hold.trying.take_if(|trying| trying.attempt == reject.finish.attempt).is_some();
        let counts = tried || known.is_none();
        hold.tries = hold.tries.saturating_add(u32::from(counts));
        let reset = reject.resets_at.filter(|at| *at > self.now);
        let until = match reset {
            Some(at) => at.min(self.now.after(LONGEST)),
            None => self.now.after(reject.pause.after(hold.tries)),
        };
        // A turn that began before the hold knows nothing newer, unless its limit lasts longer.
        if counts || (reset.is_some() && until > hold.until) {
            (hold.cause, hold.until, hold.resets_at) = (reject.cause, until, reject.resets_at);
            hold.why = shortened(&reject.why);
        }
        self.put_hold(&hold)?;
        Ok(true)
    }

    fn put_hold(&mut self, hold: &Hold) -> Result<()> {
        self.txn.write(&hold_key(&hold.credential), hold)?;
        self.told.changes.push(Change::Held(hold.credential.clone()));
        Ok(())
    }

    /// Ends the try of an attempt: with an answer of the model the credential is held no more. `false`: the attempt does not try.
    pub(crate) fn end_try(
        &mut self,
        credential: Credential,
        attempt: AttemptId,
        answered: bool,
    ) -> Result<bool> {
        let Some(mut hold) = self.hold(credential)? else { return Ok(false) };
        if hold.trying.take_if(|trying| trying.attempt == attempt).is_none() {
            return Ok(false);
        }
        if answered {
            self.remove_hold(&hold.credential);
        } else {
            self.put_hold(&hold)?;
        }
        Ok(true)
    }

    /// Lets the prompts of a credential begin. `None`: it is not held.
    pub(crate) fn release_hold(&mut self, credential: Credential) -> Result<Option<Hold>> {
        let hold = self.hold(credential.clone())?;
        if hold.is_some() {
            self.remove_hold(&credential);
        }
        Ok(hold)
    }

    fn remove_hold(&mut self, credential: &Credential) {
        self.txn.remove(&hold_key(credential));
        self.txn.add(&Key::of(Table::HoldsHeld), -1);
        self.told.changes.push(Change::Held(credential.clone()));
    }

    /// Removes holds that nobody has tried since `before`, up to `limit`. Answers with their number.
    pub(crate) fn forget_holds(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        let holds = self.holds(None, Page::MOST)?;
        let old = holds.into_iter().filter(|hold| hold.until < before);
        let old: Vec<_> = old.take(limit.min(BATCH)).collect();
        for hold in &old {
            // The commit expects the row as it was read.
            if self.hold(hold.credential.clone())?.as_ref() == Some(hold) {
                self.remove_hold(&hold.credential);
            }
        }
        Ok(old.len())
    }

    /// The hold of a credential.
    pub(crate) fn hold(&self, credential: Credential) -> Result<Option<Hold>> {
        self.readable(self.txn.read(&hold_key(&credential)))
    }

    /// A page of credentials that are held and can be read.
    pub(crate) fn holds(&self, after: Option<Credential>, limit: usize) -> Result<Vec<Hold>> {
        let after = after.as_ref().map(hold_key);
        self.page(&Key::of(Table::Holds), after, limit.min(Page::MOST), |step, _, row| {
            step.readable(parsed(row).map(Some))
        })
    }
}

/// True if the prompt runs by this attempt.
fn runs(prompt: &PromptRecord, attempt: AttemptId) -> bool {
    matches!(prompt.state, PromptState::Begun { attempt: by, .. } if by == attempt)
}

fn hold_key(credential: &Credential) -> Key {
    let key = Key::of(Table::Holds);
    match credential {
        Credential::Key { name } => key.number(0).text(name),
        Credential::OfTenant { tenant, profile } => key.number(1).tenant(tenant).text(profile),
    }
}
