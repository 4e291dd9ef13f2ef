//! A tool call, read in one pass: what nearly all control requests are, and the one kind that comes by the thousand.
//!
//! The truth about a line is in [`Frame::parse`](super::envelope::Frame::parse), [`Rpc::parse`](super::rpc::Rpc::parse)
//! and [`CallParams`](super::rpc::CallParams), which read it layer by layer. This reads the same from a line that is
//! plainly a call, without a copy, and leaves every other line to them: white space between the tokens, another first key,
//! a key that stands twice, an escape of a surrogate (it may have to be mended), a field of another type than expected.
//! What it gives is what they give.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::scan;

/// A `tools/call` for an in-process MCP server.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) request_id: Cow<'a, str>,
    pub(crate) server: Cow<'a, str>,
    /// A number or a string, to be echoed as it came.
    pub(crate) rpc_id: &'a RawValue,
    pub(crate) tool: Cow<'a, str>,
    pub(crate) arguments: Option<&'a RawValue>,
    pub(crate) tool_use_id: Option<Cow<'a, str>>,
    pub(crate) progress_token: Option<&'a RawValue>,
}

/// How the CLI begins a control request.
const HEAD: &[u8] = br#"{"type":"control_request""#;

impl<'a> Call<'a> {
    /// `None` if the line is not plainly a call; it may be one all the same.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        if !line.starts_with(HEAD) {
            return None;
        }
        let mut reader = Reader { line, at: HEAD.len() };
        let (mut request_id, mut request) = (None, None);
        reader.fields(|reader, key| match key {
            b"type" => None,
            b"request_id" => once(&mut request_id, reader.text()?),
            b"request" => once(&mut request, Request::read(reader)?),
            other => reader.skip(other),
        })?;
        if reader.at != line.len() || scan::surrogates(line) {
            return None;
        }
        let Request { server, message } = request?;
        let Params { tool, arguments, meta } = message.params;
        let Meta { tool_use_id, progress_token } = meta;
        let rpc_id = message.id;
        Some(Self { request_id: request_id?, server, rpc_id, tool, arguments, tool_use_id, progress_token })
    }
}

/// The control request.
struct Request<'a> {
    server: Cow<'a, str>,
    message: Message<'a>,
}

impl<'a> Request<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut subtype, mut server, mut message) = (None, None, None);
        reader.object(|reader, key| match key {
            // It comes first, so a request of another kind is given up here.
            b"subtype" => once(&mut subtype, reader.word("mcp_message")?),
            b"server_name" => once(&mut server, reader.text()?),
            b"message" => once(&mut message, Message::read(reader)?),
            other => reader.skip(other),
        })?;
        subtype?;
        Some(Self { server: server?, message: message? })
    }
}

/// The JSON-RPC message.
struct Message<'a> {
    id: &'a RawValue,
    params: Params<'a>,
}

impl<'a> Message<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut id, mut method, mut params) = (None, None, None);
        reader.object(|reader, key| match key {
            b"id" => match reader.peek()? {
                b'"' | b'-' | b'0'..=b'9' => once(&mut id, reader.raw()?),
                _ => None,
            },
            b"method" => once(&mut method, reader.word("tools/call")?),
            b"params" => once(&mut params, Params::read(reader)?),
            b"result" | b"error" => None,
            other => reader.skip(other),
        })?;
        method?;
        Some(Self { id: id?, params: params? })
    }
}

/// Its parameters.
struct Params<'a> {
    tool: Cow<'a, str>,
    arguments: Option<&'a RawValue>,
    meta: Meta<'a>,
}

impl<'a> Params<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut tool, mut arguments, mut meta) = (None, None, None);
        reader.object(|reader, key| match key {
            b"name" => once(&mut tool, reader.text()?),
            b"arguments" => once(&mut arguments, reader.raw_or_null()?),
            b"_meta" => once(&mut meta, Meta::read(reader)?),
            other => reader.skip(other),
        })?;
        Some(Self { tool: tool?, arguments: arguments.flatten(), meta: meta.unwrap_or_default() })
    }
}

