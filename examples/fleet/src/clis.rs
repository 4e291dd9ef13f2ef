//! A scripted CLI for each session, in place of the real one. A service of yours has none of this.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use greenroom::transport::MemoryTransport;
use greenroom_fleet::Name;
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};

pub(crate) struct Clis {
    pace: Duration,
    clis: Mutex<HashMap<Name, ScriptedCli>>,
}

impl Clis {
    pub(crate) fn new(pace: Duration) -> Self {
        Self { pace, clis: Mutex::default() }
    }

    /// The CLI of a session. It outlives the session, as a conversation does.
    pub(crate) fn transport(&self, name: &Name) -> MemoryTransport {
        let script = || {
            let turn = || ModelTurn::new().pause_before(self.pace);
            let mut script = Script::new().otherwise(turn().text("It arrives on Monday."));
            if ["acme/1", "cobalt/1"].contains(&&*name.to_string()) {
                script = script.turn(turn().call("mcp__shop__refund", serde_json::json!({})));
            }
            ScriptedCli::play(script)
        };
        let mut clis = self.clis.lock().unwrap_or_else(PoisonError::into_inner);
        clis.entry(name.clone()).or_insert_with(script).transport()
    }
}
