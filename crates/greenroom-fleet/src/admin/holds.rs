//! Operations on credentials that the API rejects for now.

use super::Admin;
use crate::backend::Requests;
use crate::error::BackendError;
use crate::pages::all_of;
use crate::record::{Credential, Hold};
use crate::request::Page;

impl Admin {
    /// Lists the credentials that are held, because the API has rejected them: their prompts wait, on all nodes.
    ///
    /// # Errors
    /// The backend's.
    pub async fn holds(&self) -> Result<Vec<Hold>, BackendError> {
        let after = |last: Option<&Hold>| last.map(|hold| hold.credential.clone());
        all_of(|last| self.backend.holds(after(last), Page::MOST)).await
    }

    /// Lets the prompts of a credential begin at once, because its cause is mended: the key was replaced, or the account has credit again.
    /// Returns the hold that it had. `None`: it was not held. If the API rejects it again, it is held again.
    ///
    /// ```
    /// use greenroom_fleet::admin::Admin;
    /// use greenroom_fleet::{BackendError, Cause};
    ///
    /// /// After the account got new credit.
    /// async fn paid(admin: &Admin) -> Result<(), BackendError> {
    ///     for hold in admin.holds().await? {
    ///         if hold.cause == Cause::NoCredit {
    ///             admin.release(hold.credential).await?;
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = paid;
    /// ```
    ///
    /// # Errors
    /// The backend's.
    pub async fn release(&self, credential: Credential) -> Result<Option<Hold>, BackendError> {
        self.backend.release_hold(credential).await
    }
}
