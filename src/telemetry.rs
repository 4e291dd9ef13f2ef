//! Trace a session: the names of its spans and of their fields, which are stable.
//!
//! Install a [`tracing`] subscriber to record the spans; without a subscriber that enables them, none are made. Fields
//! have the names of OpenTelemetry's semantic conventions (MCP, GenAI) where these exist; the short names beside them
//! are easier to read in a log.
//!
//! | span | level | parent | fields |
//! |---|---|---|---|
//! | `session` | info | none | `session_id`, `gen_ai.conversation.id`, `gen_ai.system` |
//! | `turn` | info | `session` | `prompt_uuid`, `epoch`, `outcome`, `gen_ai.operation.name` (`invoke_agent`), `gen_ai.conversation.id`, `gen_ai.usage.input_tokens`, `gen_ai.usage.output_tokens` |
//! | `control_request` | info | the running `turn`; `session` outside of turns and for requests to the CLI | `request_id`, `kind`, `epoch`, `outcome` |
//! | `tool_call` | info | its `control_request` | `request_id`, `tool_use_id`, `server`, `tool`, `epoch`, `outcome`, `gen_ai.operation.name` (`execute_tool`), `gen_ai.tool.name`, `gen_ai.tool.call.id`, `mcp.method.name`, `jsonrpc.request.id`, `error.type` |
//! | `mcp_request` | info | its `control_request` | `request_id`, `server`, `subject` (a URI or a name), `epoch`, `outcome`, `mcp.method.name`, `jsonrpc.request.id`, `error.type` |
//!
//! | `outcome` of | values |
//! |---|---|
//! | `turn` | `completed`, `interrupted`, `failed`, `not_started` |
//! | `control_request` | `answered`, `cancelled`, `refused`, `orphaned`; for requests to the CLI also `timed_out` and `withdrawn` |
//! | `mcp_request` (handlers of resources) | `ok`, `error`, `panic`; empty if it was cancelled or aborted |
//! | `tool_call` | `ok`, `error` (the handler said so), `bad_arguments`, `panic`; empty if it was cancelled or aborted |
//!
//! Arguments and results of tools may be secret. They are recorded only with
//! [`Options::trace_payloads`](crate::Options::trace_payloads), as `gen_ai.tool.call.arguments` and
//! `gen_ai.tool.call.result`.
//!
//! A `control_request` span closes when the request is answered and its handler has ended. A handler runs inside its
//! `tool_call` span, so the handler's own events and spans belong to the call. The cause of a
//! [`ToolError`](crate::tool::ToolError) is an event there, of the level `WARN`, with the fields `error` (the text for the
//! model) and `cause`.
