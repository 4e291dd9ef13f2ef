//! Parts that several actors are made of.

pub(crate) mod current_value;
pub(crate) mod deadlines;
pub(crate) mod gate;
pub(crate) mod left;
pub(crate) mod level;
pub(crate) mod reply;
pub(crate) mod restart_window;
pub(crate) mod task;
