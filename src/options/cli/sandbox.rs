//! The sandbox in which the CLI runs commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Declares a block of the CLI's sandbox settings: every field is optional, and unknown fields are kept in `extra`.
macro_rules! settings {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "fields are named as in the CLI's settings")]
        pub struct $name {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)+
            /// Other fields that the CLI knows.
            #[serde(flatten)]
            pub extra: Map<String, Value>,
        }
    };
}

settings! {
    /// The sandbox in which the CLI runs commands: the `sandbox` block of the CLI's settings (camelCase in JSON). A
    /// field that is `None` is left to the CLI and to other settings.
    ///
    /// The fields are those of `SandboxSettings` in the TypeScript SDK 0.3.330. The CLI's documentation of its settings
    /// says what each of them does; the descriptions here add units and surprises.
    ///
    /// The sandbox is merged over the `sandbox` block in [`Options::settings`](crate::Options::settings): a field here
    /// replaces that field there, lists of restrictions are joined, and settings that would switch off a restriction of
    /// this sandbox (`filesystem.disabled`, a proxy that does not check the lists of domains) are removed. It is refused
    /// together with the path of a settings file.
    ///
    /// With `enabled: true`, `failIfUnavailable` is true unless set otherwise on either side. CLI 2.1.328 was then seen
    /// not to start if the programs that the sandbox needs are missing (`bwrap` and `socat` on Linux); without it, the
    /// CLI runs commands outside of a sandbox.
    ///
    /// ```
    /// use greenroom::options::Sandbox;
    ///
    /// let mut sandbox = Sandbox::enabled();
    /// sandbox.network.get_or_insert_default().allowed_domains = Some(vec!["example.com".into()]);
    /// assert_eq!(serde_json::to_value(&sandbox)?["network"]["allowedDomains"][0], "example.com");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct Sandbox {
        enabled: bool,
        /// Whether the CLI refuses to start if the sandbox is impossible.
        fail_if_unavailable: bool,
        /// Whether commands in the sandbox need no permission.
        auto_allow_bash_if_sandboxed: bool,
        /// Whether the model may ask to run a command outside of the sandbox.
        allow_unsandboxed_commands: bool,
        network: SandboxNetwork,
        filesystem: SandboxFilesystem,
        /// Credentials that commands cannot read (`deny`), or for which they see a stand-in (`mask`), such as
        /// `{"files": [{"path": "~/.netrc", "mode": "deny"}], "envVars": [{"name": "TOKEN", "mode": "mask"}]}`.
        credentials: Value,
        /// Violations that are not reported: patterns by command.
        ignore_violations: BTreeMap<String, Vec<String>>,
        /// Whether a weaker sandbox is used inside a container.
        enable_weaker_nested_sandbox: bool,
        allow_nested_user_namespaces: bool,
        /// Whether a weaker isolation of the network is used.
        enable_weaker_network_isolation: bool,
        allow_apple_events: bool,
        /// Commands that run outside of the sandbox.
        excluded_commands: Vec<String>,
        /// The `ripgrep` to use: `command`, `args`.
        ripgrep: Value,
        bwrap_path: String,
        socat_path: String,
    }
}

impl Sandbox {
    /// An enabled sandbox with the CLI's defaults.
    pub fn enabled() -> Self {
        Self { enabled: Some(true), ..Self::default() }
    }
}

settings! {
    /// Network access of commands in a [`Sandbox`].
    pub struct SandboxNetwork {
        allowed_domains: Vec<String>,
        denied_domains: Vec<String>,
        /// Whether all domains besides `allowed_domains` are denied without asking.
        strict_allowlist: bool,
        /// Whether only the domains in managed settings are allowed.
        allow_managed_domains_only: bool,
        /// Paths of Unix sockets that may be used.
        allow_unix_sockets: Vec<String>,
        allow_all_unix_sockets: bool,
        /// Whether commands may listen on local ports.
        allow_local_binding: bool,
        /// Mach services that may be looked up.
        allow_mach_lookup: Vec<String>,
        /// The port of your own HTTP proxy.
        http_proxy_port: u16,
        /// The port of your own SOCKS proxy.
        socks_proxy_port: u16,
        /// The certificate authority with which TLS is terminated: `caCertPath`, `caKeyPath`.
        tls_terminate: Value,
    }
}

settings! {
    /// File access of commands in a [`Sandbox`], as lists of paths such as `~/.ssh`.
    pub struct SandboxFilesystem {
        /// Writable besides the working directory.
        allow_write: Vec<String>,
        deny_write: Vec<String>,
        deny_read: Vec<String>,
        /// Readable inside of `deny_read`.
        allow_read: Vec<String>,
        /// Whether only the paths in managed settings are readable inside of `deny_read`.
        allow_managed_read_paths_only: bool,
        /// Whether file access is not restricted at all.
        disabled: bool,
    }
}
