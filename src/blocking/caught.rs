//! Drops values of the application so that their panic harms nothing else.
//!
//! Whoever drops the last reference to a handler may be an actor, a task of the runtime or the thread of the application
//! that drops its last [`Session`](crate::Session). So each value that the application hands over is wrapped in
//! [`DropElsewhere`] where its type is erased, and no holder has to take care of its drop.

use std::any::Any;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;

use super::in_background;

/// A value of the application, such as a handler. Dropped as by [`drop_elsewhere`].
pub(crate) struct DropElsewhere<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> DropElsewhere<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Send + 'static> Deref for DropElsewhere<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => unreachable!("only the drop takes the value"),
        }
    }
}

impl<T: Send + 'static> Drop for DropElsewhere<T> {
    fn drop(&mut self) {
        // Most handlers capture nothing.
        if std::mem::needs_drop::<T>()
            && let Some(value) = self.0.take()
        {
            drop_elsewhere(value);
        }
    }
}

/// Drops a value of the application on a thread of the blocking pool, because its drop may block and panic. Without a
/// runtime, drops it here.
pub(crate) fn drop_elsewhere(held: impl Send + 'static) {
    in_background(move || drop_quietly(held));
}

/// Drops a value of the application, and logs a panic.
pub(crate) fn drop_quietly(held: impl Send) {
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(move || drop(held))) {
        tracing::warn!(
            message = panic_text(&*panic),
            "a value of the application, such as a handler or a state, panicked when it was dropped"
        );
    }
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
