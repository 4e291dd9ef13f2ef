//! A session that is in a store and not on this machine: its transcripts are loaded into a configuration folder of their
//! own before the CLI starts, which is gone when the session is.
//!
//! ```text
//!   <temporary>/projects/<project>/<session>.jsonl                        from the store
//!                                 /<session>/subagents/agent-1.jsonl      from the store
//!                                                     /agent-1.meta.json  from the store's `agent_metadata` entry
//!   <temporary>/.credentials.json      from the user's configuration, without what would renew the login
//!              /.claude.json           from the user's configuration
//!              /settings.json          from the user's configuration, without plugins
//! ```
//!
//! The copy of the login has no refresh token: that can be used once, and a CLI that used it here would log the user out
//! everywhere else. Plugins would be installed anew into the empty folder.
//!
//! A host that is killed leaves the folder behind, in the system's folder for temporary files; no other user can read it.

use std::fs;
use std::io::{self, Write};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;
use tempfile::TempDir;

use super::work::Task;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::sessions::{
    Link, blocking, canonical, check_session_id, config_dir, is_absent, is_safe_subpath, is_session_id,
    key_of_path, sidecar_path, variable,
};
use crate::store::{
    AGENT_METADATA, SessionKey, SessionStore, StoreResult, StoredSession, TranscriptEntry, Unsupported,
    dedup, failed, metadata, not_stored, sort_newest_first,
};
use crate::tool::instance::panic_text;

/// Settings that only do harm in the folder.
const NOT_COPIED: [&str; 2] = ["enabledPlugins", "extraKnownMarketplaces"];

/// The configuration folder of a session that came from a store. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ResumeHome(Option<TempDir>);

impl ResumeHome {
    /// Removes the folder, and waits for it. The CLI has to be gone.
    pub(crate) async fn remove(mut self) {
        if let Some(dir) = self.0.take() {
            // What keeps it from being removed is told there.
            tokio::task::spawn_blocking(move || remove(dir)).await.ok();
        }
    }
}

impl Drop for ResumeHome {
    fn drop(&mut self) {
        let Some(dir) = self.0.take() else { return };
        match tokio::runtime::Handle::try_current() {
            // Nobody waits for it: the pool does it, or the runtime when it ends.
            Ok(runtime) => drop(runtime.spawn_blocking(move || remove(dir))),
            Err(_) => remove(dir),
        }
    }
}

fn remove(dir: TempDir) {
    let path = dir.path().to_owned();
    // A CLI that was killed a moment ago may have left a file while the others were being removed.
    if dir.close().is_err()
        && let Err(error) = fs::remove_dir_all(&path)
        && !is_absent(&error)
    {
        tracing::warn!(path = %path.display(), %error, "a copy of a session could not be removed");
    }
}

/// What the store has of a session.
struct Loaded {
    session_id: String,
    main: Vec<TranscriptEntry>,
    parts: Vec<(String, Vec<TranscriptEntry>)>,
}

/// Loads the conversation that the options want to go on with, and points them at it. `None` if they want none.
pub(crate) async fn from_store(
    store: &Arc<dyn SessionStore>,
    options: &mut Options,
) -> Result<Option<ResumeHome>> {
    if options.resume.is_none() && !options.continue_conversation {
        return Ok(None);
    }
    let cwd = options.cwd.clone().unwrap_or_else(|| PathBuf::from("."));
    let folder = blocking(move || Ok(key_of_path(&canonical(&cwd)))).await?;
    let project_key = options.store.project_key.clone().unwrap_or_else(|| folder.clone());
    let loading = Loading { store, options, project_key };
    let loaded = loading.session().await?;
    let source = Source::of(options)?;
    let session_id = loaded.session_id.clone();
    let home = blocking(move || write(&folder, loaded, &source)).await?;
    let path = home.path().to_str().ok_or_else(|| {
        let text = format!("the folder for temporary files is not UTF-8: {}", home.path().display());
        Error::invalid_option(text)
    })?;
    options.env.insert("CLAUDE_CONFIG_DIR".into(), path.to_owned());
    options.resume = Some(session_id);
    options.continue_conversation = false;
    Ok(Some(ResumeHome(Some(home))))
}

