//! The conversation in a transcript: which entries belong to it, and in which order.
//!
//! Entries form a tree, because each names its parent. Edited prompts, rewound turns and parallel tool calls are
//! branches. The conversation is the path from the root to the newest leaf, with two corrections:
//!
//! - Messages that a compaction keeps are before its boundary in the file, but after its summary in the conversation.
//! - An answer of the model is one entry for each of its blocks, and each tool result is a child of its own call. With
//!   parallel calls the path contains only one of them; the others are inserted next to it.

use std::collections::{HashMap, HashSet};

use super::link::EntryLink;

/// The conversation of a main transcript, as indices of entries.
fn conversation(links: &[EntryLink]) -> Vec<usize> {
    let tree = Tree::new(links);
    let Some(leaf) = tree.leaf() else { return Vec::new() };
    let chain = tree.path_to(leaf);
    tree.with_parallel_calls(chain)
}

/// The conversation of a subagent's transcript, which has one branch.
fn subagent(links: &[EntryLink]) -> Vec<usize> {
    match links.iter().rposition(|link| link.is_linked() && link.is_user_or_assistant()) {
        Some(leaf) => Tree::new(links).path_to(leaf),
        None => Vec::new(),
    }
}

/// The messages of a conversation that a reader sees.
pub(crate) fn visible(links: &[EntryLink], system: bool) -> Vec<usize> {
    let mut chain = conversation(links);
    chain.retain(|index| {
        let link = &links[*index];
        let kind = link.is_user_or_assistant() || (system && link.kind == "system");
        kind && !link.is_meta && !link.is_sidechain && link.team_name.is_none()
    });
    chain
}

/// The messages of a subagent's conversation that a reader sees.
pub(crate) fn visible_of_subagent(links: &[EntryLink]) -> Vec<usize> {
    let mut chain = subagent(links);
    chain.retain(|index| links[*index].is_user_or_assistant());
    chain
}

struct Tree<'a> {
    links: &'a [EntryLink],
    /// For a duplicate uuid, the index of the last entry.
    by_uuid: HashMap<&'a str, usize>,
    parents: HashMap<&'a str, &'a str>,
}

impl<'a> Tree<'a> {
    fn new(links: &'a [EntryLink]) -> Self {
        let linked = || links.iter().enumerate().filter(|(_, link)| link.is_linked());
        let by_uuid: HashMap<_, _> = linked().map(|(index, link)| (link.uuid.as_str(), index)).collect();
        let parents = by_uuid
            .iter()
            .filter_map(|(uuid, index)| Some((*uuid, links[*index].parent_uuid.as_deref()?)))
            .filter(|(_, parent)| !parent.is_empty())
            .collect();
        let mut tree = Self { links, by_uuid, parents };
        for (index, link) in linked().filter(|(_, link)| link.is_boundary()) {
            if tree.by_uuid[link.uuid.as_str()] == index {
                tree.keep(link);
            }
        }
        tree
    }

    /// Moves the messages that a compaction keeps behind their anchor, and the anchor's children behind them.
    fn keep(&mut self, boundary: &'a EntryLink) {
        let (anchor, first, last);
        if let Some(kept) = &boundary.compact_metadata.preserved_messages {
            let (Some(head), Some(tail)) = (kept.uuids.first(), kept.uuids.last()) else { return };
            if !kept.uuids.iter().all(|uuid| self.by_uuid.contains_key(uuid.as_str())) {
                return;
            }
            let parents = std::iter::once(&kept.anchor_uuid).chain(&kept.uuids);
            for (uuid, parent) in kept.uuids.iter().zip(parents) {
                self.parents.insert(uuid, parent);
            }
            (anchor, first, last) = (kept.anchor_uuid.as_str(), head.as_str(), tail.as_str());
        } else if let Some(kept) = &boundary.compact_metadata.preserved_segment {
            if !self.by_uuid.contains_key(kept.head_uuid.as_str()) {
                return;
            }
            self.parents.insert(&kept.head_uuid, &kept.anchor_uuid);
            (anchor, first, last) =
                (kept.anchor_uuid.as_str(), kept.head_uuid.as_str(), kept.tail_uuid.as_str());
        } else {
            return;
        }
        for (uuid, parent) in &mut self.parents {
            if *parent == anchor && *uuid != first && *uuid != last {
                *parent = last;
            }
        }
    }

