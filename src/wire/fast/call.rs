//! Reads a tool call in one pass: nearly all control requests are tool calls, and only they come by the thousand.
//!
//! [`Frame::parse`](crate::wire::envelope::Frame::parse), [`Rpc::parse`](crate::wire::rpc::Rpc::parse) and
//! [`CallParams`](crate::wire::rpc::CallParams) define how a line is read, layer by layer. This module reads the same
//! values without a copy from a line that is plainly a call, and leaves every other line to the layers: white space
//! between tokens, another first key, a duplicate key, an escape of a surrogate (which may have to be mended), a field
//! of an unexpected type outside of `_meta`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::request_ids::RequestIds;
use super::scan;

/// A `tools/call` to an in-process MCP server, as it stands in its line.
#[derive(Debug)]
pub(crate) struct CallLine<'a> {
    pub(crate) request_id: Cow<'a, str>,
    pub(crate) server: Cow<'a, str>,
    /// A number or a string, as JSON.
    pub(crate) rpc_id: &'a str,
    pub(crate) tool: Cow<'a, str>,
    pub(crate) arguments: Option<&'a RawValue>,
    pub(crate) tool_use_id: Option<Cow<'a, str>>,
    /// As JSON.
    pub(crate) progress_token: Option<&'a str>,
}

/// First bytes of a control request.
const HEAD: &[u8] = br#"{"type":"control_request""#;

impl<'a> CallLine<'a> {
    /// `None` leaves the line to the layers: it may be a call in another spelling.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        if !line.starts_with(HEAD) || scan::surrogates(line) {
            return None;
        }
        let mut reader = Cursor { text: std::str::from_utf8(line).ok()?, at: HEAD.len() };
        let (mut request_id, mut request) = (None, None);
        reader.fields(&["\"request_id\":", "\"request\":", "\"type\":"], |reader, key| match key {
            0 => once(&mut request_id, reader.string()?),
            1 => once(&mut request, RequestPart::read(reader)?),
            // A second `type`.
            _ => None,
        })?;
        if reader.at != line.len() {
            return None;
        }
        let RequestPart { server, message } = request?;
        let ParamsPart { tool, arguments, meta } = message.params;
        let MetaPart { tool_use_id, progress_token } = meta;
        let rpc_id = message.id;
        Some(Self { request_id: request_id?, server, rpc_id, tool, arguments, tool_use_id, progress_token })
    }

    pub(crate) fn ids(&self) -> RequestIds {
        RequestIds::new([
            Some(&self.request_id),
            Some(self.rpc_id),
            Some(&self.tool),
            self.tool_use_id.as_deref(),
            self.progress_token,
        ])
    }
}

/// The value of `request`.
struct RequestPart<'a> {
    server: Cow<'a, str>,
    message: MessagePart<'a>,
}

impl<'a> RequestPart<'a> {
    fn read(reader: &mut Cursor<'a>) -> Option<Self> {
        let (mut subtype, mut server, mut message) = (None, None, None);
        let keys = ["\"subtype\":", "\"server_name\":", "\"message\":"];
        reader.object(&keys, |reader, key| match key {
            // The subtype comes first: other requests are left to the layers here.
            0 => once(&mut subtype, reader.word("\"mcp_message\"")?),
            1 => once(&mut server, reader.string()?),
            _ => once(&mut message, MessagePart::read(reader)?),
        })?;
        subtype?;
        Some(Self { server: server?, message: message? })
    }
}

/// The JSON-RPC message in it.
struct MessagePart<'a> {
    id: &'a str,
    params: ParamsPart<'a>,
}

impl<'a> MessagePart<'a> {
    fn read(reader: &mut Cursor<'a>) -> Option<Self> {
        let (mut id, mut method, mut params) = (None, None, None);
        let keys = ["\"method\":", "\"params\":", "\"jsonrpc\":", "\"id\":", "\"result\":", "\"error\":"];
        reader.object(&keys, |reader, key| match key {
            0 => once(&mut method, reader.word("\"tools/call\"")?),
            1 => once(&mut params, ParamsPart::read(reader)?),
            2 => reader.skip(),
            3 => once(&mut id, reader.id()??),
            _ => None,
        })?;
        method?;
        Some(Self { id: id?, params: params? })
    }
}

/// The parameters of the message.
struct ParamsPart<'a> {
    tool: Cow<'a, str>,
    arguments: Option<&'a RawValue>,
    meta: MetaPart<'a>,
}

impl<'a> ParamsPart<'a> {
    fn read(reader: &mut Cursor<'a>) -> Option<Self> {
        let (mut tool, mut arguments, mut meta) = (None, None, None);
        reader.object(&["\"name\":", "\"arguments\":", "\"_meta\":"], |reader, key| match key {
            0 => once(&mut tool, reader.string()?),
            1 => {
                let given = if reader.null() { None } else { Some(reader.raw()?) };
                once(&mut arguments, given)
            }
            _ => once(&mut meta, MetaPart::read(reader)?),
        })?;
        Some(Self { tool: tool?, arguments: arguments.flatten(), meta: meta.unwrap_or_default() })
    }
}

