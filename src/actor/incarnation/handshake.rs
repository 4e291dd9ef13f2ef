//! The handshake of an incarnation: `initialize`, then everything that was set at run time.

use futures_util::FutureExt;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::initialize;
use super::run::{ExitSignal, IncarnationTask, OpenIncarnation};
use crate::actor::messages::children::PortEnd;
use crate::actor::messages::session::Internal;
use crate::actor::router::client::ask_through;
use crate::actor::router::settings;
use crate::error::{ErrorKind, Result};
use crate::options::{Delivery, is_too_old};
use crate::plain::short;
use crate::report::{Event, ExitCause, McpSetServersResult};
use crate::requests::{Reply, ServerInfo};
use crate::transport::{Channel, Resume, opens};

fn refused(message: String) -> PortEnd {
    PortEnd::Died(ExitCause::InitializeRefused { message })
}

impl IncarnationTask {
    /// Shakes hands with the CLI, and tells the session that the incarnation is ready. Requests of the CLI are served
    /// meanwhile: it may ask for the servers' tools first.
    pub(super) async fn initialize(
        &mut self,
        open: &mut OpenIncarnation,
        deadline: Instant,
    ) -> Result<(), PortEnd> {
        let shared = self.shared.clone();
        let (epoch, private) = (self.epoch, self.private);
        let body = initialize::body(&shared.spec, &shared.roster(), private, &self.resume)
            .map_err(|error| PortEnd::Died(ExitCause::NotStarted { error }))?;
        let may_change = private == Channel::Initialize && shared.options().delivery == Delivery::Auto;
        let reply = match self.ask(open, &body, deadline).await {
            Err(PortEnd::Died(_))
                if may_change && initialize::knows_no_private(shared.options(), &self.stderr.text()) =>
            {
                return Err(PortEnd::Reregister);
            }
            reply => reply?,
        };
        let raw = reply.map_err(|error| match error.kind() {
            // `NotReady`: the router did not start again in time.
            ErrorKind::Timeout | ErrorKind::NotReady => {
                PortEnd::Died(self.start_timeout(open.evidence.noise()))
            }
            _ => refused(error.to_string()),
        })?;
        let info: Reply<ServerInfo> =
            Reply::read("initialize", raw).map_err(|error| refused(error.to_string()))?;
        let version = info.claude_code_version.clone().map(short);
        if !shared.options().allow_old_cli && is_too_old(version.as_deref()) {
            return Err(PortEnd::Died(ExitCause::TooOld { version }));
        }
        if let Some(reason) = initialize::unfit(&info, &shared.spec) {
            return Err(refused(reason.to_owned()));
        }
        if !shared.spec.handlers.hooks.is_empty() && info.hooks_applied == Some(false) {
            shared.emit(Event::HooksNotApplied { epoch });
        }
        if let Some(field) = initialize::overlooked(&info, &body) {
            if may_change {
                return Err(PortEnd::Reregister);
            }
            let text =
                format!("it did not take `{field}` from `initialize`, and must not be told by arguments");
            return Err(refused(text));
        }
        for field in initialize::not_applied(&info, &body) {
            self.setting_lost("initialize".into(), format!("the CLI did not take `{field}`"));
        }
        shared.cli.note_info(info);
        self.set_servers_again(open, deadline).await?;
        self.set_again(open, deadline).await?;
        // Before the event: its receiver may ask the CLI at once.
        open.outbound.set_ready();
        shared.emit(Event::CliReady { epoch, version });
        shared.tell(Internal::CliReady { epoch });
        Ok(())
    }