    fn parent(&self, index: usize) -> Option<usize> {
        self.by_uuid.get(self.parents.get(self.links[index].uuid.as_str())?).copied()
    }

    /// The entries from here to the root, without repeats even if the parents form a circle.
    fn upwards(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        let mut seen = HashSet::new();
        std::iter::successors(Some(from), |index| self.parent(*index))
            .take_while(move |index| seen.insert(*index))
    }

    fn path_to(&self, leaf: usize) -> Vec<usize> {
        let mut path: Vec<_> = self.upwards(leaf).collect();
        path.reverse();
        path
    }

    /// The newest message without a message after it; preferably one on the main thread.
    fn leaf(&self) -> Option<usize> {
        let with_children: HashSet<&str> = self.parents.values().copied().collect();
        let ends = self.by_uuid.iter().filter(|(uuid, _)| !with_children.contains(**uuid));
        let leaves: Vec<usize> = ends
            .filter_map(|(_, index)| {
                self.upwards(*index).find(|index| self.links[*index].is_user_or_assistant())
            })
            .collect();
        let main = |index: &usize| {
            let link = &self.links[*index];
            !link.is_sidechain && link.team_name.is_none() && !link.is_meta
        };
        leaves.iter().copied().filter(main).max().or_else(|| leaves.iter().copied().max())
    }

    /// Inserts parallel calls, and their results, that are not on the path.
    fn with_parallel_calls(&self, chain: Vec<usize>) -> Vec<usize> {
        let links = self.links;
        // The last entry of each answer of the model on the path.
        let mut ends: HashMap<&str, usize> = HashMap::new();
        for index in &chain {
            if let Some(response) = links[*index].response() {
                ends.insert(response, *index);
            }
        }
        let mut on_chain: HashSet<usize> = chain.iter().copied().collect();
        let mut answered: HashSet<&str> =
            chain.iter().flat_map(|index| links[*index].answered_calls()).collect();
        // The entry that made each call; `None` if two answers claim the call.
        let mut callers: HashMap<&str, Option<usize>> = HashMap::new();
        let mut left_out: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut indices: Vec<usize> = self.by_uuid.values().copied().collect();
        indices.sort_unstable();
        for index in &indices {
            let Some(response) = links[*index].response() else { continue };
            for call in links[*index].calls() {
                let caller = callers.entry(call).or_insert(Some(*index));
                if caller.is_some_and(|other| links[other].response() != Some(response)) {
                    *caller = None;
                }
            }
            if ends.contains_key(response) && on_chain.insert(*index) {
                left_out.entry(response).or_default().push(*index);
            }
        }
        for index in indices {
            let link = &links[index];
            if !link.is_tool_result() || on_chain.contains(&index) {
                continue;
            }
            let by_parent = self.parent(index).filter(|parent| links[*parent].response().is_some());
            let answers_open = || {
                let open = link.answered_calls().filter(|call| !answered.contains(call));
                let source = link.source_tool_assistant.as_deref().and_then(|uuid| self.by_uuid.get(uuid));
                open.filter_map(|call| callers.get(call).copied().flatten().or(source.copied())).find(
                    |caller| {
                        let caller = &links[*caller];
                        link.is_sidechain == caller.is_sidechain && link.agent_id == caller.agent_id
                    },
                )
            };
            let Some(caller) = by_parent.or_else(answers_open) else { continue };
            let Some(response) = links[caller].response().filter(|response| ends.contains_key(response))
            else {
                continue;
            };
            answered.extend(link.answered_calls());
            on_chain.insert(index);
            left_out.entry(response).or_default().push(index);
        }
        let mut inserted: HashMap<usize, Vec<usize>> = HashMap::new();
        for (response, mut indices) in left_out {
            // Calls before results, each ordered by time.
            indices.sort_by_key(|index| (links[*index].is_tool_result(), &links[*index].timestamp, *index));
            inserted.insert(ends[response], indices);
        }
        chain
            .into_iter()
            .flat_map(|index| std::iter::once(index).chain(inserted.remove(&index).unwrap_or_default()))
            .collect()
    }
}
