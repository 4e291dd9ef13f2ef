//! The current incarnation of the CLI, as all actors of a session see it.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::base::current_value::CurrentValue;
use super::outbound::Outbound;
use crate::control::permission::Understands;
use crate::plain::short;
use crate::report::CliSnapshot;
use crate::requests::{Reply, ServerInfo};
use crate::transport::{ContainedBy, ProcessIdentity};
use crate::wire::Message;
use crate::wire::lenient::{JsonSource, Lenient, ListRule};

/// The capabilities that the current CLI has named.
#[derive(Default)]
struct Capabilities {
    /// Named in the answer to `initialize`: only some of the capabilities.
    of_initialize: Vec<String>,
    /// Named in `system/init`: all capabilities. `None` before the first turn.
    of_init: Option<Vec<String>>,
}

impl Capabilities {
    /// True if the CLI has the capability; `None` if the CLI has not named all of its capabilities yet.
    fn has(&self, name: &str) -> Option<bool> {
        if self.of_initialize.iter().chain(self.of_init.iter().flatten()).any(|known| known == name) {
            return Some(true);
        }
        self.of_init.as_ref().map(|_| false)
    }
}

/// Sends when the conversation was told all messages that were read before.
pub(crate) type Flush = Arc<dyn Fn(oneshot::Sender<()>) + Send + Sync>;

/// An incarnation whose process was started.
pub(crate) struct RunningCli {
    /// The queue to its stdin.
    pub(crate) outbound: Outbound,
    /// `None` without a real process.
    pub(crate) process: Option<ProcessIdentity>,
    pub(crate) pid: Option<u32>,
    pub(crate) contained_by: Option<ContainedBy>,
    pub(crate) flush: Flush,
}

/// The current incarnation. Written by the incarnation, by the supervisor at its end, and by the conversation.
pub(crate) struct CurrentCli {
    /// `None` while no incarnation is open.
    running: CurrentValue<Option<RunningCli>>,
    /// The answer of the newest CLI to `initialize`.
    info: CurrentValue<Arc<Reply<ServerInfo>>>,
    capabilities: CurrentValue<Capabilities>,
}

impl CurrentCli {
    pub(crate) fn new() -> Self {
        let info = Reply::new(ServerInfo::default(), RawValue::NULL.to_owned());
        Self {
            running: CurrentValue::new(None),
            info: CurrentValue::new(Arc::new(info)),
            capabilities: CurrentValue::new(Capabilities::default()),
        }
    }

    /// The queue to the stdin of the current incarnation.
    pub(crate) fn outbound(&self) -> Option<Outbound> {
        self.running.read().as_ref().map(|running| running.outbound.clone())
    }

    /// The queue to the stdin of this incarnation, while the incarnation is the current one.
    pub(crate) fn outbound_of(&self, epoch: u64) -> Option<Outbound> {
        self.outbound().filter(|outbound| outbound.epoch() == epoch)
    }

    pub(crate) fn process(&self) -> Option<ProcessIdentity> {
        self.running.read().as_ref().and_then(|running| running.process.clone())
    }

    pub(crate) fn info(&self) -> Arc<Reply<ServerInfo>> {
        self.info.read().clone()
    }

    pub(crate) fn has_capability(&self, name: &str) -> Option<bool> {
        self.capabilities.read().has(name)
    }

    /// The capabilities of the CLI that permission decisions depend on.
    pub(crate) fn understands(&self) -> Understands {
        let unanswered = self.capabilities.read().has("ask_user_question_unanswered_v1") == Some(true);
        Understands { unanswered }
    }

    /// The state of this incarnation, and the flush of its messages once it is open.
    pub(crate) fn snapshot(&self, epoch: u64) -> (CliSnapshot, Option<Flush>) {
        let running = self.running.read();
        let running = running.as_ref().filter(|running| running.outbound.epoch() == epoch);
        let ready = running.is_some_and(|running| running.outbound.is_ready());
        let snapshot = CliSnapshot {
            epoch,
            pid: running.and_then(|running| running.pid),
            contained_by: running.and_then(|running| running.contained_by),
            ready,
            version: self.info.read().claude_code_version.clone().filter(|_| ready).map(short),
            lines_queued: running.map_or(0, |running| running.outbound.queued()),
            outbound_bytes: running.map_or(0, |running| running.outbound.bytes().queued.count()),
        };
        (snapshot, running.map(|running| running.flush.clone()))
    }

    /// An incarnation was opened. Replaces no later incarnation.
    pub(crate) fn opened(&self, opened: RunningCli) {
        self.running.change(|current| {
            if current.as_ref().is_none_or(|current| current.outbound.epoch() < opened.outbound.epoch()) {
                *current = Some(opened);
            }
        });
    }

    /// An incarnation has ended.
    pub(crate) fn ended(&self, epoch: u64) {
        self.running.change(|current| drop(current.take_if(|current| current.outbound.epoch() <= epoch)));
    }

    /// Notes the CLI's answer to `initialize`.
    pub(crate) fn note_info(&self, info: Reply<ServerInfo>) {
        self.capabilities.set(Capabilities { of_initialize: info.capabilities.clone(), of_init: None });
        self.info.set(Arc::new(info));
    }

    /// Notes capabilities and changed commands that a message names.
    pub(crate) fn note_message(&self, message: &Message) {
        let Message::System(system) = message else { return };
        if let Some(init) = system.init() {
            self.capabilities.change(|known| {
                if known.of_init.as_ref() != Some(&init.capabilities) {
                    known.of_init = Some(init.capabilities.clone());
                }
            });
        }
        if system.subtype == "commands_changed"
            && let Some(commands) = message
                .field("commands")
                .and_then(|commands| Lenient::read(JsonSource::Parsed(&commands), ListRule::Whole))
        {
            self.info.change(|info| Arc::make_mut(info).view_mut().commands = commands);
        }
    }
}
