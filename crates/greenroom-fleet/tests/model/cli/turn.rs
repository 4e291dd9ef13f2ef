//! Turns as the texts of their prompts describe them.

/// A turn as the text of its prompt describes it: `p17|3000|plain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// `p` for a prompt, `c` for its continuation, with the number of the prompt.
    pub(crate) id: String,
    pub(crate) millis: u64,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message, then the result.
    Plain,
    /// A tool call at the beginning and at the end besides.
    Call,
    /// The CLI crashes when the time of the turn is over.
    Crash,
}

impl Turn {
    pub(crate) fn text(&self) -> String {
        let kind = match self.kind {
            Kind::Plain => "plain",
            Kind::Call => "call",
            Kind::Crash => "crash",
        };
        format!("{}|{}|{kind}", self.id, self.millis)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('|');
        let (id, millis, kind) = (parts.next()?, parts.next()?, parts.next()?);
        let kind = match kind {
            "plain" => Kind::Plain,
            "call" => Kind::Call,
            "crash" => Kind::Crash,
            _ => return None,
        };
        Some(Self { id: id.to_owned(), millis: millis.parse().ok()?, kind })
    }
}
