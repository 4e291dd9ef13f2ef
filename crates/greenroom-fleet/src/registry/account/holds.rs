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
/// The least time by which an expiry is moved.
const AGAIN: Duration = Duration::from_secs(1);
/// A prompt that was rejected so often, each time after the API had taken others of its credential, is the cause itself.
const RETURNS: u32 = 3;
/// Credentials that are held at a time. The turns of further ones fail, one by one.
const HOLDS: u64 = 16_384;

impl Step<'_> {
    /// True if the credential of a prompt keeps it from beginning: it is held, and the pause is not over, another prompt tries,
    /// or its node does not know of the hold.
    pub(in crate::registry) fn is_held(&self, begin: &Begin) -> Result<bool> {
        let Some(hold) = self.hold_of(begin)? else { return Ok(false) };
        if begin.credential.as_ref().is_none_or(|used| !used.may_try) {
            return Ok(true);
        }
        let Some(trying) = hold.trying.filter(|_| self.now >= hold.until) else {
            return Ok(self.now < hold.until);
        };
        let prompt = self.readable(self.prompt_record(trying.prompt))?;
        Ok(prompt.is_some_and(|prompt| runs(&prompt, trying.attempt)))
    }

    /// Moves the expiry of a prompt whose credential is held: its time begins again at the end of the pause. `false`: it has waited in vain.
    ///
    /// A prompt that was rejected without a moment of a reset is the cause itself, perhaps, so its own time counts.
    pub(in crate::registry) fn wait_out(
        &mut self,
        prompt: &mut PromptRecord,
        credential: Option<Credential>,
    ) -> Result<bool> {
        let hold = credential.map_or(Ok(None), |credential| self.hold(credential))?;
        let is_suspect = |hold: &Hold| {
            prompt.waited.returned.is_some() && hold.cause.is_limit() && hold.resets_at.is_none()
        };
        let Some(hold) = hold.filter(|hold| prompt.begins == 0 && !is_suspect(hold)) else {
            return Ok(false);
        };
        let moved = Duration::from_millis(prompt.waited.moved);
        let wait = prompt.expires_at.since(prompt.due_at).saturating_sub(moved);
        let until = hold.until.max(self.now.after(AGAIN));
        let expires_at = until.after(wait).max(prompt.expires_at);
        prompt.waited.moved += expires_at.0 - prompt.expires_at.0;
        prompt.expires_at = expires_at;
        self.txn.mark(&expiry_key(prompt));
        self.put_prompt(prompt)?;
        Ok(true)
    }

    /// Notes that a prompt tries its credential, if that is held.
    pub(in crate::registry) fn begin_try(&mut self, begin: &Begin) -> Result<()> {
        let Some(mut hold) = self.hold_of(begin)? else { return Ok(()) };
        hold.trying = Some(Trying { prompt: begin.prompt, attempt: begin.attempt, node: begin.owner.node });
        self.put_hold(&hold)
    }

    fn hold_of(&self, begin: &Begin) -> Result<Option<Hold>> {
        begin.credential.as_ref().map_or(Ok(None), |used| self.hold(used.credential.clone()))
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
        if reject.again && is_first && prompt.waited.alone >= RETURNS {
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
            // Work in the background has used it since the turn before.
            self.meter(&mut prompt, Some(used))?;
        }
        prompt.begins -= 1;
        prompt.waited.alone += u32::from(is_first);
        (prompt.state, prompt.waited.returned) = (PromptState::Queued, Some(attempt));
        prompt.calls.clear();
        if prompt.begins > 0 {
            name.continues.get_or_insert(prompt.id);
        } else {
            self.txn.mark(&expiry_key(&prompt));
        }
        name.last_failure = Some(shortened(&format!("{}: {}", reject.cause, reject.why)));
        name.held_by = Some(reject.credential);
        self.end_questions(prompt.id)?;
        self.enqueue(&mut name, &prompt)?;
        self.put_name(&mut name)?;
        self.happened(&prompt.name, FeedEvent::Held { prompt: prompt.id })?;
        Ok(Owned::Done(true))
    }

    /// True for a repeated rejection: this attempt has put its prompt back.
    fn returned_before(&self, reject: &Reject) -> Result<bool> {
        let prompt = self.prompt_record(reject.finish.prompt)?;
        Ok(prompt.is_some_and(|prompt| prompt.waited.returned == Some(reject.finish.attempt)))
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
        if known.as_ref() != Some(&hold) {
            self.put_hold(&hold)?;
        }
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

    /// Removes a hold that nobody has tried since `before`.
    pub(crate) fn forget_hold(&mut self, credential: Credential, before: Timestamp) -> Result<bool> {
        let is_old = self.hold(credential.clone())?.is_some_and(|hold| hold.until < before);
        if is_old {
            self.remove_hold(&credential);
        }
        Ok(is_old)
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
