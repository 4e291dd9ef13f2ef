//! An incomplete message and its blocks.

use super::delta::DeltaKind;
use crate::wire::message::{ApiEvent, AssistantMessage, BlockDelta, ContentBlock, StreamEvent, Typed};

/// A message that the model is still writing.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialMessage {
    /// The API's id, if known.
    pub(super) id: Option<String>,
    /// Stop reason, once known.
    stop_reason: Option<String>,
    blocks: Vec<PartialBlock>,
    started: bool,
    complete: bool,
    /// Partial messages are missing, so a new block may have started earlier than it seems.
    gap: bool,
}

/// A block of a [`PartialMessage`].
#[derive(Clone, Debug, Default)]
struct PartialBlock {
    /// The block as it started, or the complete block.
    block: Option<ContentBlock>,
    /// The additions so far: text, reasoning, or the JSON text of arguments.
    grown: String,
    signature: String,
    /// The type; empty if unknown.
    kind: String,
    complete: bool,
    /// The complete message has arrived.
    confirmed: bool,
    /// Additions are missing, so no more can be appended.
    stalled: bool,
}

impl PartialMessage {
    /// Whether nothing more will be added.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the message has started, is incomplete, and has content that no complete message has confirmed.
    pub(super) fn is_unfinished(&self) -> bool {
        self.started
            && !self.complete
            && (self.blocks.is_empty() || self.blocks.iter().any(|block| !block.confirmed))
    }

    /// Notes that partial messages are missing.
    pub(super) fn missed(&mut self) {
        self.gap = true;
        for block in self.blocks.iter_mut().filter(|block| !block.complete) {
            block.stalled = true;
        }
    }

    /// Starts another message in place of this message.
    fn restart(&mut self, gap: bool, deltas: &mut Vec<DeltaKind>) {
        if self.is_unfinished() {
            deltas.push(DeltaKind::MessageAborted);
        }
        *self = PartialMessage { gap, started: true, ..PartialMessage::default() };
        deltas.push(DeltaKind::MessageStart);
    }

    /// The block with this index; missing blocks before it are filled in.
    fn block(&mut self, index: usize) -> &mut PartialBlock {
        while self.blocks.len() <= index {
            let stalled = self.gap || self.blocks.len() < index;
            self.blocks.push(PartialBlock { stalled, ..PartialBlock::default() });
        }
        &mut self.blocks[index]
    }

    pub(super) fn event(&mut self, event: &Typed<StreamEvent>, deltas: &mut Vec<DeltaKind>) {
        let starts = matches!(event.api_event(), ApiEvent::MessageStart(_));
        let id = match event.api_event() {
            ApiEvent::MessageStart(message) => message.id.clone(),
            _ => event.api_message_id.clone(),
        };
        let another = id.is_some() && self.id.is_some() && id != self.id;
        if matches!(event.api_event(), ApiEvent::Ping) {
            return;
        }
        if starts || another || self.complete || !self.started {
            // Without a start, the start is missing.
            self.restart(!starts, deltas);
        }
        if self.id.is_none() {
            self.id = id;
        }
        let index = event.index.and_then(|index| usize::try_from(index).ok());
        // API messages have few blocks; an index far beyond is ignored.
        let index = index.filter(|index| *index <= self.blocks.len() + MOST_BLOCKS_SKIPPED);
        match (event.api_event(), index) {
            (ApiEvent::ContentBlockStart(begun), Some(index)) => {
                let block = self.block(index);
                if !block.confirmed {
                    *block = PartialBlock {
                        kind: begun.kind().to_owned(),
                        block: Some((**begun).clone()),
                        ..PartialBlock::default()
                    };
                    deltas.push(DeltaKind::BlockStart { index, kind: begun.kind().to_owned() });
                    if let ContentBlock::Text { text, .. } | ContentBlock::Thinking { thinking: text, .. } =
                        &**begun
                        && !text.is_empty()
                    {
                        block.grown.clone_from(text);
                        deltas.push(block.added(index, text.clone()));
                    }
                }
            }
            (ApiEvent::ContentBlockDelta(delta), Some(index)) => self.delta(index, delta, deltas),
            (ApiEvent::ContentBlockStop, Some(index)) => {
                let block = self.block(index);
                if !block.complete && !block.stalled {
                    if let Some(whole) = block.whole() {
                        block.complete = true;
                        block.block = Some(whole.clone());
                        deltas.push(DeltaKind::BlockComplete { index, block: whole });
                    } else {
                        block.stalled = true;
                    }
                }
            }
            (ApiEvent::MessageDelta { stop_reason, .. }, _) if stop_reason.is_some() => {
                self.stop_reason.clone_from(stop_reason);
            }
            (ApiEvent::MessageStop, _) => {
                self.complete = true;
                deltas.push(DeltaKind::MessageComplete { stop_reason: self.stop_reason.clone() });
            }
            (ApiEvent::Error(_), _) => {
                self.complete = true;
                deltas.push(DeltaKind::MessageAborted);
            }
            _ => {}
        }
    }

