//! The conversation in a transcript: which entries belong to it, in which order.
//!
//! Entries are a tree: each names its parent. A prompt that was edited, a turn that was rewound and tools that ran at
//! once are branches of it. The conversation is the way from its newest leaf back to the root, with two amendments:
//!
//! - What a compaction has kept stands before its boundary in the file, and behind the summary in the conversation.
//! - An answer of the model is one entry for each of its blocks, and each tool result hangs at its own call. When tools ran
//!   at once, the way leads through one of them only; the others are put back beside it.

use std::collections::{HashMap, HashSet};

use super::entry::Link;

/// The conversation of a main transcript, as indices into it.
pub(crate) fn conversation(links: &[Link]) -> Vec<usize> {
    let tree = Tree::new(links);
    let Some(leaf) = tree.leaf() else { return Vec::new() };
    let chain = tree.way_to(leaf);
    tree.with_parallel_calls(chain)
}

/// The conversation of a subagent's transcript: it has one branch.
pub(crate) fn subagent(links: &[Link]) -> Vec<usize> {
    match links.iter().rposition(|link| link.is_linked() && link.is_said()) {
        Some(leaf) => Tree::new(links).way_to(leaf),
        None => Vec::new(),
    }
}

struct Tree<'a> {
    links: &'a [Link],
    /// Of an entry that stands twice, the last one.
    by_uuid: HashMap<&'a str, usize>,
    parents: HashMap<&'a str, &'a str>,
}

impl<'a> Tree<'a> {
    fn new(links: &'a [Link]) -> Self {
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

    /// Puts what a compaction has kept behind its anchor, and what stood there behind that.
    fn keep(&mut self, boundary: &'a Link) {
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

    /// The entries from here to the root, each once even if they name each other in a circle.
    fn upwards(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        let mut seen = HashSet::new();
        std::iter::successors(Some(from), |index| self.parent(*index))
            .take_while(move |index| seen.insert(*index))
    }

    fn way_to(&self, leaf: usize) -> Vec<usize> {
        let mut way: Vec<_> = self.upwards(leaf).collect();
        way.reverse();
        way
    }

    /// The newest thing that was said and is not gone on from; on the main thread, if there is one.
    fn leaf(&self) -> Option<usize> {
        let with_children: HashSet<&str> = self.parents.values().copied().collect();
        let ends = self.by_uuid.iter().filter(|(uuid, _)| !with_children.contains(**uuid));
        let leaves: Vec<usize> = ends
            .filter_map(|(_, index)| self.upwards(*index).find(|index| self.links[*index].is_said()))
            .collect();
        let main = |index: &usize| {
            let link = &self.links[*index];
            !link.is_sidechain && link.team_name.is_none() && !link.is_meta
        };
        leaves.iter().copied().filter(main).max().or_else(|| leaves.iter().copied().max())
    }

    /// Puts back those calls, and results of calls, that the way did not lead through.
    fn with_parallel_calls(&self, chain: Vec<usize>) -> Vec<usize> {
        let links = self.links;
        // Where each answer of the model ends on the way.
        let mut ends: HashMap<&str, usize> = HashMap::new();
        for index in &chain {
            if let Some(response) = links[*index].response() {
                ends.insert(response, *index);
            }
        }
        let mut on_chain: HashSet<usize> = chain.iter().copied().collect();
        let mut answered: HashSet<&str> =
            chain.iter().flat_map(|index| links[*index].answered_calls()).collect();
        // Who made each call; none if two answers claim it.
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
            // Calls before results, and each in the order of their time.
            indices.sort_by_key(|index| (links[*index].is_tool_result(), &links[*index].timestamp, *index));
            inserted.insert(ends[response], indices);
        }
        chain
            .into_iter()
            .flat_map(|index| std::iter::once(index).chain(inserted.remove(&index).unwrap_or_default()))
            .collect()
    }
}

fn same_writer(one: &Link, other: &Link) -> bool {
    one.is_sidechain == other.is_sidechain && one.agent_id == other.agent_id
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn link(value: &Value) -> Link {
        Link::read(&value.to_string()).unwrap()
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

    fn uuids(entries: &[Value], chain: fn(&[Link]) -> Vec<usize>) -> String {
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
    fn a_newer_branch_of_a_subagent_or_without_a_person_is_not() {
        let entries = [
            said("user", "a", ""),
            said("assistant", "b", "a"),
            with(said("user", "s", "a"), json!({"isSidechain": true})),
            with(said("user", "m", "a"), json!({"isMeta": true})),
            with(said("user", "t", "a"), json!({"teamName": "x"})),
        ];
        assert_eq!(uuids(&entries, conversation), "a b");
        assert_eq!(uuids(&entries[2..3], conversation), "s", "there is nothing else");
    }

    #[test]
    fn tools_that_ran_at_once_are_all_there() {
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
    fn a_result_with_another_parent_is_put_back_only_if_its_call_has_no_other() {
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
    fn what_a_compaction_has_kept_follows_its_summary() {
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
        fn nothing_comes_twice_and_everything_ends_whatever_the_links_say(
            entries in proptest::collection::vec((0..5usize, 0..8u8, 0..8u8, 0..3u8, 0..4u8), 0..24),
        ) {
            let kinds = ["user", "assistant", "system", "attachment", "progress"];
            let links: Vec<Link> = entries
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
            let said = links.iter().any(Link::is_said);
            prop_assert!(said || conversation(&links).is_empty());
        }
    }
}
