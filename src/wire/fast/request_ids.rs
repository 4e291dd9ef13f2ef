//! The ids of a request, in one allocation.

use serde_json::value::RawValue;

/// The ids of a request, and of a tool call read in one pass also its tool and what `_meta` says.
#[derive(Debug, Default)]
pub(crate) struct RequestIds {
    text: Box<str>,
    /// End of each part in `text`; a part begins where the part before it ends.
    ends: [usize; Self::PARTS],
    /// Whether each part was given: an empty part is not the same as none.
    given: [bool; Self::PARTS],
}

impl RequestIds {
    const PARTS: usize = 5;

    /// The parts are the request id, the JSON-RPC id, the tool, the tool use id and the progress token.
    pub(super) fn new(parts: [Option<&str>; Self::PARTS]) -> Self {
        let mut text = String::with_capacity(parts.iter().flatten().map(|part| part.len()).sum());
        let ends = parts.map(|part| {
            text.push_str(part.unwrap_or_default());
            text.len()
        });
        Self { text: text.into_boxed_str(), ends, given: parts.map(|part| part.is_some()) }
    }

    /// For a request that is not a JSON-RPC message.
    pub(crate) fn control(request_id: &str) -> Self {
        Self::rpc(request_id, None)
    }

    /// For a JSON-RPC message. `rpc_id` is JSON.
    pub(crate) fn rpc(request_id: &str, rpc_id: Option<&str>) -> Self {
        Self::new([Some(request_id), rpc_id, None, None, None])
    }

    /// For a tool call without a CLI.
    pub(crate) fn detached(request_id: &str, tool: &str) -> Self {
        Self::new([Some(request_id), None, Some(tool), None, None])
    }

    fn part(&self, at: usize) -> Option<&str> {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.given[at].then(|| &self.text[begin..self.ends[at]])
    }

    pub(crate) fn request_id(&self) -> &str {
        self.part(0).unwrap_or_default()
    }

    /// The id of a JSON-RPC request, as the JSON that came.
    pub(crate) fn rpc_id(&self) -> Option<&str> {
        self.part(1)
    }

    /// The id of a JSON-RPC request, to be echoed.
    pub(crate) fn raw_rpc_id(&self) -> Option<&RawValue> {
        serde_json::from_str(self.rpc_id()?).ok()
    }

    /// The called tool; `None` unless the call was read in one pass.
    pub(crate) fn tool(&self) -> Option<&str> {
        self.part(2)
    }

    pub(crate) fn tool_use_id(&self) -> Option<&str> {
        self.part(3)
    }

    /// The progress token, as the JSON that came.
    pub(crate) fn progress_token(&self) -> Option<&str> {
        self.part(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_part_is_not_the_same_as_none() {
        let ids = RequestIds::new([Some("é1"), None, Some(""), None, Some("7")]);
        assert_eq!((ids.request_id(), ids.rpc_id(), ids.tool()), ("é1", None, Some("")));
        assert_eq!((ids.tool_use_id(), ids.progress_token()), (None, Some("7")));
        let ids = RequestIds::new([Some(""), Some("\"a\\u0041\""), None, Some("toolu_1"), None]);
        assert_eq!((ids.request_id(), ids.rpc_id()), ("", Some("\"a\\u0041\"")));
        assert_eq!(ids.raw_rpc_id().map(RawValue::get), ids.rpc_id());
        assert_eq!((ids.tool_use_id(), ids.progress_token()), (Some("toolu_1"), None));
    }
}
