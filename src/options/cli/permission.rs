//! Existing tools, permission modes and rules.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::wire::words::words;

words! {
    /// A place of settings files. CLI 2.1.328 was seen not to start with an unknown word.
    pub enum SettingSource {
        /// The user's: `~/.claude/settings.json`.
        User = "user",
        /// The project's, shared: `.claude/settings.json`, and `CLAUDE.md`.
        Project = "project",
        /// The project's, on this machine only: `.claude/settings.local.json`.
        Local = "local",
    }

    /// The decision on calls of a tool that no rule allows.
    pub enum PermissionMode {
        /// Ask.
        Default = "default",
        /// Allow edits of files; ask for the rest.
        AcceptEdits = "acceptEdits",
        /// Allow everything. Needs
        /// [`Options::allow_dangerously_skip_permissions`](crate::Options::allow_dangerously_skip_permissions).
        BypassPermissions = "bypassPermissions",
        /// Plan only; change nothing.
        Plan = "plan",
        /// Deny without asking.
        DontAsk = "dontAsk",
        /// A classifier decides.
        Auto = "auto",
    }

    /// Who answers permission requests.
    pub enum PermissionPrompts {
        /// This host: its handler, or the tool in
        /// [`Options::permission_prompt_tool_name`](crate::Options::permission_prompt_tool_name).
        Host = "host",
        /// Nobody: a call that would ask is denied at once, and the model is told why.
        None = "none",
    }

    /// The format of previews in an `AskUserQuestion`.
    pub enum QuestionPreview {
        /// Markdown.
        Markdown = "markdown",
        /// HTML.
        Html = "html",
    }
}

/// The built-in tools that exist. In JSON a list of names, or `"claude_code"`.
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
    /// Only the tools of these names; an empty list for none.
    Only(Vec<String>),
}

impl BuiltInTools {
    /// Only the tools of these names.
    pub fn only<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// No built-in tool.
    pub fn none() -> Self {
        Self::Only(Vec::new())
    }
}

/// The enabled skills. In JSON a list of names, or `"all"`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skills {
    /// Every skill that the CLI finds.
    All,
    /// The skills of these names; a skill of a plugin is `plugin:skill`. The model is told of no other skill and can
    /// call no other, but it can still read their files.
    Only(Vec<String>),
}

impl Skills {
    /// Only the skills of these names.
    pub fn only<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// The rules that allow the skills, for [`Options::allowed_tools`](crate::Options::allowed_tools).
    pub(crate) fn rules(&self) -> Vec<String> {
        match self {
            Skills::All => vec!["Skill".into()],
            Skills::Only(names) => names.iter().map(|name| format!("Skill({name})")).collect(),
        }
    }

    /// Refuses names that would mean more than a name inside a rule.
    pub(crate) fn validate(&self) -> Result<()> {
        let Skills::Only(names) = self else { return Ok(()) };
        match names.iter().find_map(|name| Some((name, trouble_with_skill(name)?))) {
            Some((name, trouble)) => {
                Err(Error::invalid_option(format!("option `skills`: the name '{name}' {trouble}"))
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

/// Reads and writes an enum as the word of its first variant, or as the list of names in `Only`.
macro_rules! word_or_list {
    ($name:ident, $all:ident = $word:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $name::$all => serializer.serialize_str($word),
                    $name::Only(names) => names.serialize(serializer),
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged)]
                enum Either {
                    Word(String),
                    List(Vec<String>),
                }
                match Either::deserialize(deserializer) {
                    Ok(Either::Word(word)) if word == $word => Ok($name::$all),
                    Ok(Either::List(names)) => Ok($name::Only(names)),
                    _ => {
                        Err(serde::de::Error::custom(concat!("neither \"", $word, "\" nor a list of names")))
                    }
                }
            }
        }
    };
}
word_or_list!(BuiltInTools, ClaudeCode = "claude_code");
word_or_list!(Skills, All = "all");

/// Validates rules for tools. The CLI gets them joined by commas, and splits them at commas and spaces outside of
/// parentheses.
pub(crate) fn check_rules(option: &str, rules: &[String]) -> Result<()> {
    for rule in rules {
        if let Some(trouble) = trouble_with_rule(rule) {
            return Err(Error::invalid_option(format!("option `{option}`: the rule '{rule}' {trouble}"))
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
        return Some("has a comma or space outside of parentheses");
    }
    match rest {
        // Commas, spaces and further parentheses are fine inside.
        Some(rest) if !rest.ends_with(')') => Some("does not end with a closing parenthesis"),
        None if name.contains(')') => Some("has a closing parenthesis without an opening one"),
        _ => None,
    }
}
