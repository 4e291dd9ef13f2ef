//! Requests about names that can run.

use crate::id::{Name, NodeId};
use crate::record::PromptRecord;

/// A page of names that can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPage {
    /// The node that looks for work.
    pub node: NodeId,
    /// Only these names, at most [`Page::MOST`](super::Page::MOST). `None`: all.
    pub of: Option<Vec<Name>>,
    /// Tenants to leave out.
    pub without: Vec<String>,
    /// Profiles of the names. Names of other profiles are passed over. `None`: any profile.
    pub profiles: Option<Vec<String>>,
    /// Names after this place. `None`: from the beginning.
    pub after: Option<WaitingCursor>,
    /// The length of the page: no more names are looked at, and never more than [`Page::MOST`](super::Page::MOST). A page may be
    /// shorter before the end, because names are passed over.
    pub limit: usize,
}

/// The answer to a [`WaitingPage`].
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingNames {
    /// A prompt for each name: by tenants, in the order of their bytes, then in the order in which the names' first prompts that
    /// wait were accepted.
    pub prompts: Vec<PromptRecord>,
    /// A profile that the page leaves out, and of which a name could run otherwise.
    pub other_profile: Option<String>,
    /// The place at which the next page begins. `None`: this is the last page.
    pub next: Option<WaitingCursor>,
}

/// A place in the list of names that can run, as an answer gives it: the end of a row's key, or the beginning that several share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCursor(pub(crate) Vec<u8>);
