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
    /// A number or a string as JSON, to be echoed as it came.
    pub(crate) rpc_id: &'a str,
    pub(crate) tool: Cow<'a, str>,
    pub(crate) arguments: Option<&'a RawValue>,
    pub(crate) tool_use_id: Option<Cow<'a, str>>,
    /// As JSON.
    pub(crate) progress_token: Option<&'a str>,
}

/// How the CLI begins a control request.
const HEAD: &[u8] = br#"{"type":"control_request""#;

impl<'a> Call<'a> {
    /// `None` if the line is not plainly a call; it may be one all the same.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        if !line.starts_with(HEAD) || scan::surrogates(line) {
            return None;
        }
        let mut reader = Reader { text: std::str::from_utf8(line).ok()?, at: HEAD.len() };
        let (mut request_id, mut request) = (None, None);
        reader.fields(&["\"request_id\":", "\"request\":", "\"type\":"], |reader, key| match key {
            0 => once(&mut request_id, reader.string()?),
            1 => once(&mut request, Request::read(reader)?),
            // It stands there twice.
            _ => None,
        })?;
        if reader.at != line.len() {
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
        let keys = ["\"subtype\":", "\"server_name\":", "\"message\":"];
        reader.object(&keys, |reader, key| match key {
            // It comes first, so a request of another kind is given up here.
            0 => once(&mut subtype, reader.word("\"mcp_message\"")?),
            1 => once(&mut server, reader.string()?),
            _ => once(&mut message, Message::read(reader)?),
        })?;
        subtype?;
        Some(Self { server: server?, message: message? })
    }
}

/// The JSON-RPC message.
struct Message<'a> {
    id: &'a str,
    params: Params<'a>,
}

impl<'a> Message<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut id, mut method, mut params) = (None, None, None);
        let keys = ["\"method\":", "\"params\":", "\"jsonrpc\":", "\"id\":", "\"result\":", "\"error\":"];
        reader.object(&keys, |reader, key| match key {
            0 => once(&mut method, reader.word("\"tools/call\"")?),
            1 => once(&mut params, Params::read(reader)?),
            2 => reader.skip(),
            3 => match reader.peek()? {
                b'"' | b'-' | b'0'..=b'9' => once(&mut id, reader.json()?),
                _ => None,
            },
            _ => None,
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
        reader.object(&["\"name\":", "\"arguments\":", "\"_meta\":"], |reader, key| match key {
            0 => once(&mut tool, reader.string()?),
            1 => {
                let given = if reader.null() { None } else { Some(reader.raw()?) };
                once(&mut arguments, given)
            }
            _ => once(&mut meta, Meta::read(reader)?),
        })?;
        Some(Self { tool: tool?, arguments: arguments.flatten(), meta: meta.unwrap_or_default() })
    }
}

/// What the CLI says of it beside the arguments.
#[derive(Default)]
struct Meta<'a> {
    tool_use_id: Option<Cow<'a, str>>,
    progress_token: Option<&'a str>,
}

impl<'a> Meta<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        if reader.null() {
            return Some(Self::default());
        }
        let (mut tool_use_id, mut progress_token) = (None, None);
        let keys = ["\"claudecode/toolUseId\":", "\"progressToken\":"];
        reader.object(&keys, |reader, key| match key {
            0 => {
                let id = if reader.null() { None } else { Some(reader.string()?) };
                once(&mut tool_use_id, id)
            }
            _ => {
                let token = if reader.null() { None } else { Some(reader.json()?) };
                once(&mut progress_token, token)
            }
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
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// What is not looked at yet.
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Exactly this.
    fn word(&mut self, word: &str) -> Option<()> {
        let is = self.text.as_bytes().get(self.at..)?.starts_with(word.as_bytes());
        is.then(|| self.at += word.len())
    }

    fn null(&mut self) -> bool {
        self.word("null").is_some()
    }

    /// An object: for each of the keys, `field` reads the value; the values of other keys are passed over.
    fn object(&mut self, keys: &[&str], mut field: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        self.byte(b'{')?;
        if self.byte(b'}').is_some() {
            return Some(());
        }
        let next = self.field(keys, 0, &mut field)?;
        self.fields_from(keys, next, field)
    }

    /// The fields behind the first one, and the end of the object.
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

    /// One field. The key is most likely the one at `next`; gives which is likely to follow.
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
        // An escape may spell one of the keys in another way.
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

    /// Any value, checked.
    fn raw(&mut self) -> Option<&'a RawValue> {
        // White space in front would not be counted below.
        if self.peek()?.is_ascii_whitespace() {
            return None;
        }
        let raw = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(self.rest())).ok()?;
        self.at += raw.get().len();
        Some(raw)
    }

    /// The same as text. It is a whole number nearly always.
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

    /// Passes over a value that nobody asks for.
    fn skip(&mut self) -> Option<()> {
        if self.peek()? == b'"' { self.string().map(drop) } else { self.raw().map(drop) }
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod layers;
#[cfg(test)]
mod tests;
