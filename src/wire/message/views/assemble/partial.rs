//! An incomplete message and its blocks.

use serde_json::Value;

use super::delta::DeltaKind;
use crate::wire::message::{ApiEvent, AssistantMessage, BlockDelta, ContentBlock, StreamEvent, Typed, Usage};

/// A message that the model is still writing, from an [`Assembler`](super::Assembler).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PartialMessage {
    /// The API's id, if known.
    pub id: Option<String>,
    /// The model, if known.
    pub model: Option<String>,
    /// Stop reason, once known.
    pub stop_reason: Option<String>,
    /// Tokens so far; at the end, of the whole message.
    pub usage: Option<Usage>,
    blocks: Vec<PartialBlock>,
    started: bool,
    complete: bool,
    /// Partial messages are missing, so a new block may have started earlier than it seems.
    gap: bool,
}

/// A block of a [`PartialMessage`].
///
/// ```
/// use greenroom::{Message, message::Assembler};
///
/// let mut assembler = Assembler::new();
/// for event in [
///     r#"{"type": "content_block_start", "index": 0,
///         "content_block": {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}}"#,
///     r#"{"type": "content_block_delta", "index": 0,
///         "delta": {"type": "input_json_delta", "partial_json": "{\"comm"}}"#,
/// ] {
///     assembler.feed(&Message::parse(&format!(r#"{{"type": "stream_event", "event": {event}}}"#))?);
/// }
/// let block = &assembler.message(None).unwrap().blocks()[0];
/// assert_eq!((block.input_json(), block.input()), ("{\"comm", None));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PartialBlock {
    /// The block as it started, or the complete block.
    block: Option<ContentBlock>,
    /// The additions so far: text, reasoning, or the JSON text of arguments.
    grown: String,
    signature: String,
    kind: String,
    complete: bool,
    /// The complete message has arrived.
    confirmed: bool,
    /// Additions are missing, so no more can be appended.
    stalled: bool,
}

impl PartialMessage {
    /// The blocks, in order.
    pub fn blocks(&self) -> &[PartialBlock] {
        &self.blocks
    }

    /// The text so far: the text blocks, joined without a separator.
    pub fn text(&self) -> String {
        self.blocks.iter().filter(|block| block.kind == "text").map(|block| block.grown.as_str()).collect()
    }

    /// The blocks so far, as in a complete message. An incomplete tool call has an empty object as arguments.
    pub fn content(&self) -> Vec<ContentBlock> {
        self.blocks.iter().filter_map(PartialBlock::content).collect()
    }

    /// Whether nothing more will be added.
    pub fn is_complete(&self) -> bool {
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
}

impl PartialBlock {
    /// The type: `text`, `thinking`, `tool_use`, and others; empty if unknown.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether nothing more will be added.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether additions are missing. The block stops growing until its complete message arrives.
    pub fn is_stalled(&self) -> bool {
        self.stalled && !self.complete
    }

    /// The text so far; empty for other types.
    pub fn text(&self) -> &str {
        if self.kind == "text" { &self.grown } else { "" }
    }

    /// The reasoning so far; empty for other types.
    pub fn thinking(&self) -> &str {
        if self.kind == "thinking" { &self.grown } else { "" }
    }

    /// The JSON text of a tool call's arguments so far, which may break off anywhere.
    pub fn input_json(&self) -> &str {
        if self.kind.ends_with("tool_use") { &self.grown } else { "" }
    }

    /// The arguments of a tool call; `None` while they are incomplete.
    pub fn input(&self) -> Option<&Value> {
        match &self.block {
            Some(ContentBlock::ToolUse { input, .. } | ContentBlock::ServerToolUse { input, .. })
                if self.complete =>
            {
                Some(input)
            }
            _ => None,
        }
    }

    /// The block so far; `None` if its type is unknown.
    pub fn content(&self) -> Option<ContentBlock> {
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
}

impl PartialMessage {
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
            (ApiEvent::MessageStart(message), _) => {
                self.model.clone_from(&message.model);
                self.usage.clone_from(&message.usage);
            }
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
            (ApiEvent::MessageDelta { stop_reason, usage, .. }, _) => {
                if stop_reason.is_some() {
                    self.stop_reason.clone_from(stop_reason);
                }
                if let Some(usage) = usage {
                    self.usage = Some((**usage).clone());
                }
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
        if self.model.is_none() {
            self.model.clone_from(&said.message.model);
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

/// Limit of missing blocks before a block.
const MOST_BLOCKS_SKIPPED: usize = 1000;

impl PartialBlock {
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
