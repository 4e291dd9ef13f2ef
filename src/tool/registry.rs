//! The lists of a server: tools, resources and resource templates.
//!
//! A [`Registry`] belongs to one server in one session. It outlives the server's actor and the CLI, so changes at run
//! time survive a restart of either. The actor works on a snapshot ([`Lists`]), so a tool call takes no lock; each
//! change wakes the actor, which takes a new snapshot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::define::definition::ToolDefinition;
use super::define::resource::ResourceDefinition;
use super::define::template::TemplateDefinition;
use super::list::{List, Listable};
use super::run::log_level::LevelFilter;
use super::run::peer::Peer;
use crate::error::{Error, Result};
use crate::lock::lock;

/// All lists of a server.
#[derive(Clone, Default)]
pub(crate) struct Lists {
    pub(crate) tools: List<ToolDefinition>,
    pub(crate) resources: List<ResourceDefinition>,
    pub(crate) templates: List<TemplateDefinition>,
    /// Announces resources even if there are none yet.
    pub(crate) resources_to_come: bool,
}

/// Number of changes for each kind of list with a notification of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Revisions {
    tools: u64,
    resources: u64,
}

impl Lists {
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.resources.is_empty() && self.templates.is_empty()
    }

    pub(crate) fn validate(&self, server: &str) -> Result<()> {
        self.tools.validate(server)?;
        self.resources.validate(server)?;
        self.templates.validate(server)
    }

    pub(crate) fn revisions(&self) -> Revisions {
        Revisions { tools: self.tools.revision, resources: self.resources.revision + self.templates.revision }
    }

    pub(crate) fn offers_resources(&self) -> bool {
        self.resources_to_come || !self.resources.is_empty() || !self.templates.is_empty()
    }

    /// The capabilities for `initialize`.
    pub(crate) fn capabilities(&self) -> Value {
        let mut capabilities = json!({ "logging": {}, "tools": { "listChanged": true } });
        if self.offers_resources() {
            capabilities["resources"] = json!({ "listChanged": true });
        }
        capabilities
    }

    /// Binds all items without a state to the state with this index.
    pub(crate) fn bind(&mut self, index: usize) {
        self.tools.bind(index);
        self.resources.bind(index);
        self.templates.bind(index);
    }
}

impl Revisions {
    /// The notifications for a CLI that knows the revisions `known`.
    pub(crate) fn news_since(&self, known: &Revisions) -> impl Iterator<Item = &'static str> {
        [
            (self.tools != known.tools).then_some("notifications/tools/list_changed"),
            (self.resources != known.resources).then_some("notifications/resources/list_changed"),
        ]
        .into_iter()
        .flatten()
    }
}

type Wake = Box<dyn Fn() + Send + Sync>;

/// The lists of one server in one session, and what the CLI knows of them.
#[derive(Default)]
pub(crate) struct Registry {
    lists: Mutex<Arc<Lists>>,
    /// The actor was woken and has not looked yet: at most one wake-up waits in its mailbox.
    woken: AtomicBool,
    wake: Mutex<Option<Wake>>,
    /// Kept here because the CLI does not set the level again after a restart of the server.
    pub(crate) log_level: Arc<LevelFilter>,
    /// The revisions that the newest CLI was told when it met the server.
    announced: Mutex<Option<Revisions>>,
    /// The current CLI.
    peer: Mutex<Option<Arc<dyn Peer>>>,
}

impl Clone for Registry {
    /// Copies the lists for another session.
    fn clone(&self) -> Self {
        Self { lists: Mutex::new(self.snapshot()), ..Self::default() }
    }
}

impl Registry {
    /// The current lists.
    pub(crate) fn snapshot(&self) -> Arc<Lists> {
        lock(&self.lists).clone()
    }

