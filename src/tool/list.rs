//! A list of a server's definitions.

use std::sync::Arc;

use serde_json::{Map, Value, json};

pub(crate) use super::define::about::Listable;
use crate::error::{Error, Result};

/// A list of definitions, in the order in which they were added.
#[derive(Clone)]
pub(crate) struct List<T> {
    items: Vec<ListItem<T>>,
    /// Number of changes so far.
    pub(super) revision: u64,
    /// Default `_meta` of every item.
    pub(crate) meta: Map<String, Value>,
}

/// A definition in a list.
#[derive(Clone)]
pub(crate) struct ListItem<T> {
    pub(crate) enabled: bool,
    /// Index of the server's state that the handler gets; `None` until it is bound, and always for `()`.
    pub(crate) state: Option<usize>,
    pub(crate) definition: Arc<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { items: Vec::new(), revision: 0, meta: Map::new() }
    }
}

impl<T: Listable> List<T> {
    pub(crate) fn push(&mut self, definition: Arc<T>, state: Option<usize>) {
        self.items.push(ListItem { enabled: true, state, definition });
        self.revision += 1;
    }

    pub(super) fn bind(&mut self, index: usize) {
        for item in self.iter_mut() {
            item.state = item.state.or(Some(index));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ListItem<T>> + Clone {
        self.items.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ListItem<T>> {
        self.items.iter_mut()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.items.iter().any(|item| item.definition.key() == key)
    }

    /// The enabled items.
    pub(crate) fn enabled(&self) -> impl Iterator<Item = &ListItem<T>> {
        self.items.iter().filter(|item| item.enabled)
    }

    /// The item with this name or URI, if it is enabled.
    pub(crate) fn get(&self, key: &str) -> Option<&ListItem<T>> {
        self.enabled().find(|item| item.definition.key() == key)
    }

    /// Removes an item.
    pub(super) fn remove(&mut self, key: &str) -> Option<ListItem<T>> {
        let at = self.items.iter().position(|item| item.definition.key() == key)?;
        self.revision += 1;
        Some(self.items.remove(at))
    }

    /// Enables or disables an item. Returns whether that changed anything; `None` if there is no such item.
    pub(super) fn enable(&mut self, key: &str, enabled: bool) -> Option<bool> {
        let item = self.items.iter_mut().find(|item| item.definition.key() == key)?;
        let changed = std::mem::replace(&mut item.enabled, enabled) != enabled;
        self.revision += u64::from(changed);
        Some(changed)
    }

    pub(super) fn validate(&self, server: &str) -> Result<()> {
        for (index, item) in self.items.iter().enumerate() {
            item.definition.validate(server)?;
            let key = item.definition.key();
            if self.items[..index].iter().any(|other| other.definition.key() == key) {
                let kind = T::KIND;
                return Err(Error::invalid_option(format!("server '{server}' has two {kind}s '{key}'"))
                    .with_help(
                        "rename one of them, or remove it: a second definition does not replace the first",
                    ));
            }
        }
        Ok(())
    }

    fn listed(&self, item: &ListItem<T>) -> Value {
        let mut listed = item.definition.listed();
        for (key, value) in &self.meta {
            let meta = &mut listed["_meta"][key];
            if meta.is_null() {
                *meta = value.clone();
            }
        }
        listed
    }

    /// The enabled items, as the result of a request for the list.
    pub(crate) fn to_wire(&self) -> Value {
        let items: Vec<_> = self.enabled().map(|item| self.listed(item)).collect();
        json!({ T::FIELD: items })
    }
}
