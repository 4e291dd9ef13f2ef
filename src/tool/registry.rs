//! What a server offers at this moment: its tools, resources, resource templates and prompts.
//!
//! A [`Registry`] belongs to one server in one session. It outlives the server's actor and the CLI, so what was changed at
//! run time is still there after a restart of either. The actor works on a snapshot ([`Lists`]) and takes a new one when
//! it is woken, so that a tool call takes no lock; whoever changes the lists wakes it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use super::context::LevelFilter;
use super::def::Definition;
use super::peer::Peer;
use super::prompt::PromptDefinition;
use super::resource::{ResourceDefinition, TemplateDefinition};
use crate::error::{Error, Result};
use crate::wire::rpc::RpcError;

/// What can be listed.
pub(crate) trait Listed: Clone {
    /// For people: `tool`.
    const KIND: &'static str;
    /// The field of the list in its result: `tools`.
    const FIELD: &'static str;

    /// What tells it from the others: its name, or its URI.
    fn key(&self) -> &str;

    /// Its entry in the list.
    fn listed(&self) -> Value;

    fn validate(&self, server: &str) -> Result<()>;
}

/// One list, in the order in which things were added.
#[derive(Clone)]
pub(crate) struct List<T> {
    entries: Vec<Entry<T>>,
    next: u64,
    /// Counts the changes.
    revision: u64,
    /// What the `_meta` of each entry has that does not say otherwise.
    pub(crate) meta: Map<String, Value>,
}

/// One thing in a list.
#[derive(Clone)]
pub(crate) struct Entry<T> {
    /// Where it stands; never used again.
    place: u64,
    pub(crate) enabled: bool,
    /// Which of the server's states is handed to its handler; `None` until that is known, or for ever for `()`.
    pub(crate) state: Option<usize>,
    pub(crate) definition: Arc<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), next: 1, revision: 0, meta: Map::new() }
    }
}

impl<T: Listed> List<T> {
    pub(crate) fn push(&mut self, definition: Arc<T>, state: Option<usize>) {
        self.entries.push(Entry { place: self.next, enabled: true, state, definition });
        self.next += 1;
        self.revision += 1;
    }

    fn bind(&mut self, index: usize) {
        for entry in self.iter_mut() {
            entry.state = entry.state.or(Some(index));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<T>> + Clone {
        self.entries.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.entries.iter_mut()
    }

    fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.definition.key() == key)
    }

    /// What is enabled.
    pub(crate) fn enabled(&self) -> impl Iterator<Item = &Entry<T>> {
        self.entries.iter().filter(|entry| entry.enabled)
    }

    /// The one of this name or URI, if it is enabled.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry<T>> {
        self.enabled().find(|entry| entry.definition.key() == key)
    }

    /// Takes one out, if it is there.
    fn remove(&mut self, key: &str) -> Option<Entry<T>> {
        let at = self.entries.iter().position(|entry| entry.definition.key() == key)?;
        self.revision += 1;
        Some(self.entries.remove(at))
    }

    /// Enables or disables one; `None` if it is not there, else whether that changed anything.
    fn enable(&mut self, key: &str, enabled: bool) -> Option<bool> {
        let entry = self.entries.iter_mut().find(|entry| entry.definition.key() == key)?;
        let changed = std::mem::replace(&mut entry.enabled, enabled) != enabled;
        self.revision += u64::from(changed);
        Some(changed)
    }

    fn validate(&self, server: &str) -> Result<()> {
        for (index, entry) in self.entries.iter().enumerate() {
            entry.definition.validate(server)?;
            let key = entry.definition.key();
            if self.entries[..index].iter().any(|other| other.definition.key() == key) {
                let kind = T::KIND;
                return Err(Error::invalid_option(format!("server '{server}' has two {kind}s '{key}'")));
            }
        }
        Ok(())
    }

    fn listed(&self, entry: &Entry<T>) -> Value {
        let mut listed = entry.definition.listed();
        for (key, value) in &self.meta {
            let meta = &mut listed["_meta"][key];
            if meta.is_null() {
                *meta = value.clone();
            }
        }
        listed
    }

    /// One page of what is enabled, after the thing that `cursor` names. A cursor survives changes of the list: what was
    /// there all the time is on exactly one page.
    pub(crate) fn page(&self, cursor: Option<&str>, size: Option<usize>) -> Result<Value, RpcError> {
        let after = match cursor {
            None => 0,
            Some(cursor) => cursor
                .strip_prefix(T::FIELD)
                .and_then(|rest| rest.strip_prefix(':'))
                .and_then(|place| place.parse::<u64>().ok())
                .filter(|place| (1..self.next).contains(place))
                .ok_or_else(|| RpcError::invalid_params(format!("'{cursor}' is no cursor of this list")))?,
        };
        let mut rest = self.enabled().filter(|entry| entry.place > after).peekable();
        let page: Vec<&Entry<T>> = rest.by_ref().take(size.unwrap_or(usize::MAX)).collect();
        let mut result = Map::new();
        result.insert(T::FIELD.into(), page.iter().map(|entry| self.listed(entry)).collect());
        if let (Some(last), Some(_)) = (page.last(), rest.peek()) {
            result.insert("nextCursor".into(), json!(format!("{}:{}", T::FIELD, last.place)));
        }
        Ok(Value::Object(result))
    }
}

