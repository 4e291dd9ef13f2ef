//! The CLI's process: environment, user, containment, and how settings that may be secret reach it.

/// The CLI's Bash tool starts each command in a session of its own, which the process group alone misses.
/// [`CliSnapshot::contained_by`](crate::report::CliSnapshot::contained_by) says which way is in force, and
/// [`Event::LeftoversKilled`](crate::Event::LeftoversKilled) which processes were left and killed.
pub use greenroom_process::Containment;
/// The user of the CLI, which keeps its environment: set another `HOME` in [`Options::env`](crate::Options::env).
pub use greenroom_process::OsUser;
use serde::{Deserialize, Serialize};

/// The oldest version of the CLI that a session uses, unless [`Options::allow_old_cli`](crate::Options::allow_old_cli) is set.
///
/// Up to CLI 2.1.300, calls of tools whose [`ToolPolicy`](crate::tool::ToolPolicy) forbids them are run. CLI 2.1.290 to 2.1.301
/// start in the permission mode `auto`, in which nobody is asked. CLIs up to 2.1.290 do not answer `initialize` with
/// their version.
pub const OLDEST_CLI: &str = "2.1.302";

/// Whether this is a version below [`OLDEST_CLI`], or no version.
pub(crate) fn is_too_old(version: Option<&str>) -> bool {
    let numbers = |version: &str| -> Option<Vec<u64>> {
        // A version may end in words, such as `-beta`.
        let digits = version.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
        digits.split('.').map(|number| number.parse().ok()).collect()
    };
    version.and_then(numbers) < numbers(OLDEST_CLI)
}

/// Where the CLI's environment comes from.
///
/// The CLI passes its environment on to every command that the model runs, so the model can read each variable that the
/// CLI inherits.
///
/// | | host's environment | [`Options::env`](crate::Options::env) |
/// |---|---|---|
/// | `Inherit` | inherited, without `CLAUDECODE`, `NODE_OPTIONS` and `BUN_OPTIONS` | added, and overrides |
/// | `Service` | only [`SERVICE_VARIABLES`](EnvPolicy::SERVICE_VARIABLES) | added, and overrides |
/// | `Only` | only the variables that you name | added, and overrides |
/// | `Clean` | nothing | the whole environment |
///
/// Choose `Service` in a service: its keys, tokens and database addresses stay out of the CLI. Give the CLI its login
/// in `env`, and a proxy as well, because the address of a proxy may contain a password.
///
/// Compared with the official SDKs: the TypeScript SDK inherits without `env` (`Inherit`) and *replaces* the
/// environment with one (`Clean`); the Python SDK always merges (`Inherit`). All policies add the variables that name
/// the host (`CLAUDE_CODE_ENTRYPOINT`, `CLAUDE_AGENT_SDK_VERSION`) unless `env` has them, the variables of other
/// options (`client_app`, `trace_context` and others), which override `env`, and `GREENROOM_INCARNATION` unless
/// [`Containment::Group`] is chosen.
///
/// ```
/// use greenroom::options::EnvPolicy;
///
/// assert_eq!(EnvPolicy::default(), EnvPolicy::Inherit);
/// let policy = EnvPolicy::service_and(["HTTPS_PROXY", "MY_APP_*"]);
/// assert!(policy.inherits("PATH") && policy.inherits("HTTPS_PROXY") && policy.inherits("MY_APP_MODE"));
/// assert!(!policy.inherits("DATABASE_URL") && !policy.inherits("MY_APP_TOKEN"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EnvPolicy {
    /// The host's environment, without the variables that would make the CLI think it runs inside another CLI
    /// (`CLAUDECODE`) or change its runtime (`NODE_OPTIONS`, `BUN_OPTIONS`).
    #[default]
    Inherit,
    /// Only variables that a program needs to run and that hold no secret:
    /// [`SERVICE_VARIABLES`](EnvPolicy::SERVICE_VARIABLES).
    Service,
    /// Only the variables of these names. A `*` at the end matches any ending, but never a name that looks like that of
    /// a secret or of an address with a password: a name that contains `KEY`, `TOKEN`, `SECRET`, `PASS`, `PWD`,
    /// `CREDENTIAL`, `AUTH`, `COOKIE`, `JWT`, `PRIVATE`, `CONNECTION`, `DSN`, `PROXY`, `URI`, `URL` or `WEBHOOK`. Name
    /// such a variable in full.
    Only(Vec<String>),
    /// Only [`Options::env`](crate::Options::env). Without a `PATH` in it, the CLI has none.
    Clean,
}

