//! The sandbox in which the CLI runs commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::word::words;

/// The sandbox in which the CLI runs commands, in the form of the `sandbox` block of its settings (camelCase in JSON).
/// What is `None` is left to the CLI and to other settings.
///
/// It is merged into an inline [`Options::settings`](super::Options::settings): what is set here replaces what is there
/// at the same place, lists of restrictions are put together, and what would switch a restriction of this sandbox off
/// (`filesystem.disabled`, a proxy that no list of domains is checked against) is taken out. With the path of a settings
/// file it is refused.
///
/// When `enabled` is true, `failIfUnavailable` is true unless one of the two says otherwise: CLI 2.1.328 was seen not to
/// start then where the programs that it needs are missing (`bwrap` and `socat` on Linux), and otherwise to run commands
/// without a sandbox.
///
/// ```
/// use greenroom::Sandbox;
///
/// let mut sandbox = Sandbox::enabled();
/// sandbox.network.get_or_insert_default().allowed_domains = Some(vec!["example.com".into()]);
/// assert_eq!(serde_json::to_value(&sandbox)?["network"]["allowedDomains"][0], "example.com");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Sandbox {
    /// Whether commands run in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether the CLI refuses to start where there can be no sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_if_unavailable: Option<bool>,
    /// Whether commands that run in it need no permission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_allow_bash_if_sandboxed: Option<bool>,
    /// Whether the model may ask for a command outside of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unsandboxed_commands: Option<bool>,
    /// What it may reach over the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<SandboxNetwork>,
    /// What it may do with files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<SandboxFilesystem>,
    /// Which credentials it sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SandboxCredentials>,
    /// Violations that are not told, as patterns by command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_violations: Option<BTreeMap<String, Vec<String>>>,
    /// Whether a weaker sandbox will do inside a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_weaker_nested_sandbox: Option<bool>,
    /// Whether commands may make user namespaces of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_nested_user_namespaces: Option<bool>,
    /// Whether a weaker isolation of the network will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_weaker_network_isolation: Option<bool>,
    /// Whether commands may send Apple events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_apple_events: Option<bool>,
    /// Commands that run outside of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded_commands: Option<Vec<String>>,
    /// The `ripgrep` to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ripgrep: Option<SandboxRipgrep>,
    /// Where `bwrap` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bwrap_path: Option<String>,
    /// Where `socat` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socat_path: Option<String>,
    /// Any other field that the CLI knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Sandbox {
    /// A sandbox that is turned on, with the CLI's defaults.
    pub fn enabled() -> Self {
        Self { enabled: Some(true), ..Self::default() }
    }
}

/// What a [`Sandbox`] may reach over the network.
///
/// ```
/// let mut network = greenroom::options::SandboxNetwork::default();
/// network.denied_domains = Some(vec!["example.com".into()]);
/// # let _ = network;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct SandboxNetwork {
    /// Domains that may be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_domains: Option<Vec<String>>,
    /// Domains that may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_domains: Option<Vec<String>>,
    /// Whether nothing but the allowed domains is reached, without asking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_allowlist: Option<bool>,
    /// Whether only the domains of managed settings count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_managed_domains_only: Option<bool>,
    /// Unix sockets that may be reached, by path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unix_sockets: Option<Vec<String>>,
    /// Whether all of them may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_all_unix_sockets: Option<bool>,
    /// Whether commands may listen on local ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_local_binding: Option<bool>,
    /// Mach services that may be looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_mach_lookup: Option<Vec<String>>,
    /// The port of an HTTP proxy of yours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_proxy_port: Option<u16>,
    /// The port of a SOCKS proxy of yours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socks_proxy_port: Option<u16>,
    /// The authority with which TLS is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_terminate: Option<SandboxTls>,
    /// Any other field that the CLI knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The authority with which a [`Sandbox`] opens TLS.
