//! URI templates, matched against URIs.
//!
//! RFC 6570 defines how a template expands; a server has to do the reverse, and find the values in a URI. That is
//! possible for simple forms only: `{name}` (level 1), whose value ends at `/`, `?` or `#`, and `{+name}` (level 2),
//! whose value may contain them. There must be a literal between two variables. Values are percent-decoded.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UriTemplate {
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Literal(String),
    Variable { name: String, reserved: bool },
}

impl UriTemplate {
    /// Parses a template; the error says which form is not supported.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts: Vec<TemplatePart> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, after) = rest.split_once('{').unwrap_or((rest, ""));
            if literal.contains('}') {
                return Err("a `}` without a `{`".into());
            }
            if !literal.is_empty() {
                parts.push(TemplatePart::Literal(literal.to_owned()));
            }
            if literal.len() == rest.len() {
                break;
            }
            let Some((expression, after)) = after.split_once('}') else {
                return Err("a `{` without a `}`".into());
            };
            let (reserved, name) = match expression.strip_prefix('+') {
                Some(name) => (true, name),
                None => (false, expression),
            };
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')) {
                return Err(format!("`{{{expression}}}` is neither `{{name}}` nor `{{+name}}`"));
            }
            if matches!(parts.last(), Some(TemplatePart::Variable { .. })) {
                return Err(format!("nothing stands between `{{{expression}}}` and the variable before it"));
            }
            let taken = |part: &TemplatePart| matches!(part, TemplatePart::Variable { name: other, .. } if other == name);
            if parts.iter().any(taken) {
                return Err(format!("the variable `{name}` stands in it twice"));
            }
            parts.push(TemplatePart::Variable { name: name.to_owned(), reserved });
            rest = after;
        }
        if !parts.iter().any(|part| matches!(part, TemplatePart::Variable { .. })) {
            return Err("it has no variable: define a resource instead".into());
        }
        Ok(Self { parts })
    }

    /// The values for which the template expands to this URI; none is empty. If there are several ways, the values are
    /// as short as possible, from left to right.
    ///
    /// Linear in the length of the URI for each part of the template: [`fits`](Self::fits) looks from the right where
    /// each part can start, then the values are taken from the left.
    pub(crate) fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let fits = self.fits(uri.as_bytes());
        if !fits[0][0] {
            return None;
        }
        let mut values = BTreeMap::new();
        let mut at = 0;
        for (part, rest) in self.parts.iter().zip(&fits[1..]) {
            match part {
                TemplatePart::Literal(literal) => at += literal.len(),
                TemplatePart::Variable { name, .. } => {
                    // `fits` found an end. It is a character boundary, because a literal or the end of the URI follows.
                    let to = (at + 1..=uri.len()).find(|to| rest[*to])?;
                    let value = percent_decode_str(&uri[at..to]).decode_utf8_lossy().into_owned();
                    values.insert(name.clone(), value);
                    at = to;
                }
            }
        }
        Some(values)
    }

    /// For each part, and for the end: the byte offsets from which the rest of the URI matches this part and those
    /// after it.
    fn fits(&self, uri: &[u8]) -> Vec<Vec<bool>> {
        let mut at_the_end = vec![false; uri.len() + 1];
        at_the_end[uri.len()] = true;
        let mut fits = vec![at_the_end];
        for part in self.parts.iter().rev() {
            let rest = &fits[fits.len() - 1];
            let mut here = vec![false; uri.len() + 1];
            for at in (0..uri.len()).rev() {
                here[at] = match part {
                    TemplatePart::Literal(literal) => {
                        uri[at..].starts_with(literal.as_bytes()) && rest[at + literal.len()]
                    }
                    TemplatePart::Variable { reserved, .. } => {
                        (*reserved || !matches!(uri[at], b'/' | b'?' | b'#'))
                            && (rest[at + 1] || here[at + 1])
                    }
                };
            }
            fits.push(here);
        }
        fits.reverse();
        fits
    }
}
