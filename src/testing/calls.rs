//! Handlers of tools that fail on purpose.

use std::sync::Arc;
use std::time::Duration;

use crate::session::SessionBuilder;
use crate::tool::define::definition::ToolDefinition;
use crate::tool::run::erased::{CallEnd, ToolRunner};
use crate::wire::CallToolResult;

/// A fault of one tool call, instead of its handler or before it: see
/// [`SessionBuilder::inject_in_calls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallFault {
    /// The handler panics.
    Panic,
    /// The handler never returns. A blocking handler returns when its call is cancelled: a runtime that ends waits for its
    /// blocking threads.
    Hang,
    /// The handler runs after this time.
    Slow(Duration),
    /// The handler returns an error to the model.
    Error,
}

type Decide = Arc<dyn Fn(&str) -> Option<CallFault> + Send + Sync>;

impl SessionBuilder {
    /// Breaks calls of the tools that were added so far. `decide` gets the `request_id` of each call when its handler is to run,
    /// and returns the fault of the call; with `None` the handler runs as it is. Handlers of servers made with `rmcp` are not
    /// reached.
    pub fn inject_in_calls(
        mut self,
        decide: impl Fn(&str) -> Option<CallFault> + Send + Sync + 'static,
    ) -> Self {
        let decide: Decide = Arc::new(decide);
        self.change_servers(|server| {
            for entry in server.registry.get_mut().tools.iter_mut() {
                break_tool(Arc::make_mut(&mut entry.definition), &decide);
            }
        });
        self
    }
}

fn break_tool(tool: &mut ToolDefinition, decide: &Decide) {
    let decide = decide.clone();
    tool.runner = match tool.runner.clone() {
        ToolRunner::Async(run) => ToolRunner::Async(Arc::new(move |state, call, arguments| {
            let fault = decide(call.request_id());
            let run = run.clone();
            Box::pin(async move {
                match fault {
                    Some(CallFault::Hang) => std::future::pending().await,
                    Some(CallFault::Slow(time)) => tokio::time::sleep(time).await,
                    Some(CallFault::Error) => return failed(),
                    Some(CallFault::Panic) => panic_on_purpose(),
                    None => {}
                }
                run(state, call, arguments).await
            })
        })),
        ToolRunner::Blocking(run) => ToolRunner::Blocking(Arc::new(move |state, call, arguments| {
            let runtime = tokio::runtime::Handle::current();
            match decide(call.request_id()) {
                Some(CallFault::Hang) => {
                    runtime.block_on(call.cancel().token().cancelled());
                    return failed();
                }
                Some(CallFault::Slow(time)) => runtime.block_on(tokio::time::sleep(time)),
                Some(CallFault::Error) => return failed(),
                Some(CallFault::Panic) => panic_on_purpose(),
                None => {}
            }
            run(state, call, arguments)
        })),
    };
}

fn failed() -> CallEnd {
    CallEnd::Returned(CallToolResult::error("an error was injected into this call"))
}

fn panic_on_purpose() {
    panic!("a panic was injected into this call");
}
