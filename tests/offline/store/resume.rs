//! Sessions that are resumed from a store: what the CLI finds in its configuration folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use greenroom::options::EnvPolicy;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{MemoryStore, SessionKey, SessionStore, StoreResult};
use greenroom::{Error, ErrorKind, Options, Session, SessionBuilder};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::*;

const ID: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const OTHER: &str = "bbbbbbbb-0000-4000-8000-000000000002";

fn entries(values: &[Value]) -> Vec<TranscriptEntry> {
    values.iter().map(|value| value.clone().try_into().unwrap()).collect()
}

struct Setup {
    home: TempDir,
    store: Arc<MemoryStore>,
    options: Options,
}

impl Setup {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut options = Options::new();
        options.env_policy = EnvPolicy::Clean;
        options.env.insert("HOME".into(), home.path().to_str().unwrap().into());
        options.cwd = Some("/no/such/work".into());
        Self { home, store: Arc::new(MemoryStore::new()), options }
    }

    async fn put(&self, key: &SessionKey, values: &[Value]) {
        self.store.append(key, &entries(values)).await.unwrap();
    }

    fn builder(&self) -> SessionBuilder {
        SessionBuilder::from(self.options.clone()).session_store(self.store.clone())
    }

    async fn start(&self) -> (Session, CliEnd) {
        let (session, end, _) = start_by_hand(self.builder()).await;
        (session, end)
    }

    async fn refused(&self) -> Error {
        refused(self.builder()).await
    }
}

/// The error of a session that does not start.
async fn refused(builder: SessionBuilder) -> Error {
    let (transport, _listener) = ScriptedCli::by_hand();
    within(SOON, builder.transport(transport).start()).await.unwrap_err()
}

/// The CLI's configuration folder, if it has one of its own.
fn config_dir(end: &CliEnd) -> Option<PathBuf> {
    end.launch().command.env.get("CLAUDE_CONFIG_DIR").map(PathBuf::from)
}

fn has_argument(end: &CliEnd, start: &str) -> bool {
    end.launch().args.iter().any(|argument| argument.starts_with(start))
}

