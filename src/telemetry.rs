//! Trace and measure sessions: the names of spans, of their fields, and of metrics.
//!
//! Install a [`tracing`] subscriber to record the spans; without a subscriber that enables them, none are made. Fields
//! have the names of OpenTelemetry's semantic conventions (MCP, generative AI) where these exist; the short names beside them
//! are easier to read in a log. The conventions are in development, so names that come from them change with them: [`names`] has them all.
//!
//! | span | level | parent | fields |
//! |---|---|---|---|
//! | `session` | info | none | `session_id`, `gen_ai.conversation.id`, `gen_ai.provider.name`, `gen_ai.agent.name` |
//! | `turn` | info | `session` | `prompt_uuid`, `epoch`, `outcome`, `otel.name`, `otel.kind`, `otel.status_code`, `gen_ai.operation.name` (`invoke_agent`), `gen_ai.provider.name`, `gen_ai.agent.name`, `gen_ai.agent.id`, `gen_ai.agent.version`, `gen_ai.request.model`, `gen_ai.conversation.id`, `gen_ai.usage.input_tokens`, `gen_ai.usage.cache_read.input_tokens`, `gen_ai.usage.cache_creation.input_tokens`, `gen_ai.usage.output_tokens`, `gen_ai.response.finish_reasons`, `gen_ai.input.messages`, `gen_ai.output.messages`, `error.type` |
//! | `control_request` | info | the running `turn`; `session` outside of turns and for requests to the CLI | `request_id`, `kind`, `epoch`, `outcome` |
//! | `tool_call` | info | its `control_request` | `request_id`, `tool_use_id`, `server`, `tool`, `epoch`, `outcome`, `otel.name`, `otel.kind`, `otel.status_code`, `gen_ai.operation.name` (`execute_tool`), `gen_ai.tool.name`, `gen_ai.tool.type`, `gen_ai.tool.call.id`, `mcp.method.name`, `mcp.protocol.version`, `jsonrpc.request.id`, `network.transport`, `error.type` |
//! | `mcp_request` | info | its `control_request` | `request_id`, `server`, `subject`, `epoch`, `outcome`, `otel.name`, `otel.kind`, `otel.status_code`, `mcp.method.name`, `mcp.protocol.version`, `mcp.resource.uri`, `gen_ai.prompt.name`, `jsonrpc.request.id`, `network.transport`, `error.type` |
//!
//! | `outcome` of | values |
//! |---|---|
//! | `turn` | `completed`, `interrupted`, `deferred`, `failed`, `appended`, `not_started` |
//! | `control_request` | `answered`, `cancelled`, `refused`, `orphaned`; for requests to the CLI also `timed_out` and `withdrawn` |
//! | `mcp_request` (handlers of resources) | `ok`, `error`, `panic`, `cancelled` |
//! | `tool_call` | `ok`, `error` (the handler said so), `bad_arguments`, `panic`, `cancelled` |
//!
//! The input tokens of a turn are all that the model has read, cached ones included. `gen_ai.response.finish_reasons` and messages are JSON.
//! `error.type` of a turn is its [`ErrorKind`](crate::ErrorKind) in snake case; an interrupt by the user is no error.
//! [`TraceOptions`](crate::options::TraceOptions) name the agent.
//!
//! Prompts, answers, arguments and results of tools may be secret. They are recorded only with
//! [`Options::trace_payloads`](crate::Options::trace_payloads), as `gen_ai.input.messages`, `gen_ai.output.messages`,
//! `gen_ai.tool.call.arguments` and `gen_ai.tool.call.result`.
//!
//! A CLI that exports spans itself makes a span of each turn, too. Then the `turn` span has no attributes of an agent and of usage, so
//! that a backend counts each turn once: see [`GenAiSpans`](crate::options::GenAiSpans). Join both by `gen_ai.conversation.id`, and a tool call by
//! `gen_ai.tool.call.id`.
//!
//! A `control_request` span closes when the request is answered and its handler has ended. A handler runs inside its
//! `tool_call` span, so the handler's own events and spans belong to the call. The cause of a
//! [`ToolError`](crate::tool::ToolError) is an event there, of the level `WARN`, with the fields `error` (the text for the
//! model) and `cause`.
//!
//! # Metrics
//!
//! With the feature `metrics` a session measures by OpenTelemetry's global meter `greenroom`. Set the meter provider before the first session
//! starts.
//!
//! | metric | unit | attributes |
//! |---|---|---|
//! | `gen_ai.invoke_agent.duration` | s | `gen_ai.operation.name`, `greenroom.outcome`, `error.type` |
//! | `gen_ai.execute_tool.duration` | s | `gen_ai.operation.name`, `gen_ai.tool.name`, `error.type` |
//! | `mcp.server.operation.duration` | s | `mcp.method.name`, `gen_ai.tool.name`, `network.transport`, `error.type` |
//! | `gen_ai.client.inference.usage.input_tokens`, `.cache_read.input_tokens`, `.cache_creation.input_tokens`, `.output_tokens` | {token} | `gen_ai.operation.name` |
//! | `greenroom.cost` | USD | `gen_ai.operation.name` |
//! | `greenroom.cli.restarts`, `greenroom.tool.panics` | | |
//!
//! Each has `gen_ai.provider.name`, and `gen_ai.agent.name` and `gen_ai.request.model` if the options name them. No attribute has the name of a session,
//! a conversation or a text. Names of tools, agents and models are bounded in number; further ones are `other` ([`LabelValues`]).

mod labels;
pub mod names;

pub use labels::{LabelValues, OTHER};
