//! What the machine is told and what it says.

use std::collections::HashMap;

use serde::Serialize;

/// A name's request, or a change of its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionMessage {
    /// The name asks. `order`: the place of its prompt in the order in which all prompts were accepted; `None` for a request without
    /// a prompt, which comes after all prompts that names have asked for by then.
    ///
    /// Asking again changes nothing until the request is granted, but a turn replaces a request to warm, and another prompt moves
    /// the name to the place of that prompt. A holder may ask for its next turn; a request to warm makes an idle holder count as
    /// used now. The tenant of a name that holds or asks already stays as it is.
    Ask { tenant: String, want: Want, order: Option<u64> },
    /// The name wants nothing any more: its prompts have expired. A slot that it holds stays. A name that is being started
    /// is idle when it has `Started`.
    Withdraw,
    /// The activation of the name is up: it runs its turn, or is idle if it asks for none.
    Started,
    /// The turn of the name has ended, or could not begin. The name is idle.
    TurnEnded,
    /// Background work or a question keeps an idle holder from being evicted, until it is said to be over. The holder counts as
    /// idle from then on.
    Busy(bool),
    /// The name ends the session of a holder by itself: it was idle for long, or was asked to. The holder gets no further turn on this
    /// slot, and the slot is free after `Freed`.
    Leaving,
    /// The process group of the name is gone: its slot is free. Also after a failed activation, whose request is spent: ask again
    /// to try again. A name that has asked since is activated again in its order.
    Freed,
    /// The actor of the name has ended: it wants nothing, and its slot is free.
    Gone,
}

/// What a name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// One turn, and the slot that it needs.
    Turn,
    /// A slot without a turn: the session is started ahead of its next prompt.
    Warm,
}

/// An order to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The name has a slot from now on: it starts its session, then says `Started` or, if that fails, `Freed`. If the name asks for
    /// a turn by the time of `Started`, the turn is granted with the slot.
    Activate,
    /// The name may begin one turn on the slot that it holds. It says `TurnEnded` when the turn has ended, or if it could not begin.
    Turn,
    /// The name gives its slot back, because another name needs the slot: it ends its session, then says `Freed`.
    Passivate,
}

/// Names by what they do. A name that runs a turn and asks for its next one counts in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// Names that were chosen for a slot, and have none yet.
    pub promised: usize,
    /// Names whose session starts.
    pub starting: usize,
    /// Names that run a turn.
    pub running: usize,
    /// Names whose session is idle.
    pub idle: usize,
    /// Names whose session ends.
    pub leaving: usize,
    /// Names that ask and have no grant yet.
    pub asking: usize,
}

impl Tally {
    /// Names that hold a slot: starting, running, idle and leaving.
    pub fn live(&self) -> usize {
        self.starting + self.running + self.idle + self.leaving
    }

    /// A slot is free now, with `cap` slots in all.
    pub(super) fn has_slot(&self, cap: usize) -> bool {
        self.live() < cap
    }

    /// One more slot is free or on its way, with `cap` slots in all.
    pub(super) fn has_room(&self, cap: usize) -> bool {
        self.live() + self.promised < cap.saturating_add(self.leaving)
    }
}

/// The tally of the node, and of each tenant that holds or asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub node: Tally,
    pub tenants: HashMap<String, Tally>,
}
