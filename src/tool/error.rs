//! The error of a handler: a text for the model, and a cause for the log.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use greenroom_process::ErrorReport;

use crate::error::BoxError;
use crate::plain::short;

/// The `Result` of a handler whose error is a [`ToolError`].
pub type Result<T, E = ToolError> = std::result::Result<T, E>;

/// The text that the model reads of an error without a text of its own.
const NO_TEXT: &str = "the tool failed because of an internal error, which was logged";

/// The error of a tool's handler: a text for the model, and a cause that only your program sees.
///
/// The model reads the text, so write what it should do next. The cause, with the causes behind it, goes to
/// [`Event::CallFailed`](crate::Event::CallFailed) and to a `tracing` event of the level `WARN` in the `tool_call` span,
/// in one line of at most 4 KiB. A resource has no such event: its cause goes to `tracing` alone.
///
/// The operator `?` turns any error into a `ToolError` with the error as its cause. The model then reads that an internal
/// error was logged, and nothing of the error itself.
///
/// ```
/// use greenroom::tool::{self, ToolError};
///
/// fn load(order: u32) -> Result<String, std::io::Error> {
///     Err(std::io::Error::other(format!("10.0.0.7 refuses the connection for order {order}")))
/// }
///
/// async fn order(number: u32) -> tool::Result<String> {
///     load(number).map_err(|error| ToolError::new("The order service is down. Try again in a minute.").log(error))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let error = order(42).await.unwrap_err();
/// assert_eq!(error.to_string(), "The order service is down. Try again in a minute.");
/// assert_eq!(error.cause().unwrap().to_string(), "10.0.0.7 refuses the connection for order 42");
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
// No `std::error::Error`: its conversion from all errors would overlap with the conversion of a type into itself.
pub struct ToolError {
    text: String,
    cause: Option<BoxError>,
}

impl ToolError {
    /// An error with this text for the model, and without a cause: nothing is logged.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: None }
    }

    /// Sets the cause, which is logged: an error, or a text. The model reads nothing of it.
    #[must_use]
    pub fn log(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Returns the cause.
    pub fn cause(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }

    /// The cause with the causes behind it, in one line for the log, if `error` is a `ToolError` with a cause.
    pub(crate) fn logged<E: 'static>(error: &E) -> Option<String> {
        let cause = (error as &dyn Any).downcast_ref::<Self>()?.cause()?;
        Some(short(format!("{:#}", ErrorReport(cause))))
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::new(NO_TEXT).log(error)
    }
}

impl fmt::Display for ToolError {
    /// Writes the text for the model, without the cause.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ToolError {
    /// Writes both, for a test that fails.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.cause().map_or(Ok(()), |cause| write!(f, "\nCaused by: {}", ErrorReport(cause)))
    }
}
