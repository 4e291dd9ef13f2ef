//! Which tools there are, and who decides on their calls.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::word::words;
use crate::error::{Error, Result};

words! {
    /// How the CLI decides on a tool that no rule allows.
    ///
    /// ```
    /// assert_eq!(greenroom::PermissionMode::AcceptEdits.as_str(), "acceptEdits");
    /// ```
    pub enum PermissionMode {
        /// Ask.
        Default = "default",
        /// Edits to files need no asking.
        AcceptEdits = "acceptEdits",
        /// Nothing is asked. Needs [`Options::allow_dangerously_skip_permissions`](super::Options::allow_dangerously_skip_permissions).
        BypassPermissions = "bypassPermissions",
        /// Plan only; change nothing.
        Plan = "plan",
        /// What is not allowed is denied without asking.
        DontAsk = "dontAsk",
        /// A classifier decides.
        Auto = "auto",
    }
}

words! {
    /// Who answers when a permission has to be asked for.
    ///
    /// ```
    /// assert_eq!(greenroom::options::PermissionPrompts::None.as_str(), "none");
    /// ```
    pub enum PermissionPrompts {
        /// This host: its handler, or the tool that [`Options::permission_prompt_tool_name`](super::Options::permission_prompt_tool_name) names.
        Host = "host",
        /// Nobody: what would be asked is denied at once, and the model is told why.
        None = "none",
    }
}

words! {
    /// In which form the previews of an `AskUserQuestion` come.
    ///
    /// ```
    /// assert_eq!(greenroom::options::QuestionPreview::Html.as_str(), "html");
    /// ```
    pub enum QuestionPreview {
        /// Markdown.
        Markdown = "markdown",
        /// HTML.
        Html = "html",
    }
}

/// The built-in tools that exist at all. In JSON a list of names, or `"claude_code"`.
///
/// ```
/// use greenroom::options::BuiltInTools;
///
/// let few: BuiltInTools = serde_json::from_str(r#"["Read", "Bash"]"#)?;
/// assert_eq!(few, BuiltInTools::only(["Read", "Bash"]));
/// assert_eq!(serde_json::to_value(BuiltInTools::ClaudeCode)?, "claude_code");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuiltInTools {
    /// Claude Code's own set (`--tools=default`).
    ClaudeCode,
    /// Those of these names and no other; an empty list means none at all.
    Only(Vec<String>),
}

impl BuiltInTools {
    /// The tools of these names and no other.
    pub fn only<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// No built-in tool.
    pub fn none() -> Self {
        Self::Only(Vec::new())
    }
}

const CLAUDE_CODE: &str = "claude_code";

impl Serialize for BuiltInTools {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            BuiltInTools::ClaudeCode => serializer.serialize_str(CLAUDE_CODE),
            BuiltInTools::Only(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for BuiltInTools {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word_or_list(deserializer, CLAUDE_CODE)
            .map(|names| names.map_or(BuiltInTools::ClaudeCode, BuiltInTools::Only))
    }
}

/// The skills that are turned on. In JSON a list of names, or `"all"`.
///
/// ```
/// use greenroom::Skills;
///
/// let all: Skills = serde_json::from_str(r#""all""#)?;
/// assert_eq!(all, Skills::All);
/// assert_eq!(serde_json::to_value(Skills::only(["pdf"]))?, serde_json::json!(["pdf"]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skills {
    /// Every one that is found.
    All,
    /// Those of these names; a skill of a plugin is `plugin:skill`. The model is told of no other, and can call no
    /// other, but their files stay where they are and can be read.
    Only(Vec<String>),
}

const ALL: &str = "all";

impl Skills {
    /// The skills of these names.
    pub fn only<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// The rules that let them be called, as they are added to [`Options::allowed_tools`](super::Options::allowed_tools).
    pub(crate) fn rules(&self) -> Vec<String> {
        match self {
            Skills::All => vec!["Skill".into()],
            Skills::Only(names) => names.iter().map(|name| format!("Skill({name})")).collect(),
        }
    }

