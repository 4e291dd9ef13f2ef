//! Parts of the options in JSON and in `Debug`, and the variables that a policy lets the CLI inherit.

use std::time::Duration;

use greenroom::options::{EnvPolicy, ExternalServer, StoreFlush, StoreOptions, Timeouts};
use serde_json::json;

use super::options;

#[test]
fn servers_are_read_and_written_as_the_clis_json() {
    let table = [
        json!({ "type": "stdio", "command": "npx", "args": ["-y"], "env": { "A": "b" }, "timeout": 2000, "alwaysLoad": true, "new": 1 }),
        json!({ "type": "sse", "url": "https://x", "headers": { "H": "v" }, "alwaysLoad": false, "tools": [
            { "name": "wipe", "permission_policy": "always_ask", "org_max_permission": "blocked" },
        ]}),
        json!({ "type": "http", "url": "https://x", "timeout": 1500 }),
        json!({ "type": "ws", "url": "wss://x", "more": [1] }),
    ];
    for wire in table {
        let server: ExternalServer = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(server.extra.contains_key("more"), wire["type"] == "ws", "{server:?}");
        assert_eq!(serde_json::to_value(&server).unwrap(), wire);
    }
    let short: ExternalServer = serde_json::from_value(json!({ "command": "npx" })).unwrap();
    assert_eq!(short, ExternalServer::stdio("npx", [""; 0]));
}

#[test]
fn a_server_without_a_required_field_is_refused() {
    for (wire, field) in [
        (json!({ "type": "http" }), "url"),
        (json!({ "type": "sse", "url": " " }), "url"),
        (json!({ "args": [] }), "command"),
    ] {
        let error = options(&json!({ "mcp_servers": { "x": wire } })).validate().unwrap_err().to_string();
        assert!(error.contains(&format!("the server 'x' has no {field}")), "{error}");
    }
    let error = serde_json::from_value::<ExternalServer>(json!({ "command": "x", "timeout": "soon" }));
    assert!(error.unwrap_err().to_string().contains("\"soon\""));
}

#[test]
fn a_service_inherits_no_secret_of_the_host() {
    for name in ["PATH", "HOME", "LC_ALL", "TZ"] {
        assert!(EnvPolicy::Service.inherits(name), "{name}");
    }
    let secret = "AWS_SECRET_ACCESS_KEY DATABASE_URL GITHUB_TOKEN ANTHROPIC_API_KEY SENTRY_DSN PGPASSWORD HTTPS_PROXY \
        SSH_AUTH_SOCK LC_TOKEN OF_TOMORROW NODE_OPTIONS BUN_OPTIONS CLAUDECODE";
    for name in secret.split_whitespace() {
        assert!(!EnvPolicy::Service.inherits(name), "{name}");
    }
    // No service variable looks like a secret: a wildcard matches each of them.
    let any = EnvPolicy::Only(vec!["*".into()]);
    assert!(EnvPolicy::SERVICE_VARIABLES.iter().all(|name| any.inherits(name)));
}

#[test]
fn a_wildcard_never_inherits_a_secret() {
    let policy = EnvPolicy::Only(vec!["APP_*".into(), "APP_TOKEN".into(), "*".into()]);
    for (name, inherited) in [
        ("APP_MODE", true),
        ("APP_TOKEN", true),
        ("APP_api_key", false),
        ("MYSQL_PWD", false),
        ("MONGODB_URI", false),
        ("https_proxy", false),
        ("AZURE_STORAGE_CONNECTION_STRING", false),
        ("SLACK_WEBHOOK", false),
        ("BUN_OPTIONS", false),
        ("app", true),
    ] {
        assert_eq!(policy.inherits(name), inherited, "{name}");
    }
    assert!(!EnvPolicy::Clean.inherits("PATH") && !EnvPolicy::Inherit.inherits("BUN_OPTIONS"));
}

#[test]
fn policies_in_json() {
    for (json, policy) in [
        (r#""inherit""#, EnvPolicy::Inherit),
        (r#""service""#, EnvPolicy::Service),
        (r#"{"only":["PATH","LC_*"]}"#, EnvPolicy::Only(vec!["PATH".into(), "LC_*".into()])),
        (r#""clean""#, EnvPolicy::Clean),
    ] {
        assert_eq!(serde_json::from_str::<EnvPolicy>(json).unwrap(), policy);
        assert_eq!(serde_json::to_string(&policy).unwrap(), json);
    }
}

#[test]
fn limits_in_json_are_milliseconds_or_null() {
    let timeouts: Timeouts = serde_json::from_str(r#"{"tool": 1500, "hook": null, "drain": 250}"#).unwrap();
    assert_eq!(timeouts.tool, Some(Duration::from_millis(1500)));
    assert_eq!((timeouts.hook, timeouts.drain), (None, Duration::from_millis(250)));
    let again: Timeouts = serde_json::from_str(&serde_json::to_string(&timeouts).unwrap()).unwrap();
    assert_eq!(again, timeouts);
    assert!(serde_json::from_str::<Timeouts>(r#"{"tol": 1}"#).is_err(), "a misspelled name is refused");
}

#[test]
fn store_options_in_json_are_milliseconds() {
    let options: StoreOptions =
        serde_json::from_str(r#"{"flush": "eager", "retry_pauses": [5], "append": 100}"#).unwrap();
    assert_eq!(options.retry_pauses, [Duration::from_millis(5)]);
    assert_eq!((options.flush, options.append), (StoreFlush::Eager, Duration::from_millis(100)));
    let again: StoreOptions = serde_json::from_str(&serde_json::to_string(&options).unwrap()).unwrap();
    assert_eq!(again, options);
    assert!(serde_json::from_str::<StoreOptions>(r#"{"apend": 1}"#).is_err(), "a misspelled name is refused");
}

#[test]
fn debug_shows_names_instead_of_values_that_may_be_secret() {
    let options = options(&json!({
        "model": "opus",
        "env": { "TOKEN": "hunter2" },
        "extra_args": { "secret-flag": "hunter2" },
        "settings": { "apiKeyHelper": "echo hunter2" },
        "managed_settings": { "forceLoginOrgUUID": "hunter2" },
        "mcp_servers": {
            "files": { "command": "npx", "args": ["--key=hunter2"], "env": { "KEY": "hunter2" }, "more": "hunter2" },
            "web": { "type": "http", "url": "https://me:hunter2@x.test:8443/hunter2/mcp?key=hunter2", "headers": { "Authorization": "hunter2" } },
            "events": { "type": "sse", "url": "https://x.test#hunter2", "headers": { "X-Key": "hunter2" } },
            "odd": { "type": "sse", "url": "hunter2" },
            "slash": { "type": "sse", "url": "https://x.test\\hunter2" },
            "new": { "type": "ws", "password": "hunter2" },
        },
        "agents": { "a": { "description": "d", "prompt": "p", "AGENT_EXTRA": "hunter2", "mcpServers": [
            { "inner": { "command": "x", "env": { "INNER": "hunter2" } } },
        ] } },
    }));
    let shown = format!("{options:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let names = "opus TOKEN secret-flag apiKeyHelper forceLoginOrgUUID npx KEY more https://x.test:8443/... AGENT_EXTRA \
        Authorization X-Key password INNER prompts_queued";
    for name in names.split_whitespace() {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    let shown = |settings: &str| format!("{:?}", super::options(&json!({ "settings": settings })));
    assert!(!shown(r#" {"key": "hunter2"}"#).contains("hunter2"));
    assert!(shown("/etc/s.json").contains("/etc/s.json"));
}