    /// Asks the CLI while it may die or be told to end.
    async fn ask(
        &mut self,
        open: &mut OpenIncarnation,
        body: &Value,
        deadline: Instant,
    ) -> Result<Result<Box<RawValue>>, PortEnd> {
        let shared = self.shared.clone();
        let reply = tokio::select! {
            // A CLI that has answered is ended in order.
            biased;
            reply = ask_through(&shared, self.epoch, body.clone(), deadline) => Ok(reply),
            signal = open.ends(&mut self.commands) => Err(signal),
        };
        let signal = match reply {
            Ok(Ok(answer)) => return Ok(Ok(answer)),
            // The end of the CLI says more than the error of a request that ended with it.
            Ok(Err(error)) => match open.ends(&mut self.commands).now_or_never() {
                Some(signal) => signal,
                None => return Ok(Err(error)),
            },
            Err(signal) => signal,
        };
        Err(match signal {
            ExitSignal::Asked => PortEnd::Asked,
            signal => PortEnd::Died(self.died_at_start(open, signal).await),
        })
    }

    /// Sends again what was set at run time. Fails if a setting is lost without which the CLI would do what it was told
    /// not to do, or do it elsewhere.
    async fn set_again(&mut self, open: &mut OpenIncarnation, deadline: Instant) -> Result<(), PortEnd> {
        for body in self.shared.settings.made() {
            let reason = match self.ask(open, &body, deadline).await? {
                Ok(raw) => {
                    let answer = serde_json::from_str(raw.get()).unwrap_or_default();
                    let Err(reason) = settings::took_effect(&body, &answer) else { continue };
                    reason
                }
                Err(error) => error.to_string(),
            };
            if let Some(setting) = settings::vital(&body) {
                return Err(refused(format!("{setting} could not be set again: {reason}")));
            }
            self.setting_lost(body["subtype"].as_str().unwrap_or_default().to_owned(), reason);
        }
        Ok(())
    }

    /// Names the MCP servers that were added since the CLI was first started.
    async fn set_servers_again(
        &mut self,
        open: &mut OpenIncarnation,
        deadline: Instant,
    ) -> Result<(), PortEnd> {
        let roster = self.shared.roster();
        if roster.is_announced_at_start() {
            return Ok(());
        }
        let answer = self.ask(open, &roster.request(), deadline).await?;
        let reasons = match answer.and_then(|answer| McpSetServersResult::parse(&answer)) {
            Ok(result) => {
                result.reasons().map(|(name, error)| format!("MCP server '{name}': {error}")).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        for reason in reasons {
            self.setting_lost("mcp_set_servers".into(), reason);
        }
        Ok(())
    }

    fn setting_lost(&self, subtype: String, reason: String) {
        self.shared.emit(Event::SettingLost { epoch: self.epoch, subtype, reason });
    }

    /// Says why an incarnation ended during the handshake. A CLI that refuses to resume says so in an error result and
    /// exits.
    async fn died_at_start(&self, open: &mut OpenIncarnation, signal: ExitSignal) -> ExitCause {
        let cause = self.died(open, signal).await;
        match (cause, open.evidence.last_error(), self.resume.session_id()) {
            (ExitCause::Exited { stderr, .. }, Some(said), Some(session_id)) if !said.of_start => {
                ExitCause::ResumeRefused {
                    session_id: session_id.to_owned(),
                    transcript_missing: said.text.contains("No conversation found"),
                    said: said.text,
                    stderr,
                }
            }
            // The CLI says on stderr alone that it has a conversation under the id of the new one.
            (ExitCause::Exited { stderr, .. }, None, None)
                if stderr.lines().any(|it| it.contains("Session ID") && it.contains("is already in use")) =>
            {
                ExitCause::ConversationExists { session_id: self.new_id().unwrap_or_default(), stderr }
            }
            (ExitCause::Exited { exit, stderr }, said, _) => {
                let (said, command) = (said.map(|said| said.text), open.command.clone());
                ExitCause::ExitedAtStart { exit, said, command, stderr }
            }
            (cause, ..) => cause,
        }
    }

    /// The id under which the CLI was told to start a conversation.
    fn new_id(&self) -> Option<String> {
        match &self.resume {
            Resume::Begin(id) => Some(id.clone()),
            _ => opens(self.shared.options()).map(str::to_owned),
        }
    }
}