    fn delta(&mut self, index: usize, delta: &BlockDelta, deltas: &mut Vec<DeltaKind>) {
        let block = self.block(index);
        if block.complete || block.confirmed {
            return;
        }
        if block.kind.is_empty() {
            // The start of the block is missing.
            block.stalled = true;
        }
        let text = match delta {
            _ if block.stalled => return,
            BlockDelta::Text(text) | BlockDelta::Thinking(text) | BlockDelta::InputJson(text) => text,
            BlockDelta::Signature(signature) => {
                block.signature.push_str(signature);
                return;
            }
            BlockDelta::Citation(citation) => {
                if let Some(ContentBlock::Text { citations, .. }) = &mut block.block {
                    citations.push(citation.clone());
                }
                return;
            }
            BlockDelta::Unknown(_) => return,
        };
        if !text.is_empty() {
            block.grown.push_str(text);
            deltas.push(block.added(index, text.clone()));
        }
    }

    /// Takes a complete message, or, as the CLI sends messages, a complete block.
    pub(super) fn said(&mut self, said: &AssistantMessage, deltas: &mut Vec<DeltaKind>) {
        let another = said.message.id.is_some() && self.id.is_some() && said.message.id != self.id;
        // A message without an id and without partial messages is a message of its own.
        let by_itself = said.message.id.is_none() && self.blocks.iter().all(|block| block.confirmed);
        if another || by_itself || !self.started {
            self.restart(self.gap, deltas);
        }
        if self.id.is_none() {
            self.id.clone_from(&said.message.id);
        }
        for whole in &said.message.content {
            let at = self.blocks.iter().position(|block| block.can_be(whole));
            let index = at.unwrap_or(self.blocks.len());
            let new = at.is_none();
            if new {
                self.blocks.push(PartialBlock::default());
            }
            let block = &mut self.blocks[index];
            if block.kind.is_empty() {
                block.kind = whole.kind().to_owned();
                deltas.push(DeltaKind::BlockStart { index, kind: block.kind.clone() });
            }
            block.confirm(index, whole, deltas);
        }
    }
}

impl PartialBlock {
    /// The block so far; `None` if its type is unknown.
    fn content(&self) -> Option<ContentBlock> {
        let mut block = self.block.clone()?;
        if !self.complete {
            match &mut block {
                ContentBlock::Text { text, .. } => text.clone_from(&self.grown),
                ContentBlock::Thinking { thinking, signature } => {
                    thinking.clone_from(&self.grown);
                    signature.clone_from(&self.signature);
                }
                _ => {}
            }
        }
        Some(block)
    }

    /// The block that the additions make; `None` if they are no valid JSON, or of a block that is not typed: only the
    /// complete message has it whole.
    fn whole(&self) -> Option<ContentBlock> {
        let mut block = self.content()?;
        match &mut block {
            ContentBlock::ToolUse { input, .. } | ContentBlock::ServerToolUse { input, .. }
                if !self.grown.is_empty() =>
            {
                *input = serde_json::from_str(&self.grown).ok()?;
            }
            ContentBlock::Unknown(_) => return None,
            _ => {}
        }
        Some(block)
    }

    /// Whether this complete block may be the end of these additions.
    fn can_be(&self, whole: &ContentBlock) -> bool {
        if self.confirmed {
            return false;
        }
        if self.kind.is_empty() {
            return true;
        }
        let same_call = match (self.block.as_ref().and_then(ContentBlock::as_tool_use), whole.as_tool_use()) {
            (Some(begun), Some(whole)) => begun.id == whole.id,
            _ => true,
        };
        self.kind == whole.kind() && same_call
    }

    fn added(&self, index: usize, text: String) -> DeltaKind {
        match self.kind.as_str() {
            "text" => DeltaKind::Text { index, text },
            "thinking" => DeltaKind::Thinking { index, thinking: text },
            _ => DeltaKind::InputJson { index, partial_json: text },
        }
    }

    /// Takes the block of the complete message.
    fn confirm(&mut self, index: usize, whole: &ContentBlock, deltas: &mut Vec<DeltaKind>) {
        let was_complete = self.complete;
        self.confirmed = true;
        self.complete = true;
        self.stalled = false;
        let full = match whole {
            ContentBlock::Text { text, .. } => Some(text),
            ContentBlock::Thinking { thinking, .. } => Some(thinking),
            _ => None,
        };
        let mut replaced = false;
        if let Some(full) = full {
            match full.strip_prefix(self.grown.as_str()) {
                Some("") => {}
                Some(rest) if !was_complete => deltas.push(self.added(index, rest.to_owned())),
                _ => replaced = true,
            }
            self.grown.clone_from(full);
        }
        self.block = Some(whole.clone());
        if replaced {
            deltas.push(DeltaKind::BlockReplaced { index, block: whole.clone() });
        } else if !was_complete {
            deltas.push(DeltaKind::BlockComplete { index, block: whole.clone() });
        }
    }
}

/// Limit of missing blocks before a block.
const MOST_BLOCKS_SKIPPED: usize = 1000;
