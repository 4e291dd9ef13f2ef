//! The times of questions, by profile.

use std::time::Duration;

use super::{FleetBuilder, LONGEST, invalid};
use crate::error::FleetError;

impl FleetBuilder {
    /// Sets [`FleetLimits::question_holds`](crate::FleetLimits::question_holds) for the sessions of a profile.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use greenroom::Session;
    /// use greenroom_fleet::Fleet;
    ///
    /// let builder = Fleet::builder()
    ///     .profile("refunds", |_| Session::builder())
    ///     // Nobody answers within a minute: the slot is free at once.
    ///     .question_holds("refunds", Duration::ZERO);
    /// # drop(builder);
    /// ```
    #[must_use]
    pub fn question_holds(mut self, profile: impl Into<String>, time: Duration) -> Self {
        self.question_holds.insert(profile.into(), time);
        self
    }

    pub(super) fn check_question_holds(&self) -> Result<(), FleetError> {
        for (profile, time) in &self.question_holds {
            if !self.profiles.contains_key(profile) {
                return invalid(&format!(
                    "`question_holds` names the profile '{profile}', which the fleet has not: add it with `FleetBuilder::profile`"
                ));
            }
            if *time > LONGEST {
                return invalid("a limit is at most ten years");
            }
        }
        Ok(())
    }
}
