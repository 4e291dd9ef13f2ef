//! What the machine is told and what it says.

use std::collections::HashMap;
use std::time::Duration;

use crate::Name;

/// The bounds of a node.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Slots in all: live CLIs, from the order to activate until `freed`. Zero counts as one.
    pub live: usize,
    /// Activations under way at once. Zero counts as one.
    pub activations_at_once: usize,
    /// How long a holder must have been idle before another name may have its slot. 5 s in a fleet.
    pub idle_before_eviction: Duration,
}

/// The share of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Turns that the tenant gets while a tenant of weight 1 gets one. Zero counts as one.
    pub weight: u32,
    /// Slots that the tenant may hold. A tenant with zero is never granted anything.
    pub live: usize,
}

/// What a name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// One turn, and the slot that it needs.
    Turn,
    /// A slot without a turn: the session is started ahead of its next prompt.
    Warm,
}

/// An order for the owner of the machine, which carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The name has a slot from now on: start its session, then say `started` or, if that fails, `freed`. If the name asks for
    /// a turn by the time of `started`, the turn is granted with the slot.
    Activate(Name),
    /// The name may begin one turn on the slot that it holds. Say `turn_ended` when it has ended, or if it could not begin.
    Turn(Name),
    /// The name gives its slot back: end its session, then say `freed`.
    Passivate(Name),
}

/// Names by what they do. A name that runs a turn and asks for its next one counts in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Names that hold a slot: starting, running, idle and leaving.
    pub live: usize,
    pub starting: usize,
    pub running: usize,
    pub idle: usize,
    pub leaving: usize,
    /// Names that ask and have no grant yet.
    pub asking: usize,
}

/// The tally of the node, and of each tenant that holds or asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub live: usize,
    pub starting: usize,
    pub running: usize,
    pub idle: usize,
    pub leaving: usize,
    pub asking: usize,
    pub tenants: HashMap<String, Tally>,
}