    /// The lists, before the registry is shared.
    pub(crate) fn get_mut(&mut self) -> &mut Lists {
        Arc::make_mut(self.lists.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the lists and wakes the actor.
    fn change<T>(&self, change: impl FnOnce(&mut Lists) -> Result<T>) -> Result<T> {
        let changed = {
            let mut lists = lock(&self.lists);
            let before = lists.revisions();
            let changed = change(Arc::make_mut(&mut lists));
            if before == lists.revisions() {
                return changed;
            }
            changed
        };
        // Under the lock, so that a thread that finds the flag set knows that the actor was woken already.
        let wake = lock(&self.wake);
        if !self.woken.swap(true, Ordering::AcqRel)
            && let Some(wake) = &*wake
        {
            wake();
        }
        changed
    }

    /// Adds a definition; an error if there is one with its key.
    pub(crate) fn add<T: Listable>(
        &self,
        server: &str,
        definition: T,
        state: Option<usize>,
        list: impl FnOnce(&mut Lists) -> &mut List<T>,
    ) -> Result<()> {
        definition.validate(server)?;
        // In an `Arc`, so that a refused definition is not dropped under the lock.
        let definition = Arc::new(definition);
        self.change(|lists| {
            let list = list(lists);
            if list.has(definition.key()) {
                let (kind, key) = (T::KIND, definition.key());
                return Err(Error::invalid_option(format!("server '{server}' has a {kind} '{key}' already"))
                    .with_help("remove it first"));
            }
            list.push(definition.clone(), state);
            Ok(())
        })
    }

    /// Removes a definition; false if there is none.
    pub(crate) fn remove<T: Listable>(
        &self,
        key: &str,
        list: impl FnOnce(&mut Lists) -> &mut List<T>,
    ) -> Result<bool> {
        let mut removed = None;
        self.change(|lists| {
            removed = list(lists).remove(key);
            Ok(removed.is_some())
        })
        // Dropped here, after the lock: its drop is code of the application.
    }

    /// Enables or disables a definition; false if nothing changed.
    pub(crate) fn enable<T: Listable>(
        &self,
        server: &str,
        key: &str,
        enabled: bool,
        list: impl FnOnce(&mut Lists) -> &mut List<T>,
    ) -> Result<bool> {
        self.change(|lists| {
            list(lists)
                .enable(key, enabled)
                .ok_or_else(|| Error::invalid_option(format!("server '{server}' has no {} '{key}'", T::KIND)))
        })
    }

    /// Sets the function that wakes the actor, in place of the one before.
    pub(crate) fn wake_with(&self, wake: impl Fn() + Send + Sync + 'static) {
        // In this order: a change after the flag is cleared wakes the new actor, and a change before is in the snapshot
        // that the new actor takes next.
        *lock(&self.wake) = Some(Box::new(wake));
        self.woken.store(false, Ordering::Release);
    }

    /// The current lists, for the woken actor.
    pub(crate) fn look(&self) -> Arc<Lists> {
        self.woken.store(false, Ordering::Release);
        self.snapshot()
    }

    /// A CLI meets the server, by a manifest or `initialize`, and knows these lists. It has set no
    /// log level yet.
    pub(crate) fn announce(&self, lists: &Lists) {
        *lock(&self.announced) = Some(lists.revisions());
        self.log_level.reset();
    }

    /// The revisions that the newest CLI was told when it met the server.
    pub(crate) fn announced(&self) -> Option<Revisions> {
        *lock(&self.announced)
    }

    /// Sets the current CLI; `None` when the server has ended.
    pub(crate) fn meet(&self, peer: Option<Arc<dyn Peer>>) {
        *lock(&self.peer) = peer;
    }

    pub(crate) fn peer(&self) -> Option<Arc<dyn Peer>> {
        lock(&self.peer).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::{NoArgs, ToolServer};

    #[test]
    fn a_change_returns_after_the_actor_was_woken() {
        let server: ToolServer = ToolServer::new("calc", "1").tool("add", "Adds", async |_: NoArgs| "");
        let registry = Arc::new(server.spec().registry.clone());
        registry.wake_with(|| {});
        // Like a thread that has set the flag and not called `wake` yet.
        let waking = lock(&registry.wake);
        registry.woken.store(true, Ordering::Release);
        let (say, said) = mpsc::channel();
        let other = registry.clone();
        let changing = std::thread::spawn(move || {
            other.enable("calc", "add", false, |lists| &mut lists.tools).unwrap();
            say.send(()).unwrap();
        });
        let early = said.recv_timeout(Duration::from_millis(50));
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "it went on while nobody was woken");
        drop(waking);
        said.recv().unwrap();
        changing.join().unwrap();
    }
}
