//! The stage for tests of turns: a name that this node owns, and a session whose CLI the test plays.

use std::sync::Arc;
use std::time::Duration;

use greenroom::message::{ResultMessage, Typed};
use greenroom::{Session, SessionBuilder};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::{Value, json};

use super::joined;
use crate::actor::context::FleetShared;
use crate::actor::retry::NotDone;
use crate::actor::scribe::signs::TurnSigns;
use crate::actor::scribe::write_down;
use crate::backend::{Backend, Requests};
use crate::id::{AttemptId, Name, PromptId};
use crate::limits::FleetLimits;
use crate::outcome::outcome_of;
use crate::pages::all_of;
use crate::record::PromptOutcome;
use crate::request::{Accept, Accepted, Append, Begin, Claim, Claimed, Finish, Owned, Ownership, StoredText};

/// What a fleet shares on a backend that its node has joined.
pub(crate) async fn fleet_on(backend: impl Backend) -> Arc<FleetShared> {
    joined(backend, FleetLimits::default()).await
}

/// A prompt for a name, which may wait as long as the test takes.
pub(crate) fn accept(name: &str) -> Accept {
    super::accept(name, Duration::from_secs(24 * 3600))
}

/// Has the backend accept a prompt.
pub(crate) async fn accepted(backend: &dyn Backend, accept: Accept) -> PromptId {
    match backend.accept(accept).await.unwrap() {
        Accepted::New(record) => record.id,
        other => panic!("the prompt was not accepted: {other:?}"),
    }
}

/// A prompt that has begun on this node.
#[derive(Clone)]
pub(crate) struct BegunTurn {
    pub(crate) shared: Arc<FleetShared>,
    pub(crate) owner: Ownership,
    pub(crate) prompt: PromptId,
    pub(crate) attempt: AttemptId,
}

impl BegunTurn {
    /// Accepts a prompt for a name and begins it.
    pub(crate) async fn new(shared: &Arc<FleetShared>, name: &str) -> Self {
        let prompt = accepted(&*shared.backend, accept(name)).await;
        Self::begin(shared, name, prompt).await
    }

    /// Claims the name for this node, and begins a prompt of it.
    pub(crate) async fn begin(shared: &Arc<FleetShared>, name: &str, prompt: PromptId) -> Self {
        let name = format!("acme/{}", name).parse::<Name>().unwrap();
        let claim = Claim {
            name,
            node: shared.node,
            attempt: AttemptId::new(),
            losses: 3,
            quota: crate::Quota::default(),
        };
        let owner = match shared.backend.claim(claim).await.unwrap() {
            Claimed::Won(record) => Ownership { name: record.name, node: shared.node, term: record.term },
            other => panic!("the name was not claimed: {other:?}"),
        };
        let attempt = AttemptId::new();
        let begin =
            Begin { owner: owner.clone(), prompt, attempt, quota: crate::Quota::default(), credential: None };
        let begun = shared.backend.begin(begin).await.unwrap();
        assert!(matches!(begun, Owned::Done(Some(_))), "{begun:?}");
        Self { shared: shared.clone(), owner, prompt, attempt }
    }

    /// Keeps messages as an owner does.
    pub(crate) async fn append(&self, first_seq: u64, messages: Vec<String>) {
        let (owner, prompt, bound) = (self.owner.clone(), self.prompt, self.shared.limits.turn_bytes);
        let appended =
            self.shared.backend.append(Append { owner, prompt, first_seq, messages, bound }).await.unwrap();
        assert!(matches!(appended, Owned::Done(_)), "{appended:?}");
    }

    /// Completes the prompt at a cost.
    pub(crate) async fn finish_at(&self, cost: u64) {
        let (owner, prompt, attempt) = (self.owner.clone(), self.prompt, self.attempt);
        let (outcome, cost) = (completed(), Some(cost));
        let finish = Finish { owner, prompt, attempt, outcome, cost, usage: None, quarantine: None };
        assert_eq!(self.shared.backend.finish(finish).await.unwrap(), Owned::Done(true));
    }

    /// Gives the prompt its outcome.
    pub(crate) async fn finish(&self, outcome: PromptOutcome) {
        let (owner, prompt, attempt) = (self.owner.clone(), self.prompt, self.attempt);
        let finish = Finish { owner, prompt, attempt, outcome, cost: Some(0), usage: None, quarantine: None };
        assert_eq!(self.shared.backend.finish(finish).await.unwrap(), Owned::Done(true));
    }

    /// The messages that are kept.
    pub(crate) async fn kept(&self) -> Vec<StoredText> {
        let after = |last: Option<&StoredText>| last.map_or(0, |last| last.number);
        all_of(|last| self.shared.backend.messages(self.prompt, after(last), usize::MAX)).await.unwrap()
    }
}

/// A session whose CLI the test plays.
pub(crate) struct Played {
    pub(crate) session: Session,
    pub(crate) cli: CliEnd,
}

impl Played {
    pub(crate) async fn start() -> Self {
        Self::start_with(Session::builder()).await
    }

    pub(crate) async fn start_with(builder: SessionBuilder) -> Self {
        let (transport, mut listener) = ScriptedCli::by_hand();
        let (session, cli) = tokio::join!(builder.transport(transport).start(), async {
            let mut cli = listener.accept().await;
            cli.handshake().await;
            cli
        });
        Self { session: session.unwrap(), cli }
    }

    /// Runs a begun turn in the session as a name's actor does, with `last_seq` messages before it. Returns the future that writes
    /// the turn down, and the prompt as the CLI has received it.
    pub(crate) async fn run(
        &mut self,
        begun: &BegunTurn,
        last_seq: u64,
    ) -> (impl Future<Output = Result<PromptOutcome, NotDone>> + Send + 'static, Value) {
        let mut turn = self.session.prompt("hello").await.unwrap();
        let prompt = self.cli.expect("user").await;
        let begun = begun.clone();
        let writing = async move {
            let signs = TurnSigns::default();
            let ended = write_down(
                &begun.shared,
                &begun.owner,
                begun.prompt,
                last_seq,
                Vec::new(),
                &mut turn,
                &signs,
            )
            .await?;
            let outcome = outcome_of(&ended);
            begun.finish(outcome.clone()).await;
            Ok(outcome)
        };
        (writing, prompt)
    }

    /// Says something as the model.
    pub(crate) fn say(&mut self, text: &str) {
        self.cli.message(said(text));
    }

    /// Says a part of something as the model.
    pub(crate) fn say_part(&mut self, text: &str) {
        self.cli.message(part(text));
    }
}

/// A complete message of the model.
pub(crate) fn said(text: &str) -> Value {
    json!({ "type": "assistant", "parent_tool_use_id": null,
        "message": { "model": "m", "content": [{ "type": "text", "text": text }] } })
}

/// A partial message of the model.
pub(crate) fn part(text: &str) -> Value {
    json!({ "type": "stream_event", "parent_tool_use_id": null, "event": {
        "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } } })
}

/// An outcome that tells nothing.
pub(crate) fn completed() -> PromptOutcome {
    PromptOutcome::Completed {
        result: json!({ "type": "result", "subtype": "success", "result": "done" }),
        transcript_lost: false,
    }
}

/// A result of the CLI with these fields.
pub(crate) fn result(mut fields: Value) -> Arc<Typed<ResultMessage>> {
    fields["type"] = json!("result");
    match greenroom::Message::parse(&fields.to_string()).unwrap() {
        greenroom::Message::Result(result) => result,
        other => panic!("{other:?}"),
    }
}