struct Loading<'a> {
    store: &'a Arc<dyn SessionStore>,
    options: &'a Options,
    project_key: String,
}

impl Loading<'_> {
    async fn session(&self) -> Result<Loaded> {
        let (session_id, main) = match &self.options.resume {
            Some(id) => {
                check_session_id(id)?;
                let key = SessionKey::new(&self.project_key, id);
                (id.clone(), self.load(&key).await?.ok_or_else(|| not_stored(&key))?)
            }
            None => self.newest().await?,
        };
        let key = SessionKey::new(&self.project_key, &session_id);
        let mut parts = Vec::new();
        for subpath in self.subkeys(&key).await? {
            // It becomes a path, and comes from outside.
            if !is_safe_subpath(&subpath) {
                tracing::warn!(%key, subpath, "a part of a session whose name leads elsewhere was passed over");
                continue;
            }
            let entries = self.load(&key.clone().with_subpath(&subpath)).await?;
            parts.extend(entries.map(|entries| (subpath, entries)));
        }
        Ok(Loaded { session_id, main, parts })
    }

    /// The newest session of the project that is no subagent's.
    async fn newest(&self) -> Result<(String, Vec<TranscriptEntry>)> {
        let (store, project_key) = (self.store.clone(), self.project_key.clone());
        let listing = async move { store.list_sessions(&project_key).await };
        let mut sessions: Vec<StoredSession> =
            self.limited("list_sessions", &self.project_key, listing).await??;
        sort_newest_first(&mut sessions);
        for session in sessions.into_iter().filter(|session| is_session_id(&session.session_id)) {
            let key = SessionKey::new(&self.project_key, &session.session_id);
            let Some(entries) = self.load(&key).await? else { continue };
            let first = entries.first().and_then(|entry| Link::read(entry.raw().get()));
            if !first.is_some_and(|first| first.is_sidechain) {
                return Ok((session.session_id, entries));
            }
        }
        let text = format!("the store has no session of the project '{}' to continue", self.project_key);
        Err(Error::new(ErrorKind::SessionNotFound, text)
            .with_help("start without `continue_conversation`, or see whether `project_key` is right"))
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<Vec<TranscriptEntry>>> {
        let (store, of) = (self.store.clone(), key.clone());
        let loaded = self.limited("load", key, async move { store.load(&of).await }).await??;
        Ok(loaded.filter(|entries| !entries.is_empty()).map(|mut entries| {
            dedup(&mut entries);
            entries
        }))
    }

    async fn subkeys(&self, key: &SessionKey) -> Result<Vec<String>> {
        let (store, of) = (self.store.clone(), key.clone());
        let listing = async move {
            match store.list_subkeys(&of).await {
                // Without them the session goes on, but its subagents cannot.
                Err(error) if error.is::<Unsupported>() => Ok(Vec::new()),
                listed => listed,
            }
        };
        self.limited("list_subkeys", key, listing).await?
    }

    /// Calls the store on a task of its own, for as long as it may take.
    async fn limited<T: Send + 'static>(
        &self,
        method: &'static str,
        about: &(impl std::fmt::Display + Sync),
        call: impl Future<Output = StoreResult<T>> + Send + 'static,
    ) -> Result<Result<T>> {
        let limit = self.options.store.load;
        let mut task = Task::spawn(AssertUnwindSafe(call).catch_unwind());
        match tokio::time::timeout(limit, task.join()).await {
            Ok(Some(Ok(answer))) => Ok(answer.map_err(|error| failed(method, about, error))),
            Ok(Some(Err(panic))) => {
                Err(failed(method, about, format!("it panicked: {}", panic_text(&*panic)).into()))
            }
            Ok(None) => Err(failed(method, about, "its task was taken away".into())),
            Err(_) => {
                let error = failed(method, about, format!("it took more than {limit:?}").into());
                Err(error.with_help("see to the store, or raise `store.load`"))
            }
        }
    }
}

