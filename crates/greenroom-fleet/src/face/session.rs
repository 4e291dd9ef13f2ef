//! A named session of a fleet.

mod command;
mod running;

use greenroom::Prompt;
use tokio::sync::oneshot;
use uuid::Uuid;

use self::command::{AGAIN, Commanded, command};
use super::fleet::Fleet;
use super::prompt::FleetPrompt;
use super::scope::Scope;
use super::turn::FleetTurn;
use crate::access::Action;
use crate::actor::context::{ATTEMPTS, FleetShared};
use crate::actor::deletion;
use crate::actor::name::NameMessage;
use crate::actor::supervisor::FleetMessage;
use crate::backend::Requests;
use crate::error::{BackendErrorKind, FleetError, PromptError};
use crate::id::{Name, PromptId, Timestamp};
use crate::outcome::erased::Erased;
use crate::question::QuestionQuery;
use crate::record::{CommandKind, NameRecord, NameState, PromptContent, QuestionRecord};
use crate::request::{Accept, Accepted, Marked, Refused};

/// A named session of a fleet. It is there when it is prompted: nothing has to be created or kept.
///
/// The first prompt of a name fixes its profile. A handle [on behalf of](crate::FleetTenant::on_behalf_of) a person fails with
/// [`FleetError::Denied`] or [`PromptError::Denied`] where the person may not do it.
#[derive(Clone)]
#[must_use = "nothing happens until a method is called"]
pub struct FleetSession {
    fleet: Fleet,
    scope: Scope,
    name: Name,
    profile: String,
}

impl FleetSession {
    pub(super) fn new(fleet: Fleet, scope: Scope, name: Name) -> Self {
        Self { fleet, scope, name, profile: "default".to_owned() }
    }

