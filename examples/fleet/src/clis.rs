//! A scripted CLI for each session, in place of the real one. A service of yours has none of this.

use std::time::Duration;

use greenroom_testkit::{ModelTurn, Script, ScriptedClis};

/// CLIs whose model takes this long for an answer.
pub(crate) fn clis(pace: Duration) -> ScriptedClis {
    ScriptedClis::new(move |name| {
        let turn = || ModelTurn::new().pause_before(pace);
        let script = Script::new().otherwise(turn().text("It arrives on Monday."));
        match name {
            "acme/1" | "cobalt/1" => script.turn(turn().call("mcp__shop__refund", serde_json::json!({}))),
            _ => script,
        }
    })
}
