//! Whether sessions of a profile keep the prompt cache when they wake.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use greenroom::options::EnvPolicy;
use greenroom::store::{MemoryStore, SessionStore};
use greenroom::{Error, ErrorKind, Result, Session, SessionBuilder};

use crate::{ModelRequest, ModelTurn, PrefixChange, Script, ScriptedModel};

/// Checks whether a session of your profile reads the prompt cache of the API when it is woken: whether its first request begins with
/// the last request before, for tools, system prompt and messages.
///
/// Each case starts a session on the real CLI and a [`ScriptedModel`], sends two prompts, ends the session, starts another one with the
/// same conversation, and compares. It needs no network and no account, and takes some seconds.
///
/// ```no_run
/// use greenroom::Session;
/// use greenroom_testkit::WakeCheck;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let scratch = std::env::temp_dir().join("wake-check");
/// let report = WakeCheck::new("/usr/local/bin/claude", scratch)
///     .upgrade("/opt/next/claude")
///     // Your profile, which is called for each start.
///     .run(|place| Session::builder().cwd(&place.work).model("opus"))
///     .await?;
/// assert!(report.is_kept(), "{report}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WakeCheck {
    cli: PathBuf,
    upgrade: Option<PathBuf>,
    folder: PathBuf,
    env: BTreeMap<String, String>,
    allow_old_cli: bool,
}

/// How a session ends and starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// It sleeps and wakes where it was.
    Sleep,
    /// Its CLI is killed between two turns, and starts again where it was.
    Crash,
    /// It starts again with a home folder of its own, as in a new container.
    Deploy,
    /// It starts again in other folders, as on another machine.
    Move,
    /// It starts again with another CLI.
    Upgrade,
}

/// The place of a session that the check starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WakePlace {
    /// The working directory, which exists.
    pub work: PathBuf,
    /// The number of the start in its case: 1, and 2 after the wake.
    pub start: u32,
}

/// The findings of a [`WakeCheck`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WakeReport {
    /// The first difference of each case; `None`: the prefix is kept.
    pub cases: Vec<(Wake, Option<PrefixChange>)>,
}

impl WakeReport {
    /// Whether the prefix is kept in all cases.
    pub fn is_kept(&self) -> bool {
        self.cases.iter().all(|(_, change)| change.is_none())
    }

    /// The first difference of a case.
    pub fn change(&self, of: Wake) -> Option<&PrefixChange> {
        self.cases.iter().find(|(wake, _)| *wake == of)?.1.as_ref()
    }
}

impl fmt::Display for WakeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (wake, change) in &self.cases {
            match change {
                Some(change) => writeln!(f, "{wake:?}: the prompt cache is lost: {change}")?,
                None => writeln!(f, "{wake:?}: kept")?,
            }
        }
        Ok(())
    }
}

impl WakeCheck {
    /// A check with this CLI, in a scratch folder that is created if it is missing.
    pub fn new(cli: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Self {
        let env = std::env::var("PATH").map(|path| ("PATH".to_owned(), path)).into_iter().collect();
        Self { cli: cli.into(), upgrade: None, folder: folder.into(), env, allow_old_cli: false }
    }

    /// Adds the case of a session that is started again with another CLI.
    pub fn upgrade(mut self, cli: impl Into<PathBuf>) -> Self {
        self.upgrade = Some(cli.into());
        self
    }

    /// Sets [`Options::allow_old_cli`](greenroom::Options::allow_old_cli) in all sessions.
    pub fn allow_old_cli(mut self, allow: bool) -> Self {
        self.allow_old_cli = allow;
        self
    }

    /// Runs all cases. The check sets the executable, the store and the conversation, and replaces the environment of the CLI by a scratch
    /// `HOME`, your `PATH` and the scripted model; variables that the profile sets stay.
    ///
    /// # Errors
    /// The errors of a session that does not start or answer; [`ErrorKind::Io`] if the folders cannot be created.
    pub async fn run(&self, profile: impl Fn(&WakePlace) -> SessionBuilder) -> Result<WakeReport> {
        let mut cases = Vec::new();
        for wake in [Wake::Sleep, Wake::Crash, Wake::Deploy, Wake::Move, Wake::Upgrade] {
            let next = match (wake, &self.upgrade) {
                (Wake::Upgrade, None) => continue,
                (Wake::Upgrade, Some(upgrade)) => upgrade,
                _ => &self.cli,
            };
            cases.push((wake, self.case(wake, next, &profile).await?));
        }
        Ok(WakeReport { cases })
    }

    async fn case(
        &self,
        wake: Wake,
        next: &PathBuf,
        profile: &impl Fn(&WakePlace) -> SessionBuilder,
    ) -> Result<Option<PrefixChange>> {
        let model = ScriptedModel::start(Script::new().otherwise(ModelTurn::new().text("Noted."))).await?;
        let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
        let conversation = uuid::Uuid::new_v4().to_string();
        let case = self.folder.join(&conversation);
        let start = async |start: u32, cli: &PathBuf, home: &str, work: &str| {
            let (home, work) = (case.join(home), case.join(work));
            for folder in [&home, &work] {
                std::fs::create_dir_all(folder).map_err(|error| {
                    let text = format!("the folder {} cannot be created", folder.display());
                    Error::new(ErrorKind::Io, text).with_source(error)
                })?;
            }
            let mut env = model.env();
            env.extend(self.env.clone());
            for name in ["HOME", "TMPDIR"] {
                env.insert(name.to_owned(), home.display().to_string());
            }
            let builder = profile(&WakePlace { work, start }).configure(|options| {
                options.env_policy = EnvPolicy::Clean;
                options.cli_path = Some(cli.clone());
                options.conversation = Some(conversation.clone());
                options.store.project_key = Some(conversation.clone());
                options.allow_old_cli |= self.allow_old_cli;
                options.env.extend(env);
            });
            builder.session_store(store.clone()).start().await
        };
        let session = start(1, &self.cli, "home-1", "work-1").await?;
        for text in ["My lamp is green.", "My cat is grey."] {
            asks(&session, text).await?;
        }
        let before = last_of(&model)?;
        if wake == Wake::Crash {
            session.kill().await
        } else {
            session.stop().await?
        }
        let (home, work) = match wake {
            Wake::Sleep | Wake::Crash | Wake::Upgrade => ("home-1", "work-1"),
            Wake::Deploy => ("home-2", "work-1"),
            Wake::Move => ("home-2", "work-2"),
        };
        let known = of_conversation(&model).len();
        let session = start(2, next, home, work).await?;
        asks(&session, "Which colour has my lamp?").await?;
        let after = of_conversation(&model).into_iter().nth(known).ok_or_else(no_request)?;
        session.stop().await?;
        model.stop().await;
        Ok(after.prefix_change(&before))
    }
}

async fn asks(session: &Session, text: &str) -> Result<()> {
    session.prompt(text).await?.outcome().await?.into_result().map(drop)
}

/// The requests of the main conversation.
fn of_conversation(model: &ScriptedModel) -> Vec<ModelRequest> {
    let requests = model.requests().into_iter();
    requests.filter(|request| request.agent_id().is_none()).collect()
}

fn last_of(model: &ScriptedModel) -> Result<ModelRequest> {
    of_conversation(model).pop().ok_or_else(no_request)
}

fn no_request() -> Error {
    Error::new(
        ErrorKind::TurnFailed,
        "the CLI has asked the scripted model nothing: check that the profile leaves `ANTHROPIC_BASE_URL` alone",
    )
}
