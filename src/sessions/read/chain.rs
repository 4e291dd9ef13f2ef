//! The conversation in a transcript: which entries belong to it, and in which order.
//!
//! Entries form a tree, because each names its parent. Edited prompts, rewound turns and parallel tool calls are branches.
//! The conversation is the path from the root to the newest leaf, with two corrections:
//!
//! - Messages that a compaction keeps are before its boundary in the file, but after its summary in the conversation.
//! - An answer of the model is one entry for each of its blocks, and each tool result is a child of its own call. With
//!   parallel calls the path contains only one of them; the others are inserted next to it.

use std::collections::{HashMap, HashSet};

use super::entry::EntryLink;

/// The conversation of a main transcript, as indices of entries.
pub(crate) fn conversation(links: &[EntryLink]) -> Vec<usize> {
    let tree = Tree::new(links);
    let Some(leaf) = tree.leaf() else { return Vec::new() };
    let chain = tree.path_to(leaf);
    tree.with_parallel_calls(chain)
}

/// The conversation of a subagent's transcript, which has one branch.
pub(crate) fn subagent(links: &[EntryLink]) -> Vec<usize> {
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
                open.filter_map(|call| callers.get(call).copied().flatten().or(source.copied()))
                    .find(|caller| same_writer(link, &links[*caller]))
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

fn same_writer(one: &EntryLink, other: &EntryLink) -> bool {
    one.is_sidechain == other.is_sidechain && one.agent_id == other.agent_id
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn link(value: &Value) -> EntryLink {
        EntryLink::read(&value.to_string()).unwrap()
    }

    fn said(kind: &str, uuid: &str, parent: &str) -> Value {
        json!({"type": kind, "uuid": uuid, "parentUuid": if parent.is_empty() { None } else { Some(parent) }})
    }

    fn with(mut value: Value, more: Value) -> Value {
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        value
    }

    fn call(uuid: &str, parent: &str, response: &str, call: &str) -> Value {
        let content = json!([{"type": "tool_use", "id": call}]);
        with(said("assistant", uuid, parent), json!({"message": {"id": response, "content": content}}))
    }

    fn result(uuid: &str, parent: &str, call: &str) -> Value {
        let content = json!([{"type": "tool_result", "tool_use_id": call}]);
        with(said("user", uuid, parent), json!({"message": {"content": content}}))
    }

    fn uuids(entries: &[Value], chain: fn(&[EntryLink]) -> Vec<usize>) -> String {
        let links: Vec<_> = entries.iter().map(link).collect();
        chain(&links).into_iter().map(|index| links[index].uuid.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_newest_branch_is_the_conversation() {
        let entries = [
            said("user", "a", ""),
            said("assistant", "b", "a"),
            said("user", "old", "b"),
            said("assistant", "old2", "old"),
            said("user", "c", "b"),
            said("attachment", "x", "c"),
            said("assistant", "d", "x"),
            said("attachment", "y", "d"),
        ];
        assert_eq!(uuids(&entries, conversation), "a b c x d");
    }

    #[test]
    fn branches_of_subagents_teams_and_meta_messages_are_left_out() {
        let entries = [
            said("user", "a", ""),
            said("assistant", "b", "a"),
            with(said("user", "s", "a"), json!({"isSidechain": true})),
            with(said("user", "m", "a"), json!({"isMeta": true})),
            with(said("user", "t", "a"), json!({"teamName": "x"})),
        ];
        assert_eq!(uuids(&entries, conversation), "a b");
        assert_eq!(uuids(&entries[2..3], conversation), "s", "used if there is no other");
    }

    #[test]
    fn all_parallel_tool_calls_are_in_the_conversation() {
        let entries = [
            said("user", "a", ""),
            call("c1", "a", "m", "t1"),
            call("c2", "c1", "m", "t2"),
            call("c3", "c2", "m", "t3"),
            result("r2", "c2", "t2"),
            result("r1", "c1", "t1"),
            result("r3", "c3", "t3"),
            said("assistant", "z", "r1"),
        ];
        assert_eq!(uuids(&entries, conversation), "a c1 c2 c3 r2 r3 r1 z");
    }

    #[test]
    fn a_stray_result_is_inserted_only_for_an_unanswered_call() {
        let stray = |uuid: &str, call: &str| with(result(uuid, "a", call), json!({}));
        let mut entries = vec![
            said("user", "a", ""),
            call("c1", "a", "m", "t1"),
            call("c2", "c1", "m", "t2"),
            result("r2", "c2", "t2"),
            stray("s1", "t1"),
            stray("again", "t1"),
            stray("s2", "t2"),
            said("assistant", "z", "r2"),
        ];
        assert_eq!(uuids(&entries, conversation), "a c1 c2 s1 r2 z");
        entries.push(call("d1", "x", "other", "t1"));
        entries.push(said("user", "y", "z"));
        assert_eq!(uuids(&entries, conversation), "a c1 c2 r2 z y", "two answers claim the call");
    }

    #[test]
    fn messages_kept_by_a_compaction_follow_its_summary() {
        let boundary = |kept: Value| {
            let boundary = with(said("system", "B", ""), json!({"subtype": "compact_boundary"}));
            with(boundary, json!({"compactMetadata": kept}))
        };
        let entries = |kept: Value| {
            [
                said("user", "a", ""),
                said("assistant", "b", "a"),
                said("user", "k1", "b"),
                said("assistant", "k2", "k1"),
                boundary(kept),
                said("user", "S", "B"),
                said("user", "n", "S"),
                said("assistant", "o", "n"),
            ]
        };
        assert_eq!(uuids(&entries(json!({})), conversation), "B S n o");
        let messages = json!({"preservedMessages": {"anchorUuid": "S", "uuids": ["k1", "k2"]}});
        assert_eq!(uuids(&entries(messages), conversation), "B S k1 k2 n o");
        let segment = json!({"preservedSegment": {"headUuid": "k1", "anchorUuid": "S", "tailUuid": "k2"}});
        assert_eq!(uuids(&entries(segment), conversation), "B S k1 k2 n o");
        let gone = json!({"preservedMessages": {"anchorUuid": "S", "uuids": ["k1", "gone"]}});
        assert_eq!(uuids(&entries(gone), conversation), "B S n o");
    }

    #[test]
    fn a_subagent_has_one_branch() {
        let entries = [said("user", "a", ""), said("assistant", "b", "a"), said("system", "s", "b")];
        assert_eq!(uuids(&entries, subagent), "a b");
        assert_eq!(uuids(&[], subagent), "");
    }

    proptest! {
        #[test]
        fn any_links_give_a_finite_conversation_without_repeats(
            entries in proptest::collection::vec((0..5usize, 0..8u8, 0..8u8, 0..3u8, 0..4u8), 0..24),
        ) {
            let kinds = ["user", "assistant", "system", "attachment", "progress"];
            let links: Vec<EntryLink> = entries
                .iter()
                .map(|(kind, uuid, parent, response, tool)| {
                    let block = json!({"type": if *kind == 0 { "tool_result" } else { "tool_use" },
                        "id": format!("t{tool}"), "tool_use_id": format!("t{tool}")});
                    link(&json!({"type": kinds[*kind], "uuid": format!("{uuid}"), "parentUuid": format!("{parent}"),
                        "subtype": "compact_boundary", "message": {"id": format!("m{response}"), "content": [block]},
                        "compactMetadata": {"preservedMessages":
                            {"anchorUuid": format!("{parent}"), "uuids": [format!("{response}"), format!("{tool}")]}}}))
                })
                .collect();
            for chain in [conversation(&links), subagent(&links)] {
                let mut once = chain.clone();
                once.sort_unstable();
                once.dedup();
                prop_assert_eq!(once.len(), chain.len());
            }
            let said = links.iter().any(EntryLink::is_user_or_assistant);
            prop_assert!(said || conversation(&links).is_empty());
        }
    }
}
