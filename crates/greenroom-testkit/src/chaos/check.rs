//! The application's own check after a plan.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use greenroom::Outcome;
use greenroom::Session;
use greenroom::tool::CallToolResult;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::driver::{Driver, OpenRequest};
use crate::base::panic_text;

pub(super) type Check = Arc<dyn Fn(AfterPlan) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// A session that has survived a plan, for [`Chaos::check`](super::Chaos::check). Every call of the plan is answered,
/// every prompt has its outcome, and the session is still running.
#[derive(Debug)]
#[non_exhaustive]
pub struct AfterPlan {
    /// The session. Prompts are answered with `done`, and requests to the CLI with an empty answer.
    pub session: Session,
    /// The outcomes of the plan's prompts; empty [if no transcript is kept](super::Chaos::without_transcript).
    pub outcomes: Vec<Outcome>,
    /// Number of tool calls in the plan.
    pub calls: u64,
    asking: mpsc::Sender<CheckCall>,
}

/// A tool call of the check.
#[derive(Debug)]
struct CheckCall {
    server: String,
    tool: String,
    arguments: Value,
    reply: oneshot::Sender<Value>,
}

impl AfterPlan {
    /// Calls a tool as the CLI does, without a fault, and returns what the model would read. Use it to look at the
    /// state of a server. [`Chaos::expect`](super::Chaos::expect) does not see this call.
    pub async fn call(&self, server: &str, tool: &str, arguments: Value) -> CallToolResult {
        let (reply, answer) = oneshot::channel();
        let call = CheckCall { server: server.to_owned(), tool: tool.to_owned(), arguments, reply };
        // If the driver is gone, so is `reply`, and the answer says so.
        self.asking.send(call).await.ok();
        let Ok(mut answer) = answer.await else {
            return CallToolResult::error("the CLI ended before the call was answered");
        };
        serde_json::from_value(answer["result"].take()).unwrap_or_else(|_| {
            CallToolResult::error(
                answer["error"]["message"].as_str().unwrap_or("the answer is no tool result"),
            )
        })
    }
}

impl Driver<'_> {
    /// Runs the application's check, and is the CLI meanwhile.
    pub(super) async fn check_of_application(&mut self) {
        let Some(check) = self.chaos.check.clone() else { return };
        let (asking, mut asked) = mpsc::channel(16);
        let (session, outcomes) = (self.session.clone(), self.outcomes.clone());
        let after = AfterPlan { session, outcomes, calls: self.calls, asking };
        let mut checking = Box::pin(AssertUnwindSafe(async move { check(after).await }).catch_unwind());
        let mut late = Box::pin(sleep(self.chaos.patience));
        let failure = loop {
            let Some(end) = &mut self.end else {
                if self.cli().await.is_none() {
                    // The reason is among the problems.
                    return;
                }
                continue;
            };
            tokio::select! {
                biased;
                checked = &mut checking => match checked {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => break format!("failed: {error}"),
                    Err(panic) => break format!("panicked: {}", panic_text(&*panic)),
                },
                () = &mut late => break format!("did not end within {:?}", self.chaos.patience),
                Some(call) = asked.recv() => self.call_of_check(call).await,
                frame = end.recv() => match frame {
                    Some(frame) => self.serve(frame),
                    None => self.gone(),
                },
            }
        };
        self.problems.push(format!("the application's check {failure}"));
    }

    async fn call_of_check(&mut self, call: CheckCall) {
        let id = self.rpc_id;
        self.rpc_id += 1;
        let params = json!({ "name": call.tool, "arguments": call.arguments });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let open = OpenRequest { reply: Some(call.reply), ..OpenRequest::default() };
        self.ask(Self::mcp(&call.server, message), Some(open)).await;
    }

    fn serve(&mut self, frame: Value) {
        self.frame(frame);
        if let (Some(prompt), Some(end)) = (self.prompt.take(), &mut self.end) {
            end.begin_turn();
            end.finish_turn(&prompt, "done");
        }
    }
}