/// Never inherited: the first makes the CLI think that it runs inside another CLI, the others change its runtime.
pub(crate) const NOT_INHERITED: [&str; 3] = ["CLAUDECODE", "NODE_OPTIONS", "BUN_OPTIONS"];

/// Parts of names that a `*` does not match, because the variable may hold a secret.
const SECRET: &str =
    "KEY TOKEN SECRET PASS PWD CREDENTIAL AUTH COOKIE JWT PRIVATE CONNECTION DSN PROXY URI URL WEBHOOK";

impl EnvPolicy {
    /// The variables of [`Service`](EnvPolicy::Service): paths of programs, home and temporary files, language, time
    /// zone, and certificates.
    pub const SERVICE_VARIABLES: &[&str] = &[
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TMPDIR",
        "TEMP",
        "TMP",
        "LANG",
        "LANGUAGE",
        "LC_*",
        "TZ",
        "TERM",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
        "CLAUDE_CONFIG_DIR",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
    ];

    /// [`Only`](EnvPolicy::Only) with [`SERVICE_VARIABLES`](EnvPolicy::SERVICE_VARIABLES) and `names`.
    pub fn service_and(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let service = Self::SERVICE_VARIABLES.iter().map(|name| (*name).to_owned());
        Self::Only(service.chain(names.into_iter().map(Into::into)).collect())
    }

    /// Whether the CLI inherits this variable of the host. A value in [`Options::env`](crate::Options::env) overrides
    /// it.
    pub fn inherits(&self, name: &str) -> bool {
        match self {
            Self::Inherit => !NOT_INHERITED.contains(&name),
            Self::Service => listed(Self::SERVICE_VARIABLES, name),
            Self::Only(names) => listed(names, name),
            Self::Clean => false,
        }
    }
}

fn looks_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET.split(' ').any(|secret| upper.contains(secret))
}

fn listed(names: &[impl AsRef<str>], name: &str) -> bool {
    names.iter().any(|listed| match listed.as_ref().strip_suffix('*') {
        None => listed.as_ref() == name,
        Some(start) => name.starts_with(start) && !NOT_INHERITED.contains(&name) && !looks_secret(name),
    })
}

/// The way in which settings that may be secret reach the CLI: MCP servers with their headers and variables, plugins,
/// and inline settings.
///
/// Every user of the machine can read arguments, but not the pipe of `initialize`. If a CLI needs arguments, MCP
/// servers and settings go into files that only the CLI's user can read (`--mcp-config FILE`, `--settings FILE`), and
/// that are removed when the incarnation has ended; a host that is killed leaves them in the system's folder for
/// temporary files. Managed settings and the paths of plugins stay arguments, because the CLI takes no file for them.
/// `initialize` needs the flag `--await-initialize`, which the CLI knows since 2.1.261.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Delivery {
    /// In `initialize`. A CLI that does not support this is restarted once with arguments, which are then used for the
    /// rest of the session; [`Event::CliReregistered`](crate::Event::CliReregistered) reports it.
    #[default]
    Auto,
    /// In `initialize` only: with a CLI that does not support this, the session does not start. Choose it if the
    /// settings must never be arguments.
    Initialize,
    /// As arguments and files, which every CLI supports.
    Arguments,
}