fn read(path: &Path) -> Value {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[tokio::test]
async fn a_stored_session_is_laid_out_for_the_cli_and_removed_afterwards() {
    let mut setup = Setup::new();
    let key = SessionKey::new("-no-such-work", ID);
    setup.put(&key, &[json!({"type": "user", "uuid": "u"})]).await;
    let agent = key.clone().with_subpath("subagents/agent-1");
    let note = |finished: bool| json!({"type": "agent_metadata", "agentType": "Plan", "finished": finished});
    setup.put(&agent, &[note(false), json!({"type": "user", "uuid": "s"}), note(true)]).await;
    setup.put(&key.clone().with_subpath("../../../evil"), &[json!({"uuid": "x"})]).await;
    let config = setup.home.path().join(".claude");
    fs::create_dir(&config).unwrap();
    let login = json!({"claudeAiOauth": {"accessToken": "a", "refreshToken": "r"}, "other": 1});
    fs::write(config.join(".credentials.json"), login.to_string()).unwrap();
    fs::write(setup.home.path().join(".claude.json"), "{\"theme\":\"dark\"}").unwrap();
    let settings = json!({"enabledPlugins": {"x": true}, "extraKnownMarketplaces": {}, "model": "m",
        "env": {"CLAUDE_CONFIG_DIR": "/elsewhere", "A": "b"}});
    fs::write(config.join("settings.json"), format!("\u{feff}{settings}")).unwrap();
    fs::write(config.join("cowork_settings.json"), "no json").unwrap();
    setup.options.resume = Some(ID.into());
    let copies = setup.home.path().join("copies");
    fs::create_dir(&copies).unwrap();
    setup.options.store.folder = Some(copies.clone());

    let (session, end) = setup.start().await;
    let dir = config_dir(&end).unwrap();
    assert_eq!(dir.parent(), Some(&*copies));
    let project = dir.join("projects/-no-such-work");
    assert_eq!(read(&project.join(format!("{ID}.jsonl")))["uuid"], "u");
    let agents = project.join(ID).join("subagents");
    assert_eq!(read(&agents.join("agent-1.jsonl"))["uuid"], "s");
    assert_eq!(read(&agents.join("agent-1.meta.json")), json!({"agentType": "Plan", "finished": true}));
    let login = json!({"claudeAiOauth": {"accessToken": "a"}, "other": 1});
    assert_eq!(read(&dir.join(".credentials.json")), login);
    assert_eq!(read(&dir.join(".claude.json"))["theme"], "dark");
    assert_eq!(read(&dir.join("settings.json")), json!({"model": "m", "env": {"A": "b"}}));
    assert!(!dir.join("cowork_settings.json").exists());
    assert!(!dir.parent().unwrap().join("evil.jsonl").exists());
    assert!(has_argument(&end, &format!("--resume={ID}")));
    stop(session, end).await;
    assert!(!dir.exists());
}

#[tokio::test]
async fn the_newest_session_that_is_not_a_subagent_is_continued() {
    let mut setup = Setup::new();
    setup.options.continue_conversation = true;
    setup.options.store.project_key = Some("tenant".into());
    setup.put(&SessionKey::new("tenant", OTHER), &[json!({"uuid": "o"})]).await;
    setup.put(&SessionKey::new("tenant", ID), &[json!({"uuid": "u"})]).await;
    let side = "cccccccc-0000-4000-8000-000000000003";
    setup.put(&SessionKey::new("tenant", side), &[json!({"isSidechain": true})]).await;
    setup.put(&SessionKey::new("tenant", "not-an-id"), &[json!({})]).await;
    let (session, end) = setup.start().await;
    assert!(has_argument(&end, &format!("--resume={ID}")) && !has_argument(&end, "--continue"));
    let dir = config_dir(&end).unwrap();
    // The CLI looks under the name of its working directory, whatever the project key is.
    assert!(dir.join("projects/-no-such-work").join(format!("{ID}.jsonl")).exists());
    session.actor().kill();
    // Removed on the blocking pool, after a while.
    while dir.exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn continuing_with_an_empty_store_starts_a_new_conversation() {
    let mut setup = Setup::new();
    (setup.options.continue_conversation, setup.options.fork_session) = (true, true);
    let (session, end) = setup.start().await;
    assert_eq!(config_dir(&end), None);
    let looks = has_argument(&end, "--continue") || has_argument(&end, "--fork-session");
    assert!(!looks, "the CLI looks for none on its disk");
    stop(session, end).await;
    // `resume_session_at` names a message, so a conversation has to be there.
    setup.options.fork_session = false;
    setup.options.resume_session_at = Some("m1".into());
    assert_eq!(setup.refused().await.kind(), ErrorKind::SessionNotFound);
}

#[tokio::test]
async fn a_missing_session_and_an_id_that_is_none_are_errors() {
    let mut setup = Setup::new();
    let (session, end) = setup.start().await;
    assert_eq!(config_dir(&end), None, "nothing is resumed or continued");
    stop(session, end).await;
    setup.options.resume = Some(ID.into());
    let error = setup.refused().await;
    assert_eq!(error.kind(), ErrorKind::SessionNotFound);
    assert!(error.to_string().contains(ID), "{error}");
    setup.options.resume = Some("My title".into());
    assert_eq!(setup.refused().await.kind(), ErrorKind::InvalidOption);
}

/// A store that fails in this way.
struct Bad(&'static str);

impl SessionStore for Bad {
    fn append<'a>(&'a self, _: &'a SessionKey, _: &'a [TranscriptEntry]) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn load<'a>(&'a self, _: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        match self.0 {
            "hangs" => Box::pin(std::future::pending()),
            "fails" => Box::pin(async { Err("on fire".into()) }),
            _ => panic!("oh no"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_fails_or_panics_is_named() {
    for (how, says) in [("hangs", "it took more than 60s"), ("fails", "on fire"), ("panics", "oh no")] {
        let mut setup = Setup::new();
        setup.options.resume = Some(ID.into());
        let error = refused(setup.builder().session_store(Arc::new(Bad(how)))).await;
        assert_eq!(error.kind(), ErrorKind::Store);
        assert!(error.to_string().contains(says), "{error}");
    }
    let mut setup = Setup::new();
    setup.options.continue_conversation = true;
    let error = refused(setup.builder().session_store(Arc::new(Bad("fails")))).await;
    assert!(error.to_string().contains("does not support `list_sessions`"), "{error}");
}
