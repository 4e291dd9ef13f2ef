//! Answers of the CLI to requests, as version 2.1.328 was seen to write them, or as its SDK declares them.

use serde_json::{Value, json};

pub(crate) fn context_usage() -> Value {
    json!({
        "categories": [
            {"id": "system_prompt", "name": "System prompt", "tokens": 2333, "color": "promptBorder", "kind": "used"},
            {"id": "mcp_tools_deferred", "name": "MCP tools (deferred)", "tokens": 89, "color": "inactive",
             "isDeferred": true, "kind": "deferred"},
        ],
        "totalTokens": 13324, "maxTokens": 1000000, "rawMaxTokens": 1000000,
        "percentage": 1,
        "gridRows": [[{"color": "promptBorder", "isFilled": true, "categoryName": "System prompt", "tokens": 2333,
                       "percentage": 0, "squareFullness": 0.4666}]],
        "model": "claude-opus-5-5",
        "memoryFiles": [{"path": "/srv/CLAUDE.md", "type": "Project", "tokens": 12}],
        "mcpTools": [{"name": "mcp__calc__add", "serverName": "calc", "tokens": 57, "isLoaded": true}],
        "mcpInstructions": [{"serverName": "calc", "tokens": 3}],
        "deferredBuiltinTools": [{"name": "WebFetch", "tokens": 9, "isLoaded": false}],
        "systemTools": [{"name": "Read", "tokens": 500}],
        "systemPromptSections": [{"name": "Tone", "tokens": 5}],
        "agents": [{"agentType": "a", "source": "plugin", "pluginId": "p@m", "path": "/a.md", "tokens": 4}],
        "slashCommands": {"totalCommands": 13, "includedCommands": 13, "tokens": 1102},
        "skills": {"totalSkills": 13, "includedSkills": 13, "tokens": 2067, "skillFrontmatter": [
            {"name": "dataviz", "source": "built-in", "pluginName": "p", "pluginId": "p@m", "path": "/s", "tokens": 482},
        ]},
        "autoCompactThreshold": 967000, "isAutoCompactEnabled": true,
        "messageBreakdown": {
            "toolCallTokens": 32, "toolResultTokens": 48, "attachmentTokens": 19184, "assistantMessageTokens": 24,
            "userMessageTokens": 329, "redirectedContextTokens": 0, "unattributedTokens": 0,
            "toolCallsByType": [{"name": "Write", "callTokens": 32, "resultTokens": 48}],
            "attachmentsByType": [{"name": "prompt_snapshot", "tokens": 16092}],
        },
        "apiUsage": {"input_tokens": 10, "output_tokens": 9, "cache_creation_input_tokens": 0,
                     "cache_read_input_tokens": 0},
    })
}

pub(crate) fn usage() -> Value {
    json!({
        "session": {
            "total_cost_usd": 0.00022, "total_api_duration_ms": 35, "total_duration_ms": 6149, "total_lines_added": 0,
            "total_lines_removed": 0,
            "model_usage": {"claude-opus-5-5": {
                "inputTokens": 10, "outputTokens": 9, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0,
                "webSearchRequests": 0, "costUSD": 0.00022, "contextWindow": 1000000, "maxOutputTokens": 128000,
            }},
        },
        "subscription_type": "max", "rate_limits_available": true,
        "rate_limits": {
            "five_hour": {"utilization": 12.5, "resets_at": "2026-11-20T12:00:00Z"},
            "seven_day": {"utilization": null, "resets_at": null},
            "seven_day_oauth_apps": null, "seven_day_opus": null, "seven_day_sonnet": null,
            "model_scoped": [{"display_name": "Fable", "utilization": 1, "resets_at": null}],
            "extra_usage": {"is_enabled": false},
        },
        "behaviors": {"day": {}, "week": {}},
    })
}

pub(crate) fn plugins() -> Value {
    json!({
        "commands": [{"name": "a", "description": "b", "argumentHint": ""}],
        "agents": [{"name": "a", "description": "b", "model": "inherit"}],
        "plugins": [{"name": "notes", "path": "/srv/notes", "source": "notes@m", "version": "1"}],
        "mcpServers": [], "error_count": 1, "held": true,
        "cache_impact": {"mcp_servers_added": ["x"], "mcp_servers_removed": [], "lsp_tool_change": null},
    })
}

pub(crate) fn mcp_status() -> Value {
    json!({"mcpServers": [
        {"name": "ext", "status": "connected", "serverInfo": {"name": "ext", "version": "2.0"},
         "config": {"type": "stdio", "command": "ext"}, "transport": "stdio", "scope": "dynamic", "source": "dynamic",
         "tools": [{"name": "echo", "description": "d",
                    "annotations": {"readOnly": true, "destructive": false, "openWorld": false},
                    "_meta": {"ui": {"resourceUri": "ui://a"}}}]},
        {"name": "down", "status": "failed", "error": "gone"},
    ]})
}
