//! The short texts of a request, in one piece of memory.

use serde_json::value::RawValue;

/// What a request of the CLI is called by: its ids, and for a tool call what the call says of itself. One allocation,
/// however many of them there are.
#[derive(Debug)]
pub(crate) struct Head {
    text: Box<str>,
    /// Where each part ends; it begins where the one before it ends.
    ends: [usize; Self::PARTS],
    /// Which parts there are: an empty text is not the same as none.
    given: [bool; Self::PARTS],
}

/// What a [`Head`] is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts<'a> {
    pub(crate) request_id: &'a str,
    /// The id of a JSON-RPC request, as it came.
    pub(crate) rpc_id: Option<&'a str>,
    pub(crate) tool: Option<&'a str>,
    pub(crate) tool_use_id: Option<&'a str>,
    /// As it came.
    pub(crate) progress_token: Option<&'a str>,
}

impl Head {
    const PARTS: usize = 5;

    pub(crate) fn new(parts: Parts<'_>) -> Self {
        let Parts { request_id, rpc_id, tool, tool_use_id, progress_token } = parts;
        let parts = [Some(request_id), rpc_id, tool, tool_use_id, progress_token];
        let mut text = String::with_capacity(parts.iter().flatten().map(|part| part.len()).sum());
        let ends = parts.map(|part| {
            text.push_str(part.unwrap_or_default());
            text.len()
        });
        Self { text: text.into_boxed_str(), ends, given: parts.map(|part| part.is_some()) }
    }

    fn part(&self, at: usize) -> Option<&str> {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.given[at].then(|| &self.text[begin..self.ends[at]])
    }

    pub(crate) fn request_id(&self) -> &str {
        self.part(0).unwrap_or_default()
    }

    /// The id of a JSON-RPC request, as it came.
    pub(crate) fn rpc_id(&self) -> Option<&str> {
        self.part(1)
    }

    /// The same to be written. It was JSON when it came.
    pub(crate) fn raw_rpc_id(&self) -> Option<&RawValue> {
        serde_json::from_str(self.rpc_id()?).ok()
    }

    /// The tool that is called, if that is what the request is plainly about.
    pub(crate) fn tool(&self) -> Option<&str> {
        self.part(2)
    }

    pub(crate) fn tool_use_id(&self) -> Option<&str> {
        self.part(3)
    }

    /// As it came.
    pub(crate) fn progress_token(&self) -> Option<&str> {
        self.part(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_comes_back_and_an_empty_one_is_not_the_same_as_none() {
        let parts =
            Parts { request_id: "é1", tool: Some(""), progress_token: Some("7"), ..Parts::default() };
        let head = Head::new(parts);
        assert_eq!((head.request_id(), head.rpc_id(), head.tool()), ("é1", None, Some("")));
        assert_eq!((head.tool_use_id(), head.progress_token()), (None, Some("7")));
        let parts = Parts { rpc_id: Some("\"a\\u0041\""), tool_use_id: Some("toolu_1"), ..Parts::default() };
        let head = Head::new(parts);
        assert_eq!((head.request_id(), head.rpc_id()), ("", Some("\"a\\u0041\"")));
        assert_eq!(head.raw_rpc_id().map(RawValue::get), head.rpc_id());
        assert_eq!((head.tool_use_id(), head.progress_token()), (Some("toolu_1"), None));
    }
}