/// All lists of a server.
#[derive(Clone, Default)]
pub(crate) struct Lists {
    pub(crate) tools: List<Definition>,
    pub(crate) resources: List<ResourceDefinition>,
    pub(crate) templates: List<TemplateDefinition>,
    pub(crate) prompts: List<PromptDefinition>,
    /// Whether resources are offered though there may be none yet.
    pub(crate) resources_to_come: bool,
    /// The same for prompts.
    pub(crate) prompts_to_come: bool,
}

/// Counts the changes of each list that has a notification of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Revisions {
    tools: u64,
    resources: u64,
    prompts: u64,
}

impl Lists {
    /// Whether nothing is offered.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
            && self.resources.is_empty()
            && self.templates.is_empty()
            && self.prompts.is_empty()
    }

    pub(crate) fn validate(&self, server: &str) -> Result<()> {
        self.tools.validate(server)?;
        self.resources.validate(server)?;
        self.templates.validate(server)?;
        self.prompts.validate(server)
    }

    pub(crate) fn revisions(&self) -> Revisions {
        Revisions {
            tools: self.tools.revision,
            resources: self.resources.revision + self.templates.revision,
            prompts: self.prompts.revision,
        }
    }

    pub(crate) fn offers_resources(&self) -> bool {
        self.resources_to_come || !self.resources.is_empty() || !self.templates.is_empty()
    }

    pub(crate) fn offers_prompts(&self) -> bool {
        self.prompts_to_come || !self.prompts.is_empty()
    }

    pub(crate) fn offers_completions(&self) -> bool {
        self.prompts.iter().any(|prompt| !prompt.definition.completers.is_empty())
            || self.templates.iter().any(|template| !template.definition.completers.is_empty())
    }

    /// What is offered, for `initialize`.
    pub(crate) fn capabilities(&self) -> Value {
        let mut capabilities = json!({ "logging": {}, "tools": { "listChanged": true } });
        if self.offers_resources() {
            capabilities["resources"] = json!({ "subscribe": true, "listChanged": true });
        }
        if self.offers_prompts() {
            capabilities["prompts"] = json!({ "listChanged": true });
        }
        if self.offers_completions() {
            capabilities["completions"] = json!({});
        }
        capabilities
    }

    /// Gives what has no state yet the state with this index.
    pub(crate) fn bind(&mut self, index: usize) {
        self.tools.bind(index);
        self.resources.bind(index);
        self.templates.bind(index);
        self.prompts.bind(index);
    }
}

impl Revisions {
    /// The notifications that are due to one who knows only `known`.
    pub(crate) fn news_since(&self, known: &Revisions) -> impl Iterator<Item = &'static str> {
        [
            (self.tools != known.tools).then_some("notifications/tools/list_changed"),
            (self.resources != known.resources).then_some("notifications/resources/list_changed"),
            (self.prompts != known.prompts).then_some("notifications/prompts/list_changed"),
        ]
        .into_iter()
        .flatten()
    }
}

type Wake = Box<dyn Fn() + Send + Sync>;