    /// Sets the profile that builds the session. Only [`prompt`](Self::prompt) uses it. Default: `default`.
    pub fn profile(mut self, profile: impl Into<String>) -> Self {
        self.profile = profile.into();
        self
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    pub(super) fn shared(&self) -> &std::sync::Arc<FleetShared> {
        &self.fleet.handle.shared
    }

    /// Accepts a prompt: when this returns, the prompt is kept, and ends with exactly one outcome. Its turn begins when it is
    /// the prompt's turn; the session is woken for it.
    ///
    /// A fleet that drains accepts a prompt if another node can run the session, and refuses it otherwise.
    ///
    /// A prompt with a [key](FleetPrompt::key) that was used before with the same content is found and not sent again:
    /// [`FleetTurn::is_duplicate`].
    ///
    /// Not cancel-safe: if the future is dropped, the prompt may still be accepted.
    ///
    /// # Errors
    /// [`PromptError::Refused`], whose [`retry_after`](Refused::retry_after) is the time after which another attempt may succeed, and
    /// [`PromptError::Unknown`] if the backend does not answer.
    pub async fn prompt(&self, prompt: impl Into<FleetPrompt>) -> Result<FleetTurn, PromptError> {
        let accepted = self.accept_prompt(prompt.into()).await;
        if let Err(PromptError::Refused(why)) = &accepted {
            self.shared().metrics.refused(why);
        }
        accepted
    }

    async fn accept_prompt(&self, prompt: FleetPrompt) -> Result<FleetTurn, PromptError> {
        let shared = self.shared();
        self.scope.allow(shared, Action::Prompt, Some(&self.name)).await?;
        if !shared.takes_prompt(&self.name).await {
            return Err(Refused::Draining.into());
        }
        if !shared.profiles.contains_key(&self.profile) {
            return Err(Refused::UnknownProfile(self.profile.clone()).into());
        }
        let accept = self.accept(&prompt).map_err(Refused::Invalid)?;
        let unknown = |cause| PromptError::Unknown { prompt: accept.prompt, key: prompt.key.clone(), cause };
        let accepted = match shared.ask(|backend| backend.accept(accept.clone())).await {
            Err(error) if error.kind() == BackendErrorKind::Invalid => {
                return Err(Refused::Invalid(error.to_string()).into());
            }
            accepted => accepted.map_err(unknown)?,
        };
        let (record, is_duplicate) = match accepted {
            Accepted::New(record) => (record, false),
            Accepted::Duplicate(record) => (record, true),
            Accepted::Refused(why) => return Err(why.into()),
        };
        shared.tell_transitions();
        self.send(NameMessage::Wake(None), true);
        Ok(FleetTurn::new(shared.clone(), self.scope.clone(), record.id, is_duplicate))
    }

    fn accept(&self, prompt: &FleetPrompt) -> Result<Accept, String> {
        let json = |prompt: &Prompt| serde_json::to_value(prompt).map_err(|error| error.to_string());
        let limits = &self.shared().limits;
        Ok(Accept {
            prompt: PromptId::new(),
            name: self.name.clone(),
            profile: self.profile.clone(),
            conversation: Uuid::new_v4(),
            host: self.shared().host_of_new(),
            key: prompt.key.clone(),
            labels: prompt.labels.clone(),
            content: PromptContent {
                prompt: json(&prompt.prompt)?,
                continuation: prompt.continuation.as_ref().map(|(prompt, _)| json(prompt)).transpose()?,
            },
            continuations: prompt.continuation.as_ref().map_or(0, |(_, times)| *times),
            not_before: prompt.not_before.map(Timestamp::of),
            wait: prompt.wait.unwrap_or(limits.wait),
            quota: self.shared().quotas.given(self.name.tenant()).clone(),
            bounds: limits.queue,
        })
    }

    /// Starts the session without a prompt, so that the next prompt need not wait for that. Returns when it is up: on the node that owns
    /// the session, and here if no node does.
    ///
    /// # Errors
    /// [`FleetError::State`] if the session is not known yet, is quarantined, or cannot start; [`FleetError::OwnerFailed`] if it cannot
    /// start on the node that owns it, and [`FleetError::OwnerSilent`] if that node does not answer; [`FleetError::Backend`].
    pub async fn warm(&self) -> Result<(), FleetError> {
        self.allow(Action::Warm).await?;
        for _ in 0..ATTEMPTS {
            let warm = match self.ask(true, NameMessage::Warm).await {
                Some(Err(FleetError::Elsewhere { .. })) => {
                    let commanded = command(self.shared(), &self.name, CommandKind::Warm).await?;
                    // Otherwise the owner has given the session back meanwhile.
                    (commanded == Commanded::Done).then_some(Ok(()))
                }
                // `None`: the actor of the name was about to end, and the next one takes the message.
                warm => warm,
            };
            if let Some(warm) = warm {
                return warm;
            }
            tokio::time::sleep(AGAIN).await;
        }
        let why = "the session was being put to sleep, or the fleet is draining: try again";
        Err(FleetError::State(why.to_owned()))
    }

    /// Puts the session to sleep, after its running turn, and returns when its CLI is gone. A prompt that waits wakes it again.
    /// A session that is asleep stays so. Another node may own the session.
    ///
    /// # Errors
    /// [`FleetError::OwnerSilent`] if another node owns the session and does not take the command within ten seconds;
    /// [`FleetError::Backend`] if the session is not awake here and the backend does not say where.
    pub async fn passivate(&self) -> Result<(), FleetError> {
        self.allow(Action::Passivate).await?;
        if self.passivate_here().await {
            return Ok(());
        }
        if command(self.shared(), &self.name, CommandKind::Passivate).await? == Commanded::Here {
            self.passivate_here().await;
        }
        Ok(())
    }

    /// True if there was a session here.
    async fn passivate_here(&self) -> bool {
        self.ask(false, |done| NameMessage::Passivate { hold: None, done }).await.unwrap_or(false)
    }

    /// Ends the session at once. While the caller holds the guard the session is not activated here, for some seconds at most.
    async fn make_way(&self) -> oneshot::Sender<()> {
        let (guard, hold) = oneshot::channel();
        // `None`: the session was asleep here, or its actor has ended.
        let _: Option<bool> = self.ask(false, |done| NameMessage::Passivate { hold: Some(hold), done }).await;
        guard
    }

    /// Keeps the session from being activated, and puts it to sleep at once: its running turn is interrupted.
    ///
    /// Prompts that wait go on waiting, until [`unquarantine`](Self::unquarantine) or until they expire. New prompts
    /// are refused as [`Refused::Quarantined`](crate::Refused::Quarantined), with a `retry_after` of one minute. A
    /// session that is quarantined already keeps its first reason.
    ///
    /// # Errors
    /// [`FleetError::NotFound`] if the session is not known or is being deleted; [`FleetError::OwnerSilent`] if another node owns the
    /// session and does not end it; [`FleetError::Elsewhere`] if other nodes claim the session again and again; [`FleetError::Backend`],
    /// also for a session that moves to another backend.
    pub async fn quarantine(&self, why: impl Into<String>) -> Result<(), FleetError> {
        self.allow(Action::Quarantine).await?;
        let why = why.into();
        if let NameState::Quarantined { .. } = self.known().await?.state {
            return Ok(());
        }
        let quarantine = async || {
            let quarantined =
                self.shared().ask(|backend| backend.quarantine(self.name.clone(), why.clone().into()));
            Ok(quarantined.await?)
        };
        if !self.mark(quarantine).await? {
            return Err(FleetError::not_found("session", &self.name));
        }
        self.shared().tell_transitions();
        Ok(())
    }

    /// Lets a quarantined session be activated again. Its prompts begin, and new ones are accepted. `false`: the
    /// session is not quarantined.
    ///
    /// # Errors
    /// [`FleetError::Backend`].
    pub async fn unquarantine(&self) -> Result<bool, FleetError> {
        self.allow(Action::Unquarantine).await?;
        let free = self.shared().ask(|backend| backend.unquarantine(self.name.clone())).await?;
        if free {
            self.shared().tell_transitions();
            self.send(NameMessage::Wake(None), true);
        }
        Ok(free)
    }

    /// Deletes the session: interrupts its turn, ends its prompts as unsent, and removes everything of it: its prompts with their messages,
    /// outcomes and questions, its keys, its conversation, its files on all hosts, and its name. A session that is not known counts as deleted.
    ///
    /// Some facts stay until their retention: its usage by day and hour, and its entries in the feed, which have its name and the reason of a
    /// quarantine.
    ///
    /// A reader of one of its turns that is not quick enough gets [`FleetError::NotFound`] in place of the outcome.
    ///
    /// Waits for other hosts of which a node is alive, for 30 seconds at most. A host without a living node keeps its files until a node of it joins
    /// again, which removes them; the answer names these hosts. The name is free meanwhile: a session that is made anew has another
    /// conversation.
    ///
    /// # Errors
    /// [`FleetError::Files`] if files on this host cannot be removed: the session stays marked as being deleted, and the fleet tries
    /// again. [`FleetError::OwnerSilent`] if another node owns the session and does not end it; [`FleetError::Elsewhere`] if other
    /// nodes claim the session again and again; [`FleetError::Backend`].
    pub async fn delete(&self) -> Result<Erased, FleetError> {
        self.allow(Action::Delete).await?;
        if !self.mark(|| deletion::mark(self.shared(), &self.name)).await? {
            return Ok(Erased::default());
        }
        deletion::erase(self.shared(), &self.name).await
    }

    /// Has the owner end the session, and marks it before the next activation. `false`: the session is not known.
    async fn mark<F>(&self, mark: impl Fn() -> F) -> Result<bool, FleetError>
    where
        F: Future<Output = Result<Marked, FleetError>>,
    {
        let (shared, mut asked) = (self.shared(), 0);
        loop {
            let _guard = self.make_way().await;
            let node = match mark().await? {
                Marked::Done => return Ok(true),
                Marked::Gone => return Ok(false),
                Marked::Owned(node) => node,
            };
            if node != shared.node {
                if asked == ATTEMPTS {
                    return Err(FleetError::Elsewhere { node });
                }
                asked += 1;
                if command(shared, &self.name, CommandKind::MakeWay).await? == Commanded::Done {
                    continue;
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The record of the session.
    ///
    /// # Errors
    /// [`FleetError::NotFound`] if the session is not known; [`FleetError::Backend`].
    pub async fn record(&self) -> Result<NameRecord, FleetError> {
        self.allow(Action::Read).await?;
        self.known().await
    }

    async fn known(&self) -> Result<NameRecord, FleetError> {
        let record = self.shared().ask(|backend| backend.name_record(self.name.clone())).await?;
        record.ok_or_else(|| FleetError::not_found("session", &self.name))
    }

    /// Lists the open questions of the session, the nearest deadline first: see
    /// [`FleetTenant::questions`](crate::FleetTenant::questions).
    ///
    /// # Errors
    /// [`FleetError::Backend`].
    pub async fn questions(&self) -> Result<Vec<QuestionRecord>, FleetError> {
        self.fleet.questions(&self.scope, QuestionQuery::new().session(self.name.clone())).await
    }

    pub(super) async fn allow(&self, action: Action) -> Result<(), FleetError> {
        Ok(self.scope.allow(self.shared(), action, Some(&self.name)).await?)
    }

    fn send(&self, message: NameMessage, start: bool) {
        let (name, message) = (self.name.clone(), Box::new(message));
        // An error: the fleet has ended, and what waits goes on waiting.
        self.fleet.handle.supervisor.cast(FleetMessage::To { name, message, start }).ok();
    }

    /// Asks the actor of the name. `None`: the name is passive, or its actor ended meanwhile.
    async fn ask<T>(
        &self,
        start: bool,
        message: impl FnOnce(oneshot::Sender<T>) -> NameMessage,
    ) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.send(message(done), start);
        answer.await.ok()
    }
}
