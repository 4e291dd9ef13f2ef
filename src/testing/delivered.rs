//! Arguments, environment and `initialize` of a CLI.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::actor::incarnation::initialize;
use crate::actor::servers::roster::Roster;
use crate::error::Result;
use crate::options::OsUser;
use crate::session::SessionBuilder;
use crate::transport::{Command, Launch, Resume, launch_for};

/// Everything that a session sends to a CLI at its start: the effect of its [`Options`](crate::Options), handlers and
/// tool servers. [`Delivered::of`] tells it of the first CLI without a process; `ScriptedCli::launches` of `greenroom-testkit`
/// has it of each CLI that was started. Secrets are as they are.
///
/// ```
/// use greenroom::Options;
/// use greenroom::testing::Delivered;
///
/// let mut options = Options::new();
/// options.model = Some("haiku".into());
/// options.title = Some("Sums".into());
///
/// let delivered = Delivered::of(options)?;
/// assert_eq!(delivered.flag("model"), Some("haiku"));
/// assert_eq!(delivered.initialize["title"], "Sums");
/// assert!(delivered.env.contains_key("CLAUDE_CODE_ENTRYPOINT"));
/// # Ok::<(), greenroom::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Delivered {
    /// The arguments after the program's name. Values are in the `--flag=value` form.
    pub args: Vec<String>,
    /// The variables that are set, without those that are inherited.
    pub env: BTreeMap<String, String>,
    /// Whether the host's own variables are inherited besides.
    pub inherit_env: bool,
    /// Variables that are taken away from what is inherited.
    pub unset_env: Vec<String>,
    /// The working directory.
    pub cwd: Option<PathBuf>,
    /// The executable, if it is named.
    pub program: Option<PathBuf>,
    /// The runtime for an executable that is a script, if it is named.
    pub runtime: Option<PathBuf>,
    /// The runtime's own arguments.
    pub runtime_args: Vec<String>,
    /// The user of the operating system.
    pub user: Option<OsUser>,
    /// The body of `initialize`, its `subtype` among it. Null for a scripted CLI that was not sent it yet.
    pub initialize: Value,
}

impl Delivered {
    /// The start of a session with these [`Options`](crate::Options), or of a whole
    /// [`SessionBuilder`](crate::SessionBuilder).
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption), as [`start`](crate::SessionBuilder::start) would give it.
    pub fn of(session: impl Into<SessionBuilder>) -> Result<Self> {
        let (spec, servers) = session.into().into_spec()?;
        let roster = Roster::new(servers, &spec.options);
        let private = initialize::first_channel(&spec.options);
        let launch_spec = initialize::launch_spec(&spec, private, 1, Resume::AsOptions, Arc::new(|_| {}));
        let launch = launch_for(&spec.options, &launch_spec)?;
        let initialize = initialize::body(&spec, &roster, private, &Resume::AsOptions)?;
        Ok(Self::launched(&launch, initialize))
    }

    /// What a CLI was started with: its launch, and the body of the `initialize` that it was sent.
    pub fn launched(launch: &Launch, initialize: Value) -> Self {
        let Launch { program, runtime, runtime_args, args, command, .. } = launch.clone();
        let Command { env, inherit_env, unset_env, user, cwd, .. } = command;
        Self { args, env, inherit_env, unset_env, cwd, program, runtime, runtime_args, user, initialize }
    }

    /// The value of a flag, given without its dashes; the first, if it is there more than once.
    pub fn flag(&self, name: &str) -> Option<&str> {
        self.flags(name).into_iter().next().flatten()
    }

    /// Whether a flag is there, with or without a value.
    pub fn has_flag(&self, name: &str) -> bool {
        !self.flags(name).is_empty()
    }

    /// Every appearance of a flag, with its value if it has one.
    pub fn flags(&self, name: &str) -> Vec<Option<&str>> {
        let args = self.args.iter().filter_map(|arg| arg.strip_prefix("--")?.strip_prefix(name));
        args.filter_map(|rest| match rest.strip_prefix('=') {
            None if rest.is_empty() => Some(None),
            // Another flag, which begins alike.
            None => None,
            value => Some(value),
        })
        .collect()
    }
}