/// What the CLI says of it beside the arguments.
#[derive(Default)]
struct Meta<'a> {
    tool_use_id: Option<Cow<'a, str>>,
    progress_token: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        if reader.null() {
            return Some(Self::default());
        }
        let (mut tool_use_id, mut progress_token) = (None, None);
        reader.object(|reader, key| match key {
            b"claudecode/toolUseId" => {
                let id = if reader.null() { None } else { Some(reader.text()?) };
                once(&mut tool_use_id, id)
            }
            b"progressToken" => once(&mut progress_token, reader.raw_or_null()?),
            other => reader.skip(other),
        })?;
        Some(Self { tool_use_id: tool_use_id.flatten(), progress_token: progress_token.flatten() })
    }
}

/// Of a field that stands twice the last one counts in one layer, and it is an error in another.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// Where the pass stands. Every method reads what it is named after and steps behind it, or gives `None`.
struct Reader<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// What is not looked at yet.
    fn rest(&self) -> &'a [u8] {
        self.line.get(self.at..).unwrap_or_default()
    }

    /// An object: for each key, `field` reads the value.
    fn object(&mut self, mut field: impl FnMut(&mut Self, &[u8]) -> Option<()>) -> Option<()> {
        self.byte(b'{')?;
        if self.byte(b'}').is_some() {
            return Some(());
        }
        self.field(&mut field)?;
        self.fields(field)
    }

    /// The fields behind the first one, and the end of the object.
    fn fields(&mut self, mut field: impl FnMut(&mut Self, &[u8]) -> Option<()>) -> Option<()> {
        while self.byte(b',').is_some() {
            self.field(&mut field)?;
        }
        self.byte(b'}')
    }

    fn field(&mut self, field: &mut impl FnMut(&mut Self, &[u8]) -> Option<()>) -> Option<()> {
        let key = self.string()?;
        self.byte(b':')?;
        field(self, &key)
    }

    /// The bytes of a string, which may be no UTF-8.
    fn string(&mut self) -> Option<Cow<'a, [u8]>> {
        self.byte(b'"')?;
        let end = scan::json(self.line, self.at);
        match self.line.get(end)? {
            b'"' => {
                let string = self.line.get(self.at..end)?;
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
    fn escaped(&mut self) -> Option<Cow<'a, [u8]>> {
        let mut json = serde_json::Deserializer::from_slice(self.rest()).into_iter::<String>();
        let string = json.next()?.ok()?;
        self.at += json.byte_offset();
        Some(Cow::Owned(string.into_bytes()))
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        match self.string()? {
            Cow::Borrowed(bytes) => Some(Cow::Borrowed(std::str::from_utf8(bytes).ok()?)),
            Cow::Owned(bytes) => Some(Cow::Owned(String::from_utf8(bytes).ok()?)),
        }
    }

    /// This string and no other.
    fn word(&mut self, word: &str) -> Option<()> {
        (*self.string()? == *word.as_bytes()).then_some(())
    }

    fn null(&mut self) -> bool {
        let null = self.rest().starts_with(b"null");
        if null {
            self.at += 4;
        }
        null
    }

    /// Any value, checked.
    fn raw(&mut self) -> Option<&'a RawValue> {
        // White space in front would not be counted below.
        if self.peek()?.is_ascii_whitespace() {
            return None;
        }
        let raw = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_slice(self.rest())).ok()?;
        self.at += raw.get().len();
        Some(raw)
    }

    fn raw_or_null(&mut self) -> Option<Option<&'a RawValue>> {
        if self.null() { Some(None) } else { self.raw().map(Some) }
    }

    /// Passes over the value of a field that nobody asks for.
    fn skip(&mut self, key: &[u8]) -> Option<()> {
        std::str::from_utf8(key).ok()?;
        if self.peek()? == b'"' { self.text().map(drop) } else { self.raw().map(drop) }
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod layers;
#[cfg(test)]
mod tests;
