//! A scripted CLI for each session of a service.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use greenroom::transport::MemoryTransport;

use super::ScriptedCli;
use super::script::Script;
use crate::base::lock;

/// A [`ScriptedCli`] for each key, such as the name of a session in a fleet, each with a script of its own. Cheap to clone; the
/// clones share the CLIs.
///
/// The CLI of a key is made when it is first asked for, and stays until the last clone is dropped. So the key's session finds its
/// conversation and the rest of its script when it starts again.
///
/// ```
/// use greenroom::Session;
/// use greenroom_testkit::{ModelTurn, Script, ScriptedClis};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clis = ScriptedClis::new(|key| Script::new().otherwise(ModelTurn::new().text(format!("I am {key}."))));
/// for key in ["ada", "bob"] {
///     // In the profile of a fleet: `move |cx| Session::builder().transport(clis.transport(&cx.name))`.
///     let session = Session::builder().transport(clis.transport(key)).start().await?;
///     let outcome = session.prompt("Who are you?").await?.outcome().await?;
///     assert_eq!(outcome.text(), Some(&*format!("I am {key}.")));
///     session.stop().await?;
/// }
/// assert_eq!(clis.cli("ada").prompts(), ["Who are you?"]);
/// # greenroom::Result::<()>::Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ScriptedClis(Arc<Shared>);

struct Shared {
    script: Box<dyn Fn(&str) -> Script + Send + Sync>,
    clis: Mutex<HashMap<String, Arc<ScriptedCli>>>,
}

impl ScriptedClis {
    /// CLIs that play the script of their key.
    pub fn new(script: impl Fn(&str) -> Script + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { script: Box::new(script), clis: Mutex::default() }))
    }

    /// The transport to give to the session with this key. Must be called on a tokio runtime, where the CLI is played.
    pub fn transport(&self, key: impl ToString) -> MemoryTransport {
        self.cli(key).transport()
    }

    /// The CLI of the session with this key. Must be called on a tokio runtime, where the CLI is played.
    pub fn cli(&self, key: impl ToString) -> Arc<ScriptedCli> {
        let key = key.to_string();
        if let Some(cli) = lock(&self.0.clis).get(&key) {
            return cli.clone();
        }
        // Without the lock, because the function may ask for another CLI.
        let script = (self.0.script)(&key);
        lock(&self.0.clis).entry(key).or_insert_with(|| Arc::new(ScriptedCli::play(script))).clone()
    }
}

impl fmt::Debug for ScriptedClis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(lock(&self.0.clis).keys()).finish()
    }
}
