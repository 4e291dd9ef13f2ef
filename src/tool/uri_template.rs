//! URI templates, as far as they can be read backwards.
//!
//! RFC 6570 says how a template is expanded; a server has to do the opposite, and tell from a URI which values it was made
//! with. That is possible for the simple forms only: `{name}` (level 1), whose value ends at `/`, `?` or `#`, and `{+name}`
//! (level 2), whose value goes on over them. Two variables need something between them. Values are percent-decoded.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

/// A template that a URI can be compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UriTemplate {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable { name: String, reserved: bool },
}

impl UriTemplate {
    /// Reads a template; the error says what is not understood.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, after) = rest.split_once('{').unwrap_or((rest, ""));
            if literal.contains('}') {
                return Err("a `}` without a `{`".into());
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
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
            if matches!(parts.last(), Some(Part::Variable { .. })) {
                return Err(format!("nothing stands between `{{{expression}}}` and the variable before it"));
            }
            let taken = |part: &Part| matches!(part, Part::Variable { name: other, .. } if other == name);
            if parts.iter().any(taken) {
                return Err(format!("the variable `{name}` stands in it twice"));
            }
            parts.push(Part::Variable { name: name.to_owned(), reserved });
            rest = after;
        }
        if !parts.iter().any(|part| matches!(part, Part::Variable { .. })) {
            return Err("it has no variable: define a resource instead".into());
        }
        Ok(Self { parts })
    }

    pub(crate) fn has(&self, variable: &str) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Variable { name, .. } if name == variable))
    }

    /// The values with which the template gives this URI; no value is empty. Of several ways the one with the shortest
    /// values, from the left.
    ///
    /// It takes a number of steps that is that of the bytes of the URI, for each part of the template: from the right, it
    /// is found from where the rest can go on; then the values are taken from the left.
    pub(crate) fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let fits = self.fits(uri.as_bytes());
        if !fits[0][0] {
            return None;
        }
        let mut values = BTreeMap::new();
        let mut at = 0;
        for (part, rest) in self.parts.iter().zip(&fits[1..]) {
            match part {
                Part::Literal(literal) => at += literal.len(),
                Part::Variable { name, .. } => {
                    // There is one, for it fits from here on. It is the end of a character, as a literal or nothing follows.
                    let to = (at + 1..=uri.len()).find(|to| rest[*to])?;
                    let value = percent_decode_str(&uri[at..to]).decode_utf8_lossy().into_owned();
                    values.insert(name.clone(), value);
                    at = to;
                }
            }
        }
        Some(values)
    }

    /// For each part, and for the end after them: from which bytes on the rest of the URI is what it and those after it
    /// give.
    fn fits(&self, uri: &[u8]) -> Vec<Vec<bool>> {
        let mut at_the_end = vec![false; uri.len() + 1];
        at_the_end[uri.len()] = true;
        let mut fits = vec![at_the_end];
        for part in self.parts.iter().rev() {
            let rest = &fits[fits.len() - 1];
            let mut here = vec![false; uri.len() + 1];
            for at in (0..uri.len()).rev() {
                here[at] = match part {
                    Part::Literal(literal) => {
                        uri[at..].starts_with(literal.as_bytes()) && rest[at + literal.len()]
                    }
                    Part::Variable { reserved, .. } => {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(template: &str, uri: &str) -> Option<Vec<(String, String)>> {
        UriTemplate::parse(template).unwrap().matches(uri).map(|values| values.into_iter().collect())
    }

    fn is(template: &str, uri: &str, values: &[(&str, &str)]) {
        let values: Vec<_> = values.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(matched(template, uri), Some(values), "{template} {uri}");
    }

    #[test]
    fn values_are_found_and_decoded() {
        is("note://{id}", "note://7", &[("id", "7")]);
        is("note://{id}/text", "note://a%20b%2Fc/text", &[("id", "a b/c")]);
        is("db://{table}/{row}?v={v}", "db://users/9?v=2", &[("row", "9"), ("table", "users"), ("v", "2")]);
        is("file:///{+path}", "file:///a/b/c.txt", &[("path", "a/b/c.txt")]);
        is("file:///{+dir}/{name}", "file:///a/b/c", &[("dir", "a/b"), ("name", "c")]);
        is("x{a}-{b}", "xö-1-2", &[("a", "ö"), ("b", "1-2")]);
        is("{+a}-{b}", "x-y/z-w", &[("a", "x-y/z"), ("b", "w")]);
        is("{a}ö{b}", "öööö", &[("a", "ö"), ("b", "öö")]);
    }

    #[test]
    fn what_does_not_fit_does_not_match() {
        for (template, uri) in [
            ("note://{id}", "note://"),
            ("note://{id}", "note://a/b"),
            ("note://{id}", "other://7"),
            ("note://{id}/text", "note://7/texts"),
            ("note://{id}/text", "note://7"),
            ("file:///{+path}", "file:///"),
        ] {
            assert_eq!(matched(template, uri), None, "{template} {uri}");
        }
    }

    #[test]
    fn what_cannot_be_read_backwards_is_refused() {
        for template in
            ["a{", "a}", "{}", "{a}{b}", "{?q}", "{a*}", "{a,b}", "{a:3}", "note://7", "", "{a}/{a}", "{#a}"]
        {
            assert!(UriTemplate::parse(template).is_err(), "{template}");
        }
    }

    #[test]
    fn many_variables_in_a_long_uri_take_no_long_time() {
        let template: String = (0..20).map(|n| format!("{{+v{n}}}a")).collect();
        assert_eq!(matched(&format!("{template}b"), &"a".repeat(20_000)), None);
    }
}
