//! The names of attributes and metrics.
//!
//! They follow the conventions for generative AI in OpenTelemetry's repository `semantic-conventions-genai` as of 2026-11, which are all "in
//! development": a name changes here when the conventions change it, without an alias. What begins with `greenroom.` is of
//! this library.

/// Sets the name of the span in OpenTelemetry (`tracing-opentelemetry`).
pub const OTEL_NAME: &str = "otel.name";
/// Sets the kind of the span: `internal` or `server`.
pub const OTEL_KIND: &str = "otel.kind";
/// Sets the status of the span: `OK` or `ERROR`.
pub const OTEL_STATUS: &str = "otel.status_code";
/// The class of an error.
pub const ERROR_TYPE: &str = "error.type";
/// `invoke_agent` or `execute_tool`.
pub const OPERATION: &str = "gen_ai.operation.name";
/// `anthropic`, `aws.bedrock` or `gcp.vertex_ai`.
pub const PROVIDER: &str = "gen_ai.provider.name";
/// The agent: in a fleet the profile.
pub const AGENT_NAME: &str = "gen_ai.agent.name";
/// The agent's id.
pub const AGENT_ID: &str = "gen_ai.agent.id";
/// The agent's version.
pub const AGENT_VERSION: &str = "gen_ai.agent.version";
/// The conversation's id.
pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
/// The model that the options name.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// Why the model stopped: a JSON array.
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// All input tokens, cached ones included.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Input tokens from the cache.
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// Input tokens that were put into the cache.
pub const CACHE_CREATION_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
/// Output tokens.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// The prompt: a JSON array of messages.
pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
/// The answer: a JSON array of messages.
pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
/// The tool.
pub const TOOL_NAME: &str = "gen_ai.tool.name";
/// `function`.
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
/// The model's id of the call.
pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
/// The arguments: a JSON object.
pub const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
/// The result: JSON.
pub const TOOL_RESULT: &str = "gen_ai.tool.call.result";
/// The name of a prompt template.
pub const PROMPT_NAME: &str = "gen_ai.prompt.name";
/// The method of a request to a tool server.
pub const MCP_METHOD: &str = "mcp.method.name";
/// The version of MCP.
pub const MCP_VERSION: &str = "mcp.protocol.version";
/// The resource that was asked for.
pub const RESOURCE_URI: &str = "mcp.resource.uri";
/// The id of the request.
pub const RPC_ID: &str = "jsonrpc.request.id";
/// `pipe`.
pub const TRANSPORT: &str = "network.transport";
/// How the turn has ended, in one word.
pub const OUTCOME: &str = "greenroom.outcome";
/// The time that a name has waited for a slot, in seconds.
pub const QUEUE_WAIT: &str = "greenroom.queue.wait";
/// `cold` or `resumed`.
pub const WAKE: &str = "greenroom.wake";

/// Metric: the time of a turn, in seconds.
pub const INVOKE_AGENT_DURATION: &str = "gen_ai.invoke_agent.duration";
/// Metric: the time of a tool call, in seconds.
pub const EXECUTE_TOOL_DURATION: &str = "gen_ai.execute_tool.duration";
/// Metric: the time of a request to a tool server, in seconds.
pub const MCP_DURATION: &str = "mcp.server.operation.duration";
/// Metric: all input tokens, cached ones included.
pub const USAGE_INPUT: &str = "gen_ai.client.inference.usage.input_tokens";
/// Metric: input tokens from the cache.
pub const USAGE_CACHE_READ: &str = "gen_ai.client.inference.usage.cache_read.input_tokens";
/// Metric: input tokens that were put into the cache.
pub const USAGE_CACHE_CREATION: &str = "gen_ai.client.inference.usage.cache_creation.input_tokens";
/// Metric: output tokens.
pub const USAGE_OUTPUT: &str = "gen_ai.client.inference.usage.output_tokens";
/// Metric: money in US dollars, as the CLI estimates it.
pub const COST: &str = "greenroom.cost";
/// Metric: starts of a CLI after the first of its session.
pub const CLI_RESTARTS: &str = "greenroom.cli.restarts";
/// Metric: panics of tools.
pub const TOOL_PANICS: &str = "greenroom.tool.panics";
