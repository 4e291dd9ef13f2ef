//! Interrupts, withdrawn prompts.

use crate::wire::objects::objects;

objects! {
    /// Answer to an interrupt. Names prompts by their [uuid](crate::Turn::prompt_uuid).
    answer InterruptReceipt {
        /// Prompts that still wait and will run, in the CLI and in this session. A CLI without the capability
        /// `interrupt_receipt_v1` names none of its own.
        still_queued: Vec<String>,
        /// Prompts that waited and will not run.
        cancelled: Vec<String>,
    }

    /// Answer to [`Session::cancel_async_message`](crate::Session::cancel_async_message).
    answer CancelledMessage {
        /// False if the prompt has started or is unknown.
        cancelled: bool,
    }
}
