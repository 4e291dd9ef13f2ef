//! Makes handlers of tools fail as planned.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::testkit::chaos::plan::FaultKind;
use crate::tool::define::definition::ToolDefinition;
use crate::tool::run::context::CallContext;
use crate::tool::run::erased::{Ran, ToolRunner};
use crate::tool::spec::ServerSpec;
use crate::wire::CallToolResult;

/// The planned faults of calls, by request id.
#[derive(Clone, Default)]
pub(super) struct HandlerFaults(Arc<Mutex<HashMap<String, (FaultKind, u32)>>>);

impl HandlerFaults {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (FaultKind, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn plan(&self, request_id: &str, fault: FaultKind, n: u32) {
        self.lock().insert(request_id.to_owned(), (fault, n));
    }

    /// Forgets the faults of finished calls.
    pub(super) fn forget_all(&self) {
        self.lock().clear();
    }

    fn of(&self, call: &CallContext) -> Option<(FaultKind, u32)> {
        self.lock().remove(call.request_id())
    }

    /// Wraps the handlers of a server, so that planned calls fail.
    pub(super) fn in_server(&self, mut server: ServerSpec) -> ServerSpec {
        for entry in server.registry.get_mut().tools.iter_mut() {
            self.in_tool(Arc::make_mut(&mut entry.definition));
        }
        server
    }

    fn in_tool(&self, tool: &mut ToolDefinition) {
        let faults = self.clone();
        tool.runner = match tool.runner.clone() {
            ToolRunner::Async(run) => ToolRunner::Async(Arc::new(move |state, call, arguments| {
                let fault = faults.of(&call);
                let run = run.clone();
                Box::pin(async move {
                    match fault {
                        Some((FaultKind::HandlerHang, _)) => std::future::pending().await,
                        Some((FaultKind::HandlerSlow, n)) => tokio::time::sleep(slow(n)).await,
                        Some((FaultKind::HandlerError, _)) => return failed(),
                        Some((FaultKind::HandlerPanic, _)) => panic_on_purpose(),
                        _ => {}
                    }
                    run(state, call, arguments).await
                })
            })),
            ToolRunner::Blocking(run) => ToolRunner::Blocking(Arc::new(move |state, call, arguments| {
                match faults.of(&call) {
                    Some((FaultKind::HandlerHang, _)) => {
                        // Not for ever: the runtime waits for its blocking threads when it ends.
                        tokio::runtime::Handle::current().block_on(call.cancel().token().cancelled());
                        return failed();
                    }
                    Some((FaultKind::HandlerSlow, n)) => {
                        tokio::runtime::Handle::current().block_on(tokio::time::sleep(slow(n)));
                    }
                    Some((FaultKind::HandlerError, _)) => return failed(),
                    Some((FaultKind::HandlerPanic, _)) => panic_on_purpose(),
                    _ => {}
                }
                run(state, call, arguments)
            })),
        };
    }
}

fn slow(n: u32) -> Duration {
    Duration::from_millis(u64::from(n % 2000))
}

fn failed() -> Ran {
    Ran::Returned(CallToolResult::error("an error was injected into this call"))
}

fn panic_on_purpose() {
    panic!("a panic was injected into this call");
}
