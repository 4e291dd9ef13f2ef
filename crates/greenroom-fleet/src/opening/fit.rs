//! Finds out at the opening if the profiles fit the settings of the fleet.

use std::panic::{AssertUnwindSafe, catch_unwind};

use uuid::Uuid;

use crate::actor::context::FleetShared;
use crate::actor::name::steps::memory::check_folder;
use crate::actor::task::panic_text;
use crate::error::FleetError;
use crate::files::check_conversation;
use crate::id::{Name, Tenant, Term};
use crate::profile::{ActivationContext, PROBE};

/// Builds a session of each profile for a made-up name, and starts none.
///
/// A panic on the made-up name is ignored. A profile that misfits only a real name is reported at the activation of that name.
///
/// # Errors
/// [`FleetError::Invalid`] if a profile chooses what the fleet chooses.
pub(super) fn check_profiles(shared: &FleetShared) -> Result<(), FleetError> {
    for (name, profile) in &shared.profiles {
        let (conversation, term) = (Uuid::new_v4(), Term(0));
        let folders = shared.folders.of(conversation, term.0);
        let cx = ActivationContext {
            name: Name::new(Tenant::new(PROBE)?, PROBE)?,
            conversation,
            term,
            working_directory: folders.work,
            config_directory: folders.config,
        };
        let builder = match catch_unwind(AssertUnwindSafe(|| profile(&cx))) {
            Ok(builder) => builder,
            Err(panic) => {
                let panic = panic_text(&*panic);
                tracing::debug!(
                    profile = name,
                    panic,
                    "a profile does not build a session for a made-up name"
                );
                continue;
            }
        };
        let mut fits = Ok(());
        drop(builder.configure(|options| {
            fits = check_conversation(options, &cx);
            if shared.transcripts && fits.is_ok() {
                fits = check_folder(options);
            }
        }));
        fits.map_err(|why| {
            FleetError::Invalid(format!("the profile '{name}' does not fit the fleet: {why}"))
        })?;
    }
    Ok(())
}
