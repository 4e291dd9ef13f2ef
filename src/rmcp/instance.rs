//! A running handler, and the service loop of `rmcp` beside it.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use ::rmcp::RoleServer;
use ::rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    ClientRequest, ErrorData, GetExtensions, GetMeta, InitializeRequest, InitializeRequestParams,
    InitializedNotification, JsonRpcMessage, RequestId, ServerConfig, ServerResult,
};
use ::rmcp::service::{
    DynService, NotificationContext, RequestContext, RunningService, Service, serve_directly,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::wire::{LoopTransport, OpenCalls, Outlet};
use super::{Meeting, RmcpHandler};
use crate::lock::lock;
use crate::tool::run::context::{CallContext, ToolContext};
use crate::tool::run::erased::HandlerResult;
use crate::tool::spec::ServerSpec;
use crate::wire::brief::Short;
use crate::wire::lenient::read_object;
use crate::wire::rpc::RpcError;

/// A running handler.
pub(super) struct Mounted {
    handler: RmcpHandler,
    open: Arc<OpenCalls>,
    meeting: Arc<Meeting>,
    door: mpsc::UnboundedSender<ClientJsonRpcMessage>,
    /// Ends the loop when it is dropped.
    running: RunningService<RoleServer, LoopListener>,
}

impl Mounted {
    pub(super) async fn start(handler: RmcpHandler, spec: Arc<ServerSpec>, meeting: Arc<Meeting>) -> Self {
        let (door, inbound) = mpsc::unbounded_channel();
        let open = Arc::<OpenCalls>::default();
        let outlet = Outlet::new(spec, open.clone(), door.downgrade());
        let running = serve_directly::<RoleServer, _, _, _, _>(
            LoopListener { handler: Arc::downgrade(&handler) },
            LoopTransport { inbound, outlet },
            None,
        );
        let newest = lock(&meeting.initialize).clone();
        let mounted = Self { handler, open, meeting, door, running };
        if let Some(params) = newest {
            mounted.meet_again(params).await;
        }
        *lock(&mounted.meeting.door) = Some(mounted.door.downgrade());
        mounted
    }

    /// Gives a new handler the `initialize` and `initialized` that the CLI sent to the one before.
    async fn meet_again(&self, params: InitializeRequestParams) {
        let id = self.open.next_id();
        let context = RequestContext::new(RequestId::Number(id), self.running.peer().clone());
        let request = ClientRequest::InitializeRequest(InitializeRequest::new(params.clone()));
        match self.handler.handle_request(request, context).await {
            Ok(result) => {
                self.met(params, &result);
                let initialized = InitializedNotification::default();
                // The loop lives as long as `self`.
                self.door.send(JsonRpcMessage::notification(initialized.into())).ok();
            }
            Err(error) => tracing::debug!(%error, "a restarted handler refuses `initialize`"),
        }
    }

    /// Stores the parameters and the agreed protocol version.
    fn met(&self, mut params: InitializeRequestParams, result: &ServerResult) {
        if let ServerResult::InitializeResult(result) = result {
            *lock(&self.meeting.initialize) = Some(params.clone());
            params.protocol_version = result.protocol_version.clone();
            self.running.peer().set_peer_info(params);
        }
    }

    /// Runs a request in the handler, with an id and a progress token of ours.
    pub(super) async fn serve(
        &self,
        call: Arc<CallContext>,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> HandlerResult {
        let open = self.open.begin(call.clone());
        let mut message = json!({ "jsonrpc": "2.0", "id": open.id, "method": method });
        if let Some(params) = params {
            let mut params: Value = read_object(params.get()).map_err(|error| misfit(method, &error))?;
            // Ignored, as in the calls of other servers.
            if !params["_meta"].is_object()
                && let Some(params) = params.as_object_mut()
            {
                params.remove("_meta");
            }
            if call.progress_token().is_some() {
                params["_meta"]["progressToken"] = json!(open.id);
            }
            message["params"] = params;
        }
        let mut request = match serde_json::from_value::<ClientJsonRpcMessage>(message) {
            Ok(JsonRpcMessage::Request(request)) => request.request,
            Ok(_) => return Err(RpcError::invalid_params(format!("'{}' is no request", Short(method)))),
            Err(error) => return Err(misfit(method, &error)),
        };
        let id = RequestId::Number(open.id);
        let mut context = RequestContext::new(id.clone(), self.running.peer().clone());
        context.ct = call.cancel().token().child_token();
        std::mem::swap(&mut context.meta, request.get_meta_mut());
        std::mem::swap(&mut context.extensions, request.extensions_mut());
        context.extensions.insert(ToolContext::new(Arc::new(()), call.clone()));
        let initialize = match &request {
            ClientRequest::InitializeRequest(request) => Some(request.params.clone()),
            _ => None,
        };
        let told = async {
            call.cancel().token().cancelled().await;
            let cancelled = CancelledNotification::new(CancelledNotificationParam::new(Some(id), None));
            self.door.send(JsonRpcMessage::notification(cancelled.into())).ok();
            // The handler may still use its grace time.
            std::future::pending::<Infallible>().await
        };
        let result = tokio::select! {
            biased;
            // Polled first, because the handler may end with the token.
            never = told => match never {},
            result = self.handler.handle_request(request, context) => result,
        };
        let result = result.map_err(|ErrorData { code, message, data, .. }| RpcError {
            data,
            ..RpcError::new(code.0.into(), message)
        })?;
        if let Some(params) = initialize {
            self.met(params, &result);
        }
        serde_json::to_value(result).map_err(|error| {
            RpcError::internal(format!("the result of '{method}' does not serialise: {error}"))
        })
    }
}

fn misfit(method: &str, error: &serde_json::Error) -> RpcError {
    let error = error.to_string();
    RpcError::invalid_params(format!("the parameters of '{}' do not fit: {}", Short(method), Short(&error)))
}

/// Receives notifications in the loop. It holds the handler weakly, so that the handler is dropped as a state, on the
/// blocking pool.
struct LoopListener {
    handler: Weak<dyn DynService<RoleServer>>,
}

impl Service<RoleServer> for LoopListener {
    async fn handle_request(
        &self,
        _: ClientRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        Err(ErrorData::internal_error("requests are not served by the loop", None))
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.handler.upgrade() {
            Some(handler) => handler.handle_notification(notification, context).await,
            None => Ok(()),
        }
    }

    fn get_info(&self) -> ServerConfig {
        self.handler.upgrade().map(|handler| handler.get_info()).unwrap_or_default()
    }
}