/// The fields of `_meta` that matter here.
#[derive(Default)]
struct MetaPart<'a> {
    tool_use_id: Option<Cow<'a, str>>,
    progress_token: Option<&'a str>,
}

impl<'a> MetaPart<'a> {
    fn read(reader: &mut Cursor<'a>) -> Option<Self> {
        if reader.peek()? != b'{' {
            reader.skip()?;
            return Some(Self::default());
        }
        let (mut tool_use_id, mut progress_token) = (None, None);
        let keys = ["\"claudecode/toolUseId\":", "\"progressToken\":"];
        reader.object(&keys, |reader, key| match key {
            0 => {
                let id = if reader.peek()? == b'"' {
                    Some(reader.string()?)
                } else {
                    reader.skip().map(|()| None)?
                };
                once(&mut tool_use_id, id)
            }
            _ => once(&mut progress_token, reader.id()?),
        })?;
        Some(Self { tool_use_id: tool_use_id.flatten(), progress_token: progress_token.flatten() })
    }
}

/// Sets a field; `None` for a duplicate key. In one layer the last duplicate wins, in another serde refuses it, so the
/// layers have to decide.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// The text and the position in it. Each method reads what its name says and moves behind it, or returns `None`.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// The text that is not read yet.
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let is = self.text.as_bytes().get(self.at..)?.starts_with(word.as_bytes());
        is.then(|| self.at += word.len())
    }

    fn null(&mut self) -> bool {
        self.word("null").is_some()
    }

    /// An object. `field` reads the values of `keys`; the values of other keys are skipped.
    fn object(&mut self, keys: &[&str], mut field: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        self.byte(b'{')?;
        if self.byte(b'}').is_some() {
            return Some(());
        }
        let next = self.field(keys, 0, &mut field)?;
        self.fields_from(keys, next, field)
    }

    /// The fields after the first one, and the end of the object.
    fn fields(&mut self, keys: &[&str], field: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        self.fields_from(keys, 0, field)
    }

    fn fields_from(
        &mut self,
        keys: &[&str],
        mut next: usize,
        mut field: impl FnMut(&mut Self, usize) -> Option<()>,
    ) -> Option<()> {
        while self.byte(b',').is_some() {
            next = self.field(keys, next, &mut field)?;
        }
        self.byte(b'}')
    }

    /// A field. Its key is most likely the one at `next`; returns the key that most likely follows.
    fn field(
        &mut self,
        keys: &[&str],
        next: usize,
        field: &mut impl FnMut(&mut Self, usize) -> Option<()>,
    ) -> Option<usize> {
        for key in (next..keys.len()).chain(0..next) {
            if self.word(keys[key]).is_some() {
                field(self, key)?;
                return Some(key + 1);
            }
        }
        let other = self.string()?;
        self.byte(b':')?;
        // A key may be spelled with escapes.
        if let Cow::Owned(other) = &other {
            let is =
                |key: &&str| key.strip_prefix('"').and_then(|key| key.strip_suffix("\":")) == Some(other);
            if let Some(key) = keys.iter().position(is) {
                field(self, key)?;
                return Some(key + 1);
            }
        }
        self.skip()?;
        Some(next)
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.byte(b'"')?;
        let end = scan::json(self.text.as_bytes(), self.at);
        match self.text.as_bytes().get(end)? {
            b'"' => {
                let string = self.text.get(self.at..end)?;
                self.at = end + 1;
                Some(Cow::Borrowed(string))
            }
            b'\\' => {
                self.at -= 1;
                self.escaped()
            }
            _ => None,
        }
    }

    #[cold]
    fn escaped(&mut self) -> Option<Cow<'a, str>> {
        let mut json = serde_json::Deserializer::from_str(self.rest()).into_iter::<String>();
        let string = json.next()?.ok()?;
        self.at += json.byte_offset();
        Some(Cow::Owned(string))
    }

    /// Any value, validated.
    fn raw(&mut self) -> Option<&'a RawValue> {
        // `raw` would not count white space in front.
        if self.peek()?.is_ascii_whitespace() {
            return None;
        }
        let raw = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(self.rest())).ok()?;
        self.at += raw.get().len();
        Some(raw)
    }

    /// A string or a number, as text. Skips a value of another type, and returns `Some(None)`.
    fn id(&mut self) -> Option<Option<&'a str>> {
        match self.peek()? {
            b'"' | b'-' | b'0'..=b'9' => self.json().map(Some),
            _ => self.skip().map(|()| None),
        }
    }

    /// Any value, as text. Fast for whole numbers, which ids nearly always are.
    fn json(&mut self) -> Option<&'a str> {
        let rest = self.rest().as_bytes();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let whole = digits == 1 || (digits > 1 && rest[0] != b'0');
        if whole && matches!(rest.get(digits), Some(b',' | b'}')) {
            let number = self.rest().get(..digits)?;
            self.at += digits;
            return Some(number);
        }
        self.raw().map(RawValue::get)
    }

    /// Skips a value.
    fn skip(&mut self) -> Option<()> {
        if self.peek()? == b'"' { self.string().map(drop) } else { self.raw().map(drop) }
    }
}

#[cfg(any(test, feature = "__internals"))]
pub(crate) mod layers;
#[cfg(test)]
mod tests;
