//! A list of a server's definitions, with pages and cursors.

use std::sync::Arc;

use serde_json::{Map, Value, json};

pub(crate) use super::define::about::Listable;
use crate::error::{Error, Result};
use crate::wire::brief::Short;
use crate::wire::rpc::RpcError;

/// A list of definitions, in the order in which they were added.
#[derive(Clone)]
pub(crate) struct List<T> {
    items: Vec<ListItem<T>>,
    next: u64,
    /// Number of changes so far.
    pub(super) revision: u64,
    /// Default `_meta` of every item.
    pub(crate) meta: Map<String, Value>,
}

/// A definition in a list.
#[derive(Clone)]
pub(crate) struct ListItem<T> {
    /// Names the item in cursors; never reused.
    position: u64,
    pub(crate) enabled: bool,
    /// Index of the server's state that the handler gets; `None` until it is bound, and always for `()`.
    pub(crate) state: Option<usize>,
    pub(crate) definition: Arc<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { items: Vec::new(), next: 1, revision: 0, meta: Map::new() }
    }
}

impl<T: Listable> List<T> {
    pub(crate) fn push(&mut self, definition: Arc<T>, state: Option<usize>) {
        self.items.push(ListItem { position: self.next, enabled: true, state, definition });
        self.next += 1;
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

    /// A page of enabled items, after the item that `cursor` names. Cursors survive changes of the list: an item that
    /// is there all the time is on exactly one page.
    pub(crate) fn page(&self, cursor: Option<&str>, size: Option<usize>) -> Result<Value, RpcError> {
        let after = match cursor {
            None => 0,
            Some(cursor) => cursor
                .strip_prefix(T::FIELD)
                .and_then(|rest| rest.strip_prefix(':'))
                .and_then(|position| position.parse::<u64>().ok())
                .filter(|position| (1..self.next).contains(position))
                .ok_or_else(|| {
                    RpcError::invalid_params(format!("'{}' is no cursor of this list", Short(cursor)))
                })?,
        };
        let mut rest = self.enabled().filter(|item| item.position > after).peekable();
        let page: Vec<&ListItem<T>> = rest.by_ref().take(size.unwrap_or(usize::MAX)).collect();
        let mut result = Map::new();
        result.insert(T::FIELD.into(), page.iter().map(|item| self.listed(item)).collect());
        if let (Some(last), Some(_)) = (page.last(), rest.peek()) {
            result.insert("nextCursor".into(), json!(format!("{}:{}", T::FIELD, last.position)));
        }
        Ok(Value::Object(result))
    }
}