/// The lists of one server in one session, and who has to know when they change.
#[derive(Default)]
pub(crate) struct Registry {
    lists: Mutex<Arc<Lists>>,
    /// Whether the actor was woken and has not looked yet. It bounds what waits in its mailbox.
    woken: AtomicBool,
    wake: Mutex<Option<Wake>>,
    /// Set by the CLI once, and not again after a restart of the server.
    pub(crate) log_level: Arc<LevelFilter>,
    /// What the newest CLI was told when it met the server, if it has.
    announced: Mutex<Option<Revisions>>,
    /// The CLI of the moment.
    peer: Mutex<Option<Arc<dyn Peer>>>,
    subscriptions: Mutex<HashSet<String>>,
}

impl Clone for Registry {
    /// The same lists, for another session.
    fn clone(&self) -> Self {
        Self { lists: Mutex::new(self.snapshot()), ..Self::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// The lists of this moment.
    pub(crate) fn snapshot(&self) -> Arc<Lists> {
        lock(&self.lists).clone()
    }

    /// The lists, while nobody else has them.
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
        // Under the lock: whoever finds the flag set may rely on it that the actor is woken, and not about to be.
        let wake = lock(&self.wake);
        if !self.woken.swap(true, Ordering::AcqRel)
            && let Some(wake) = &*wake
        {
            wake();
        }
        changed
    }

    /// Adds something that is not there yet.
    pub(crate) fn add<T: Listed>(
        &self,
        server: &str,
        definition: T,
        state: Option<usize>,
        list: impl FnOnce(&mut Lists) -> &mut List<T>,
    ) -> Result<()> {
        definition.validate(server)?;
        // One that is refused is not dropped under the lock.
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

    /// Takes something out; false if it is not there.
    pub(crate) fn remove<T: Listed>(
        &self,
        key: &str,
        list: impl FnOnce(&mut Lists) -> &mut List<T>,
    ) -> Result<bool> {
        let mut removed = None;
        self.change(|lists| {
            removed = list(lists).remove(key);
            Ok(removed.is_some())
        })
        // And then it is dropped: its drop is code of the application, for which the actor must not wait at the lock.
    }

    /// Enables or disables something; false if it was so already.
    pub(crate) fn enable<T: Listed>(
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

    /// From now on this is called when the lists have changed, instead of whatever was called before.
    pub(crate) fn wake_with(&self, wake: impl Fn() + Send + Sync + 'static) {
        // In this order: whoever changes the lists after the flag is cleared wakes the new one, and whoever changed them
        // before is seen by the snapshot that comes after this.
        *lock(&self.wake) = Some(Box::new(wake));
        self.woken.store(false, Ordering::Release);
    }

    /// The lists of this moment, for the one who was woken.
    pub(crate) fn look(&self) -> Arc<Lists> {
        self.woken.store(false, Ordering::Release);
        self.snapshot()
    }

    /// A CLI meets the server, in a manifest or with `initialize`: it is told these lists, or asks for them next, and has
    /// subscribed to nothing, nor set a log level.
    pub(crate) fn announce(&self, lists: &Lists) {
        *lock(&self.announced) = Some(lists.revisions());
        lock(&self.subscriptions).clear();
        self.log_level.reset();
    }

    /// What the newest CLI was told when it met the server, if it has.
    pub(crate) fn announced(&self) -> Option<Revisions> {
        *lock(&self.announced)
    }

    /// A CLI that can be spoken to.
    pub(crate) fn meet(&self, peer: Arc<dyn Peer>) {
        *lock(&self.peer) = Some(peer);
    }

    pub(crate) fn peer(&self) -> Option<Arc<dyn Peer>> {
        lock(&self.peer).clone()
    }

    /// Notes a subscription; false if there are too many.
    pub(crate) fn subscribe(&self, uri: &str, most: usize) -> bool {
        let mut subscriptions = lock(&self.subscriptions);
        if subscriptions.len() >= most && !subscriptions.contains(uri) {
            return false;
        }
        subscriptions.insert(uri.to_owned());
        true
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        lock(&self.subscriptions).remove(uri);
    }

    pub(crate) fn is_subscribed(&self, uri: &str) -> bool {
        lock(&self.subscriptions).contains(uri)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::tool::{NoArgs, ToolServer};

    #[test]
    fn whoever_has_changed_the_lists_finds_the_actor_woken() {
        let server: ToolServer = ToolServer::new("calc", "1").tool("add", "Adds", async |_: NoArgs| "");
        let registry = Arc::new(server.spec().registry.clone());
        registry.wake_with(|| {});
        // As one who has set the flag and has not called yet.
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