/// Where the user's own configuration is.
struct Source {
    config_dir: PathBuf,
    claude_json: PathBuf,
}

impl Source {
    fn of(options: &Options) -> Result<Self> {
        let look_up = |name: &str| variable(options, name);
        let config_dir = config_dir(look_up)?;
        let is_set = look_up("CLAUDE_CONFIG_DIR").is_some_and(|dir| !dir.is_empty());
        // Without the variable this one file is beside the folder and not in it.
        let beside = config_dir.parent().filter(|_| !is_set).unwrap_or(&config_dir);
        Ok(Self { claude_json: beside.join(".claude.json"), config_dir })
    }
}

fn write(folder: &str, loaded: Loaded, source: &Source) -> Result<TempDir> {
    let refused = |error: io::Error| {
        let text = format!("the session could not be written for the CLI: {error}");
        Error::new(ErrorKind::Io, text).with_source(error)
    };
    // Only its owner may look into it.
    let home = tempfile::Builder::new().prefix("greenroom-").tempdir().map_err(refused)?;
    let project = home.path().join("projects").join(folder);
    let Loaded { session_id, main, parts } = loaded;
    write_entries(&project.join(format!("{session_id}.jsonl")), &main).map_err(refused)?;
    for (subpath, mut entries) in parts {
        let path = project.join(&session_id).join(format!("{subpath}.jsonl"));
        let note = metadata(&entries);
        entries.retain(|entry| entry.kind() != Some(AGENT_METADATA));
        write_entries(&path, &entries).map_err(refused)?;
        if let Some(note) = note {
            write_private(&sidecar_path(&path), note.to_string().as_bytes()).map_err(refused)?;
        }
    }
    copy(
        &source.config_dir.join(".credentials.json"),
        &home.path().join(".credentials.json"),
        without_refresh,
    );
    copy(&source.claude_json, &home.path().join(".claude.json"), |_| {});
    for name in ["settings.json", "cowork_settings.json"] {
        copy(&source.config_dir.join(name), &home.path().join(name), without_plugins);
    }
    Ok(home)
}

fn write_entries(path: &Path, entries: &[TranscriptEntry]) -> io::Result<()> {
    let mut text = Vec::new();
    for entry in entries {
        // A line break inside an entry can only be white space between its parts.
        text.extend(
            entry.raw().get().bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }),
        );
        text.push(b'\n');
    }
    write_private(path, &text)
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)?.write_all(bytes)
}

/// Copies a file of the user's, changed. One that is not there is not needed; one that cannot be read is told.
fn copy(from: &Path, to: &Path, change: impl FnOnce(&mut Value)) {
    let copied = || -> io::Result<()> {
        if !fs::metadata(from)?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let text = fs::read(from)?;
        let json = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        let Ok(mut value) = serde_json::from_slice::<Value>(json) else {
            // The CLI will say the same of it; what may be a login is left where it is.
            return Err(io::Error::other("it is no JSON"));
        };
        change(&mut value);
        write_private(to, value.to_string().as_bytes())
    };
    match copied() {
        Err(error) if !is_absent(&error) => {
            tracing::warn!(path = %from.display(), %error, "a resumed session goes without this file");
        }
        _ => {}
    }
}

fn without_refresh(credentials: &mut Value) {
    if let Some(login) = credentials.get_mut("claudeAiOauth").and_then(Value::as_object_mut) {
        login.remove("refreshToken");
    }
}

