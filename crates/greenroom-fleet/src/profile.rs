//! Profiles: how the sessions of a fleet are built.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use greenroom::{Options, SessionBuilder};
use uuid::Uuid;

use crate::id::{Name, Term};
use crate::record::Credential;

/// The hosts on which a session may run. Its first prompt fixes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Any host. The session finds its transcript there, and its working directory only if all hosts share the folder.
    #[default]
    Anywhere,
    /// The host of the node that has accepted the first prompt, because the files of the session are there. While no node runs on
    /// that host, its prompts wait.
    OnHost,
}

/// The place in which the transcripts of sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TranscriptsIn {
    /// The backend, so a session's memory moves with the session to any host. An activation gets a configuration folder of its own,
    /// with the conversation from the backend, so a profile must not set `CLAUDE_CONFIG_DIR`. [`ActivationContext::isolated_options`]
    /// leaves it out.
    Backend,
    /// The [folder](crate::FleetBuilder::folder) of the fleet on each host. On a backend that other services share, sessions have to
    /// stay on their hosts: see [`Placement::OnHost`].
    Folder,
    /// The [folder](crate::FleetBuilder::folder) of the fleet, which all hosts share.
    SharedFolder,
}

/// The activation for which a profile builds a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ActivationContext {
    /// The name of the session.
    pub name: Name,
    /// The id of the conversation. The fleet opens it; a profile need not.
    pub conversation: Uuid,
    /// The number of this ownership of the name.
    pub term: Term,
    /// The session's working directory, unless the profile sets another one. It exists.
    pub working_directory: PathBuf,
    /// The CLI's configuration folder (`CLAUDE_CONFIG_DIR`), with the transcripts, unless the profile sets another one. It
    /// exists. With [`TranscriptsIn::Backend`] it is the folder of this activation alone, and the
    /// session copies it to a temporary folder if the store has the conversation.
    pub config_directory: PathBuf,
}

impl ActivationContext {
    /// Options of an isolated session in the folders of this activation, which fit every setting of the fleet: those of
    /// [`Options::isolated_in`](greenroom::Options::isolated_in), with the session's folder as `HOME`. The fleet adds the
    /// configuration folder.
    ///
    /// ```
    /// use greenroom::Session;
    /// use greenroom::options::{BuiltInTools, EnvPolicy};
    /// use greenroom_fleet::Fleet;
    ///
    /// let builder = Fleet::builder().profile("support", |cx| {
    ///     let mut options = cx.isolated_options();
    ///     options.env_policy = EnvPolicy::service_and(["ANTHROPIC_API_KEY"]);
    ///     options.tools = Some(BuiltInTools::none());
    ///     Session::builder().options(options)
    /// });
    /// # drop(builder);
    /// ```
    pub fn isolated_options(&self) -> Options {
        let folder = self.working_directory.parent().unwrap_or(&self.working_directory);
        // A folder that is no UTF-8 is refused when the fleet starts.
        Options::isolated_in(folder.to_string_lossy(), &self.working_directory)
    }

    /// True for the call at the start of the fleet, with a made-up name and tenant, by which the fleet finds out if the profile fits. No
    /// session is started of what the profile returns, and the folders do not exist.
    pub fn is_probe(&self) -> bool {
        self.term == Term(0)
    }
}

/// The made-up name, and the made-up tenant, of a [probe](ActivationContext::is_probe).
pub(crate) const PROBE: &str = "probe";

/// Names the credential of a session.
pub(crate) type CredentialOf = Arc<dyn Fn(&Name) -> String + Send + Sync>;

/// The name of a session's key. `None`: the function panics, or the name is empty or too long.
pub(crate) fn key_of(of: &CredentialOf, name: &Name, profile: &str) -> Option<String> {
    // The application's code.
    let key = catch_unwind(AssertUnwindSafe(|| of(name))).ok();
    let key = key.filter(|key| (1..=Credential::MAX_BYTES).contains(&key.len()));
    if key.is_none() {
        tracing::error!(
            profile,
            "the credential of a session has no name: return a text of 1 to {} bytes in `FleetBuilder::credential`",
            Credential::MAX_BYTES
        );
    }
    key
}

/// Builds the session of an activation. It is called anew at each activation, and once as a probe.
pub(crate) type Profile = Arc<dyn Fn(&ActivationContext) -> SessionBuilder + Send + Sync>;

/// Has the spans and the metrics of a session name its profile, and keeps the CLI's own metrics from a label for each session.
pub(crate) fn traced(builder: SessionBuilder, profile: &str) -> SessionBuilder {
    builder.configure(|options| {
        options.trace.agent_name.get_or_insert_with(|| profile.to_owned());
        let of_session = options.env.entry("OTEL_METRICS_INCLUDE_SESSION_ID".to_owned());
        of_session.or_insert_with(|| "false".to_owned());
    })
}
