//! The rights that a process needs to lend users of the system.

use crate::error::FleetError;

/// # Errors
/// [`FleetError::Invalid`] with the rights that this process lacks.
pub(super) fn check() -> Result<(), FleetError> {
    match lacking() {
        Some(lacking) => Err(FleetError::Invalid(format!(
            "sessions cannot run as users of the system, because this process lacks {lacking}: run the service as root, or leave \
             `FleetBuilder::users` out"
        ))),
        None => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn lacking() -> Option<String> {
    match rustix::thread::capabilities(None) {
        Ok(own) => lacking_in(own.effective),
        Err(error) => Some(format!("the right to read its own rights ({error})")),
    }
}

/// The fleet finds processes of users on Linux only.
#[cfg(not(target_os = "linux"))]
fn lacking() -> Option<String> {
    Some("Linux".to_owned())
}

#[cfg(target_os = "linux")]
pub(super) fn lacking_in(own: rustix::thread::CapabilitySet) -> Option<String> {
    use rustix::thread::CapabilitySet as Set;

    let needed = [
        (Set::SETUID, "CAP_SETUID and"),
        (Set::SETGID, "CAP_SETGID and"),
        (Set::CHOWN, "CAP_CHOWN (to give a session's files to its user),"),
        (Set::DAC_OVERRIDE, "CAP_DAC_OVERRIDE (to read and remove them),"),
        (Set::FOWNER, "CAP_FOWNER (to close them to the next user),"),
        (Set::KILL, "CAP_KILL (to end the processes of a user),"),
    ];
    let lacking: Vec<_> =
        needed.into_iter().filter(|(right, _)| !own.contains(*right)).map(|(_, name)| name).collect();
    (!lacking.is_empty()).then(|| lacking.join(" "))
}