///
/// ```
/// let tls = greenroom::options::SandboxTls::default();
/// assert!(tls.ca_cert_path.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct SandboxTls {
    /// The file of its certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_path: Option<String>,
    /// The file of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_key_path: Option<String>,
    /// Any other field that the CLI knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What a [`Sandbox`] may do with files, by path.
///
/// ```
/// let mut files = greenroom::options::SandboxFilesystem::default();
/// files.deny_read = Some(vec!["~/.ssh".into()]);
/// # let _ = files;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct SandboxFilesystem {
    /// What may be written besides the working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_write: Option<Vec<String>>,
    /// What may not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny_write: Option<Vec<String>>,
    /// What may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny_read: Option<Vec<String>>,
    /// What may be read within that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_read: Option<Vec<String>>,
    /// Whether only the paths of managed settings may be read within that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_managed_read_paths_only: Option<bool>,
    /// Whether files are not restricted at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Any other field that the CLI knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Which credentials a [`Sandbox`] sees.
///
/// ```
/// use greenroom::options::{CredentialFile, CredentialMode, SandboxCredentials};
///
/// let mut credentials = SandboxCredentials::default();
/// credentials.files = Some(vec![CredentialFile::new("~/.aws/credentials", CredentialMode::Deny)]);
/// # let _ = credentials;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct SandboxCredentials {
    /// Files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<CredentialFile>>,
    /// Variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<Vec<CredentialVar>>,
    /// Whether they may be put into requests that are not encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_plaintext_inject: Option<bool>,
    /// Any other field that the CLI knows (`awsPairs`, `sigv4`).
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

words! {
    /// What a [`Sandbox`] sees of a credential.
    ///
    /// ```
    /// assert_eq!(greenroom::options::CredentialMode::Mask.as_str(), "mask");
    /// ```
    pub enum CredentialMode {
        /// Nothing.
        Deny = "deny",
        /// A stand-in, which is replaced on the way out.
        Mask = "mask",
    }
}

/// A file with credentials, and what a [`Sandbox`] sees of it.
///
/// ```
/// use greenroom::options::{CredentialFile, CredentialMode};
///
/// let file = CredentialFile::new("~/.netrc", CredentialMode::Deny);
/// assert_eq!(file.path, "~/.netrc");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CredentialFile {
    /// Its path.
    pub path: String,
    /// What is seen of it.
    pub mode: CredentialMode,
    /// Any other field that the CLI knows (`extract`, `onExtractNoMatch`, `decode`, `maskClaims`, `maskDuplicates`,
    /// `injectHosts`).
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl CredentialFile {
    /// A file, and what is seen of it.
    pub fn new(path: impl Into<String>, mode: CredentialMode) -> Self {
        Self { path: path.into(), mode, extra: Map::new() }
    }
}

/// A variable with a credential, and what a [`Sandbox`] sees of it.
///
/// ```
/// use greenroom::options::{CredentialMode, CredentialVar};
///
/// let token = CredentialVar::new("TOKEN", CredentialMode::Mask);
/// assert_eq!(token.name, "TOKEN");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CredentialVar {
    /// Its name.
    pub name: String,
    /// What is seen of it.
    pub mode: CredentialMode,
    /// Any other field that the CLI knows (`extract`, `onExtractNoMatch`, `decode`, `maskClaims`, `injectHosts`).
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl CredentialVar {
    /// A variable, and what is seen of it.
    pub fn new(name: impl Into<String>, mode: CredentialMode) -> Self {
        Self { name: name.into(), mode, extra: Map::new() }
    }
}

/// The `ripgrep` of a [`Sandbox`].
///
/// ```
/// let rg = greenroom::options::SandboxRipgrep::new("/usr/bin/rg");
/// assert!(rg.args.is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SandboxRipgrep {
    /// The program.
    pub command: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Any other field that the CLI knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl SandboxRipgrep {
    /// This program.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), args: None, extra: Map::new() }
    }
}
