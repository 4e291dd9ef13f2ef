//! The process of the CLI: its environment, its user, and how it is told what is private.

use serde::{Deserialize, Serialize};

/// Where the CLI's environment comes from.
///
/// | | host's environment | [`Options::env`](super::Options::env) |
/// |---|---|---|
/// | `Inherit` | inherited, without `CLAUDECODE` and `NODE_OPTIONS` | over it |
/// | `Clean` | – | alone |
///
/// The official TypeScript SDK inherits when no `env` is given and *replaces* the environment when one is: `Inherit` with
/// an empty `env`, or `Clean`. The Python SDK always merges: `Inherit`. In both policies the variables that name the host
/// (`CLAUDE_CODE_ENTRYPOINT`, `CLAUDE_AGENT_SDK_VERSION`) and those that options stand for are added, unless `env` has them.
///
/// ```
/// assert_eq!(greenroom::EnvPolicy::default(), greenroom::EnvPolicy::Inherit);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EnvPolicy {
    /// The host's environment, with [`Options::env`](super::Options::env) over it, and without the variables that would
    /// make the CLI think it runs inside another one (`CLAUDECODE`) or change its runtime (`NODE_OPTIONS`).
    #[default]
    Inherit,
    /// [`Options::env`](super::Options::env) and nothing else. Without a `PATH` in it, the CLI has none.
    Clean,
}

/// The user of the operating system that the CLI runs as, by numbers. The host must be allowed to become that user (it
/// is root, or has the capability), or the CLI does not start. Supplementary groups are dropped.
///
/// The environment is not changed: name another `HOME` in [`Options::env`](super::Options::env), or the CLI looks into the
/// host's.
///
/// ```
/// let nobody = greenroom::options::OsUser::new(65534, 65534);
/// assert_eq!(nobody.uid, 65534);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OsUser {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

impl OsUser {
    /// The user and the group of these ids.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid }
    }
}

/// How the CLI is told what may be secret: MCP servers with their headers and variables, plugins, and inline settings.
///
/// Arguments can be read by every user of the machine; what `initialize` says goes through a pipe. A CLI that is to take
/// these from `initialize` is started with `--await-initialize`, known since CLI 2.1.261.
///
/// ```
/// assert_eq!(greenroom::options::Delivery::default(), greenroom::options::Delivery::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Delivery {
    /// By `initialize`. A CLI that does not know how is started once more with arguments, and that stays so for the
    /// session; [`Event::CliReregistered`](crate::Event::CliReregistered) tells of it.
    #[default]
    Auto,
    /// By `initialize` or not at all: the session does not start with a CLI that does not know how. Choose it where the
    /// arguments must never be seen.
    Initialize,
    /// By arguments, which every CLI understands.
    Arguments,
}