fn without_plugins(settings: &mut Value) {
    let Some(settings) = settings.as_object_mut() else { return };
    for name in NOT_COPIED {
        settings.remove(name);
    }
    // It would lead the CLI away from here again.
    if let Some(env) = settings.get_mut("env").and_then(Value::as_object_mut) {
        env.remove("CLAUDE_CONFIG_DIR");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::options::EnvPolicy;
    use crate::store::MemoryStore;

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

        async fn run(&mut self) -> Result<Option<ResumeHome>> {
            let store: Arc<dyn SessionStore> = self.store.clone();
            from_store(&store, &mut self.options).await
        }
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
    async fn a_session_is_laid_out_for_the_cli_with_what_it_needs_and_gone_afterwards() {
        let mut setup = Setup::new();
        let key = SessionKey::new("-no-such-work", ID);
        setup.put(&key, &[json!({"type": "user", "uuid": "u"})]).await;
        let agent = key.clone().with_subpath("subagents/agent-1");
        let note =
            |finished: bool| json!({"type": "agent_metadata", "agentType": "Plan", "finished": finished});
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

        let home = setup.run().await.unwrap().unwrap();
        let dir = PathBuf::from(&setup.options.env["CLAUDE_CONFIG_DIR"]);
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
        assert_eq!(setup.options.resume.as_deref(), Some(ID));
        home.remove().await;
        assert!(!dir.exists());
    }

    #[tokio::test]
    async fn the_newest_session_that_is_no_subagents_is_continued_under_the_scope() {
        let mut setup = Setup::new();
        setup.options.continue_conversation = true;
        setup.options.store.project_key = Some("tenant".into());
        let error = setup.run().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionNotFound);
        assert!(error.to_string().contains("'tenant'"), "{error}");
        setup.put(&SessionKey::new("tenant", OTHER), &[json!({"uuid": "o"})]).await;
        setup.put(&SessionKey::new("tenant", ID), &[json!({"uuid": "u"})]).await;
        let side = "cccccccc-0000-4000-8000-000000000003";
        setup.put(&SessionKey::new("tenant", side), &[json!({"isSidechain": true})]).await;
        setup.put(&SessionKey::new("tenant", "not-an-id"), &[json!({})]).await;
        let home = setup.run().await.unwrap().unwrap();
        assert_eq!(setup.options.resume.as_deref(), Some(ID));
        assert!(!setup.options.continue_conversation);
        let dir = PathBuf::from(&setup.options.env["CLAUDE_CONFIG_DIR"]);
        // The CLI looks under the name of its directory, whatever the scope is called.
        assert!(dir.join("projects/-no-such-work").join(format!("{ID}.jsonl")).exists());
        drop(home);
        // Removed on the pool: there is something to wait for, which ends.
        while dir.exists() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_is_not_in_the_store_or_no_id_is_said() {
        let mut setup = Setup::new();
        assert!(setup.run().await.unwrap().is_none(), "there is nothing to go on with");
        setup.options.resume = Some(ID.into());
        let error = setup.run().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionNotFound);
        assert!(error.to_string().contains(ID) && error.is_caller(), "{error}");
        setup.options.resume = Some("My title".into());
        assert_eq!(setup.run().await.unwrap_err().kind(), ErrorKind::InvalidOption);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_hangs_fails_or_panics_is_named() {
        struct Bad(&'static str);
        impl SessionStore for Bad {
            fn append<'a>(
                &'a self,
                _: &'a SessionKey,
                _: &'a [TranscriptEntry],
            ) -> futures_util::future::BoxFuture<'a, StoreResult<()>> {
                Box::pin(async { Ok(()) })
            }
            fn load<'a>(
                &'a self,
                _: &'a SessionKey,
            ) -> futures_util::future::BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
                match self.0 {
                    "hangs" => Box::pin(std::future::pending()),
                    "fails" => Box::pin(async { Err("on fire".into()) }),
                    _ => panic!("oh no"),
                }
            }
        }
        for (how, says) in [("hangs", "it took more than 60s"), ("fails", "on fire"), ("panics", "oh no")] {
            let mut setup = Setup::new();
            setup.options.resume = Some(ID.into());
            let store: Arc<dyn SessionStore> = Arc::new(Bad(how));
            let error = from_store(&store, &mut setup.options).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store);
            assert!(error.to_string().contains(says), "{error}");
            assert!(!setup.options.env.contains_key("CLAUDE_CONFIG_DIR"));
        }
        let mut setup = Setup::new();
        setup.options.continue_conversation = true;
        let store: Arc<dyn SessionStore> = Arc::new(Bad("fails"));
        let error = from_store(&store, &mut setup.options).await.unwrap_err();
        assert!(error.to_string().contains("has no `list_sessions`"), "{error}");
    }
}