    /// A name becomes part of a rule, so that it must not be able to say more than a name.
    pub(super) fn validate(&self) -> Result<()> {
        let Skills::Only(names) = self else { return Ok(()) };
        match names.iter().find_map(|name| Some((name, trouble_with_skill(name)?))) {
            Some((name, trouble)) => {
                Err(Error::invalid_option(format!("option `skills` has the name '{name}', which {trouble}"))
                    .with_help("give the `name` of the skill's SKILL.md, or `plugin:skill`"))
            }
            None => Ok(()),
        }
    }
}

fn trouble_with_skill(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty")
    } else if name.trim() != name {
        Some("begins or ends with a space")
    } else if name.contains(['(', ')', ',']) {
        Some("has a parenthesis or a comma in it")
    } else if name.chars().any(|c| c.is_control() || c == '\u{feff}') {
        Some("has a control character in it")
    } else if name == "*" || name.ends_with(":*") || name.ends_with(" *") {
        Some("is a pattern")
    } else if name.starts_with('/') {
        Some("begins with a slash")
    } else if name.contains("\\\\") || name.ends_with('\\') {
        Some("has a backslash where a rule would take it as an escape")
    } else {
        None
    }
}

impl Serialize for Skills {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Skills::All => serializer.serialize_str(ALL),
            Skills::Only(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Skills {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word_or_list(deserializer, ALL).map(|names| names.map_or(Skills::All, Skills::Only))
    }
}

/// `None` for the word.
fn word_or_list<'de, D: Deserializer<'de>>(
    deserializer: D,
    word: &str,
) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Word(String),
        List(Vec<String>),
    }
    match Either::deserialize(deserializer) {
        Ok(Either::Word(given)) if given == word => Ok(None),
        Ok(Either::List(list)) => Ok(Some(list)),
        _ => Err(serde::de::Error::custom(format!("neither \"{word}\" nor a list of names"))),
    }
}

/// What is wrong with a rule for tools, in an option where many of them are joined by commas. The CLI divides such a list
/// at commas and spaces outside of parentheses.
pub(super) fn check_rules(option: &str, rules: &[String]) -> Result<()> {
    for rule in rules {
        let trouble = trouble_with_rule(rule);
        if let Some(trouble) = trouble {
            return Err(Error::invalid_option(format!(
                "option `{option}` has a rule that {trouble}: '{rule}'"
            ))
            .with_help("give each rule as one entry, such as `Read` or `Bash(git log *)`"));
        }
    }
    Ok(())
}

fn trouble_with_rule(rule: &str) -> Option<&'static str> {
    if rule.trim().is_empty() {
        return Some("is empty");
    }
    let (name, rest) = match rule.split_once('(') {
        Some((name, rest)) => (name, Some(rest)),
        None => (rule, None),
    };
    if name.contains(',') || name.contains(char::is_whitespace) {
        return Some("is more than one, with its comma or space");
    }
    match rest {
        // What is in the parentheses may hold commas, spaces and further parentheses.
        Some(rest) if !rest.ends_with(')') => Some("does not end with the parenthesis that it opens"),
        None if name.contains(')') => Some("closes a parenthesis that it did not open"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_be_more_than_a_name_in_a_rule_is_refused() {
        let bad = [
            "",
            " pdf",
            "pdf ",
            "a)b",
            "a(b",
            "a,b",
            "a\nb",
            "\u{feff}a",
            "*",
            "a:*",
            "a *",
            "/a",
            "a\\\\b",
            "a\\",
        ];
        for name in bad {
            let error = Skills::only([name]).validate().unwrap_err().to_string();
            assert!(error.contains("`skills`"), "{error}");
        }
        Skills::only(["pdf", "plugin:pdf", "two words", "a\\b", "änderung"]).validate().unwrap();
        Skills::All.validate().unwrap();
    }

    #[test]
    fn a_rule_is_one_rule() {
        for bad in ["", "  ", "Read,Edit", "Read Edit", "Bash(ls", "Bash)", "Bash(ls) Edit"] {
            let error = check_rules("allowed_tools", &[bad.to_owned()]).unwrap_err().to_string();
            assert!(error.contains("`allowed_tools`"), "{error}");
        }
        for good in ["Read", "mcp__calc__*", "Bash(git log *)", "Bash(echo a,b)", "Bash(echo (a))"] {
            check_rules("allowed_tools", &[good.to_owned()]).unwrap();
        }
    }
}
