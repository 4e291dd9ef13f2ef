//! Faults of a fleet's own actors.

use crate::id::Name;

/// An actor of a fleet that is made to fail: see [`Fleet::inject`](crate::Fleet::inject).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetFault {
    /// The actor that grants slots and turns.
    Admission,
    /// The actor of a name.
    Name(Name),
    /// The supervisor: the fleet ends.
    Supervisor,
}
