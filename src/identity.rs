//! What handlers and factories of states know of their session: its id, and the application's data.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::blocking::caught::DropElsewhere;
use crate::error::{Error, Result};

/// A session, as its handlers and the factories of its states see it. It holds nothing else of the session, because the
/// application may keep it.
pub(crate) trait Identity: fmt::Debug + Send + Sync {
    /// The id of the conversation now, as [`Session::session_id`](crate::Session::session_id).
    fn session_id(&self) -> Option<String>;

    fn data(&self) -> &SessionData;
}

/// The application's data of a session, by type.
#[derive(Clone, Default)]
pub(crate) struct SessionData(BTreeMap<TypeId, Datum>);

#[derive(Clone)]
struct Datum {
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl SessionData {
    /// Adds a value, in place of an earlier value of its type.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        let datum = Datum { type_name: type_name::<T>(), value: Arc::new(DropElsewhere::new(value)) };
        self.0.insert(TypeId::of::<T>(), datum);
    }

    /// The value of this type.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption), with the types that there are.
    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Result<&T> {
        let found =
            self.0.get(&TypeId::of::<T>()).and_then(|datum| datum.value.downcast_ref::<DropElsewhere<T>>());
        found.map(|value| &**value).ok_or_else(|| {
            let others: Vec<_> = self.0.values().map(|datum| format!("`{}`", datum.type_name)).collect();
            let others = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
            Error::invalid_option(format!("the session has no data of the type `{}`", type_name::<T>()))
                .with_help(format!("give it to `SessionBuilder::data`; types given so far: {others}"))
        })
    }
}

impl fmt::Debug for SessionData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names only: the values may be secrets.
        f.debug_list().entries(self.0.values().map(|datum| datum.type_name)).finish()
    }
}

/// A session for unit tests that call handlers without a session: its id and the application's data. Give it to
/// [`ToolServer::test_session`](crate::ToolServer::test_session),
/// [`ToolContext::detached_in`](crate::ToolContext::detached_in) or
/// [`CallbackContext::detached_in`](crate::callback::CallbackContext::detached_in).
///
/// ```
/// use greenroom::session::TestSession;
/// use greenroom::{NoArgs, ToolContext, ToolServer};
///
/// struct User { name: String }
///
/// let account: ToolServer = ToolServer::new("account", "1.0.0")
///     .tool("whoami", "Who is asking", async |_: NoArgs, cx: ToolContext| {
///         Ok::<_, greenroom::Error>(cx.data::<User>()?.name.clone())
///     });
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let ada = TestSession::new().data(User { name: "ada".into() });
/// assert_eq!(account.test_session(ada).call("whoami", serde_json::json!({})).await.text(), "ada");
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TestSession {
    session_id: Option<String>,
    data: SessionData,
}

impl TestSession {
    /// A session without an id and without data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the id of the conversation. Default: not known yet.
    pub fn session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }

    /// Adds data, as [`SessionBuilder::data`](crate::SessionBuilder::data) does.
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.insert(value);
        self
    }
}

impl Identity for TestSession {
    fn session_id(&self) -> Option<String> {
        self.session_id.clone()
    }

    fn data(&self) -> &SessionData {
        &self.data
    }
}

/// The two methods of every context that know the session, each written once here: `identity_methods!(self => expr)`,
/// where `expr` is a `&dyn Identity`.
macro_rules! identity_methods {
    ($self:ident => $identity:expr) => {
        /// The id of the conversation, as [`Session::session_id`](crate::Session::session_id) gives it now: `None`
        /// until the CLI names it in the first turn, unless [`Options::conversation`](crate::Options::conversation) names it;
        /// another one after a fork or `/clear` ([`Event::SessionCaptured`](crate::Event::SessionCaptured)).
        pub fn session_id(&$self) -> Option<String> {
            $identity.session_id()
        }

        /// The application's data of this type, as given to [`SessionBuilder::data`](crate::SessionBuilder::data).
        ///
        /// # Errors
        /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if the session has none. Use `.ok()` for data that a
        /// session need not have.
        pub fn data<T: Send + Sync + 'static>(&$self) -> crate::Result<&T> {
            $identity.data().get()
        }
    };
}
pub(crate) use identity_methods;
