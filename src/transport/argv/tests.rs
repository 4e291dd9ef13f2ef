use std::collections::BTreeMap;

use super::env::READS_SESSION_STATE;
use super::*;
use crate::ErrorKind;
use crate::options::ExternalServer;

const BASE: [&str; 3] = ["--output-format=stream-json", "--verbose", "--input-format=stream-json"];

fn spec() -> LaunchSpec {
    LaunchSpec {
        epoch: 1,
        resume: Resume::AsOptions,
        private: Channel::Arguments,
        permission_prompt: false,
        session_mirror: false,
        stderr: std::sync::Arc::new(|_| {}),
    }
}

fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

/// The arguments after the base arguments.
fn beyond_base(options: &Options, spec: &LaunchSpec) -> Vec<String> {
    let args = launch_for(options, spec).unwrap().args;
    assert_eq!(args[..3], BASE);
    args[3..].to_vec()
}

type Change = fn(&mut Options);

#[test]
fn the_spec_adds_its_flags() {
    let spec = LaunchSpec { permission_prompt: true, session_mirror: true, ..spec() };
    assert_eq!(
        beyond_base(&Options::default(), &spec),
        ["--permission-prompt-tool=stdio", "--session-mirror"]
    );
}

#[test]
fn a_captured_session_overrides_every_choice_of_conversation() {
    let captured = LaunchSpec { epoch: 2, resume: Resume::Same("captured".into()), ..spec() };
    let changes: [Change; 4] = [
        |o| o.resume = Some("first".into()),
        |o| (o.resume, o.fork_session, o.session_id) = (Some("first".into()), true, Some("new".into())),
        |o| (o.continue_conversation, o.resume_session_at) = (true, Some("m".into())),
        |o| {
            o.extra_args = ["resume-session-at", "resume-drops-turn", "from-pr", "resume", "session-id"]
                .map(|name| (name.to_owned(), Some("x".to_owned())))
                .into()
        },
    ];
    for change in changes {
        assert_eq!(beyond_base(&options(change), &captured), ["--resume=captured"]);
        let fork = LaunchSpec { resume: Resume::Fork("captured".into()), ..captured.clone() };
        assert_eq!(beyond_base(&options(change), &fork), ["--resume=captured", "--fork-session"]);
        let fresh = LaunchSpec { resume: Resume::Fresh, ..captured.clone() };
        assert!(beyond_base(&options(change), &fresh).is_empty());
    }
    let kept = options(|o| o.extra_args = [("resume-session-at".into(), Some("x".into()))].into());
    assert_eq!(beyond_base(&kept, &spec()), ["--resume-session-at=x"]);
}

#[test]
fn servers_share_one_mcp_config() {
    let options = options(|o| {
        let web = ExternalServer::http("https://example.com/mcp")
            .with_header("Authorization", "Bearer x")
            .with_always_load(true);
        o.mcp_servers =
            [("files".to_owned(), ExternalServer::stdio("npx", ["-y", "server"])), ("web".to_owned(), web)]
                .into();
        o.mcp_config_files = vec!["/more.json".into()];
    });
    let args = beyond_base(&options, &spec());
    assert_eq!(args.len(), 2);
    assert_eq!(args[1], "--mcp-config=/more.json");
    let config: Value = serde_json::from_str(args[0].strip_prefix("--mcp-config=").unwrap()).unwrap();
    assert_eq!(
        config,
        json!({ "mcpServers": {
            "files": { "type": "stdio", "command": "npx", "args": ["-y", "server"] },
            "web": {
                "type": "http",
                "url": "https://example.com/mcp",
                "headers": { "Authorization": "Bearer x" },
                "alwaysLoad": true,
            },
        }})
    );
}

#[test]
fn a_zero_byte_is_refused_without_repeating_the_value() {
    let options = options(|o| o.model = Some("se\0cret".into()));
    let error = launch_for(&options, &spec()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert_eq!(
        error.to_string(),
        "the value of --model has a zero byte in it; remove the zero byte: no argument of a process can hold one"
    );
}

#[test]
fn the_environment_names_the_host() {
    let env = env(&Options::default(), &[]);
    let expected = [
        ("CLAUDE_AGENT_SDK_VERSION", env!("CARGO_PKG_VERSION")),
        ("CLAUDE_CODE_ENTRYPOINT", "sdk-cli"),
        (READS_SESSION_STATE, "1"),
    ];
    assert_eq!(env, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
}

#[test]
fn the_environment_of_the_options_wins() {
    let given = [("CLAUDE_CODE_ENTRYPOINT", "mine"), ("CLAUDE_AGENT_SDK_VERSION", "9"), ("A", "b")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = options(|o| o.env = given.clone().into());
    let mut expected: BTreeMap<_, _> = given.into();
    expected.insert(READS_SESSION_STATE.into(), "1".into());
    assert_eq!(env(&options, &[]), expected);
}

#[test]
fn a_given_session_state_variable_is_kept_in_any_letter_case() {
    let lower = READS_SESSION_STATE.to_lowercase();
    let by_options = options(|o| o.env = [(lower.clone(), "0".to_owned())].into());
    assert!(!env(&by_options, &[]).contains_key(READS_SESSION_STATE));
    assert!(!env(&Options::default(), &[lower.into()]).contains_key(READS_SESSION_STATE));
}

#[test]
fn the_epoch_and_the_bound_of_stderr_are_passed_through() {
    let options = options(|o| o.limits.stderr_line_bytes = 7);
    let launch = launch_for(&options, &LaunchSpec { epoch: 4, ..spec() }).unwrap();
    assert_eq!((launch.epoch, launch.command.stderr_line_bytes), (4, 7));
}

#[test]
fn debug_shows_no_secrets_of_a_launch() {
    let options = options(|o| {
        o.model = Some("opus".into());
        o.env = [("TOKEN".to_owned(), "hunter2".to_owned())].into();
        o.settings = Some(json!({ "env": { "A": "hunter2" } }));
        o.managed_settings = Some(Map::from_iter([("a".to_owned(), json!("hunter2"))]));
        let web = ExternalServer::http("https://x").with_header("Authorization", "hunter2");
        o.mcp_servers = [("web".to_owned(), web)].into();
        o.mcp_config_files = vec!["/more.json".into()];
    });
    let launch = launch_for(&options, &spec()).unwrap();
    assert_eq!(launch.args.iter().filter(|arg| arg.contains("hunter2")).count(), 3, "{:?}", launch.args);
    let shown = format!("{launch:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    for name in ["opus", "TOKEN", "--settings=", "--managed-settings=", "--mcp-config=/more.json"] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
}

#[test]
fn only_flags_that_name_an_existing_conversation_continue_it() {
    let extra = |name: &str| options(|o| o.extra_args = [(name.to_owned(), Some("x".to_owned()))].into());
    for flag in ["resume", "continue", "from-pr"] {
        assert!(continues(&extra(flag)), "{flag}");
    }
    for flag in ["session-id", "fork-session", "resume-session-at", "resume-drops-turn", "bare"] {
        assert!(!continues(&extra(flag)), "{flag}");
    }
    assert!(continues(&options(|o| o.resume = Some("id".into()))));
    assert!(continues(&options(|o| o.continue_conversation = true)));
    assert!(!continues(&options(|o| o.session_id = Some("new".into()))));
}
