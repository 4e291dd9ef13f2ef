//! The profiles of a fleet, and the credentials of their sessions.

use std::sync::Arc;

use greenroom::SessionBuilder;

use super::FleetBuilder;
use crate::id::Name;
use crate::profile::ActivationContext;

impl FleetBuilder {
    /// Adds a profile: how the sessions that name it are built. Each activation calls the function, which must not block.
    /// The fleet sets the conversation, and a working directory and a configuration folder unless the profile does. Begin with
    /// [`ActivationContext::isolated_options`] for sessions of different users.
    ///
    /// [`start`](Self::start) calls the function once with a made-up name, and starts no session of what it returns: it refuses a profile that
    /// chooses the conversation, or the configuration folder where the fleet has to. [`ActivationContext::is_probe`] tells this call.
    ///
    /// Its handlers decide about permissions, questions of the model, elicitations and dialogs. What they leave open, such as a
    /// permission without a handler or [`PermissionDecision::undecided`](greenroom::PermissionDecision::undecided), becomes a
    /// [question](crate::FleetTenant::questions). For that the fleet sets [`on_inquiry`](SessionBuilder::on_inquiry), in place of the profile's
    /// own one, unless [`FleetLimits::question`](crate::FleetLimits::question) is zero. For dialogs, name their kinds with
    /// [`inquiry_dialogs`](SessionBuilder::inquiry_dialogs).
    ///
    /// A panic in it is a failed activation, and is ignored in the call at the start.
    #[must_use]
    pub fn profile(
        mut self,
        name: impl Into<String>,
        build: impl Fn(&ActivationContext) -> SessionBuilder + Send + Sync + 'static,
    ) -> Self {
        self.profiles.insert(name.into(), Arc::new(build));
        self
    }

    /// Names the credential (the key or the login) of each session of a profile. Sessions with the same name share their fate when the API
    /// rejects the credential: their prompts wait on all nodes, and one of them tries again. The name is opaque: never return the secret
    /// itself. It is kept in the backend, and is in events and snapshots.
    ///
    /// Without this call each tenant's sessions of a profile count as having a credential of their own. Name it if several tenants share one,
    /// so that each of them does not find the limit by itself, or if a tenant has several. The function is called right before the profile at
    /// each start of a session: name the login that the profile gives this session, also while you rotate keys. It must not block. A name that is empty
    /// or longer than [`Credential::MAX_BYTES`](crate::Credential::MAX_BYTES), and a panic, count as no name.
    ///
    /// ```
    /// use greenroom::Session;
    /// use greenroom_fleet::Fleet;
    ///
    /// let builder = Fleet::builder()
    ///     .profile("support", |cx| Session::builder().options(cx.isolated_options()))
    ///     .credential("support", |_| "the-company-key".to_owned());
    /// # drop(builder);
    /// ```
    #[must_use]
    pub fn credential(
        mut self,
        profile: impl Into<String>,
        of: impl Fn(&Name) -> String + Send + Sync + 'static,
    ) -> Self {
        self.credentials.insert(profile.into(), Arc::new(of));
        self
    }
}
