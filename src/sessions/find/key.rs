//! Names on disk: project folders, session files, session ids.

use std::path::{Component, Path, PathBuf};

use unicode_normalization::UnicodeNormalization;
use uuid::Uuid;

use crate::Options;
use crate::error::{Error, Result};

/// Longest name of a project folder that is kept whole. File systems allow 255 bytes; the rest is for the hash.
const LONGEST_KEY: usize = 200;

/// The name of the folder in which the CLI keeps the sessions of a directory.
///
/// The path is resolved, including symbolic links, and put into Unicode form NFC; every character other than `A-Z`,
/// `a-z` and `0-9` becomes a `-`. A name of more than 200 characters is cut, and a hash of the whole path is appended.
/// A directory that does not exist is used as written.
///
/// Reads the file system, and may block.
///
/// ```
/// assert_eq!(greenroom::sessions::project_key("/no/such/place 1".as_ref()), "-no-such-place-1");
/// ```
pub fn project_key(directory: &Path) -> String {
    key_of_path(&canonical(directory))
}

/// A directory as the CLI writes it: resolved, in NFC.
pub(crate) fn canonical(directory: &Path) -> String {
    let resolved = std::fs::canonicalize(directory).or_else(|_| std::path::absolute(directory));
    nfc(resolved.as_deref().unwrap_or(directory))
}

pub(crate) fn nfc(path: &Path) -> String {
    path.to_string_lossy().nfc().collect()
}

/// [`project_key`] of a resolved path.
pub(crate) fn key_of_path(path: &str) -> String {
    // Like JavaScript, which counts UTF-16 units: a character beyond the first plane becomes two dashes.
    let key: String = path
        .encode_utf16()
        .map(|unit| char::from_u32(unit.into()).filter(char::is_ascii_alphanumeric).unwrap_or('-'))
        .collect();
    if key.len() <= LONGEST_KEY { key } else { format!("{}-{}", &key[..LONGEST_KEY], hash(path)) }
}

/// For a long path: the start of its folder's name, without the hash. CLIs have computed the hash in different ways.
pub(crate) fn long_prefix(key: &str) -> Option<&str> {
    (key.len() > LONGEST_KEY).then(|| &key[..=LONGEST_KEY])
}

/// djb2 in 32 bits over UTF-16 units; the absolute value in base 36.
pub(crate) fn hash(text: &str) -> String {
    let hash = text
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_shl(5).wrapping_sub(hash).wrapping_add(unit.into()));
    let mut rest = hash.unsigned_abs();
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(rest % 36, 36).unwrap_or('0'));
        rest /= 36;
        if rest == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// Whether this is a session id: a UUID with dashes.
pub(crate) fn is_session_id(id: &str) -> bool {
    id.len() == 36 && Uuid::try_parse(id).is_ok()
}

/// The id of the conversation that belongs to a key of your application, such as a customer's number. The same key
/// always gives the same id. For [`Options::conversation`](crate::Options::conversation).
///
/// The id is a UUID of version 5. Its namespace is the UUID of version 5 of the URL
/// `https://crates.io/crates/greenroom`, so that other programs can compute the id too. Two applications that share a
/// configuration folder should not share keys: begin each key with the application's name.
///
/// ```
/// let id = greenroom::conversation_id("shop/customer-42");
/// assert_eq!(id, "d593a506-ccdf-54c3-89b5-3521e13faeb6");
/// ```
pub fn conversation_id(key: &str) -> String {
    let namespace = Uuid::new_v5(&Uuid::NAMESPACE_URL, b"https://crates.io/crates/greenroom");
    Uuid::new_v5(&namespace, key.as_bytes()).to_string()
}

/// Refuses anything but a session id, because the id becomes part of a path.
pub(crate) fn check_session_id(id: &str) -> Result<()> {
    if is_session_id(id) {
        return Ok(());
    }
    Err(Error::invalid_option(format!("'{id}' is not a session id"))
        .with_help("give the UUID of the session, as in `Snapshot` or `Event::SessionCaptured`"))
}

/// The session id in the name of a transcript; `None` for other files.
pub(crate) fn session_id_of(file_name: &str) -> Option<&str> {
    file_name.strip_suffix(".jsonl").filter(|id| is_session_id(id))
}

/// Whether the subpath of a part of a session, such as a subagent, stays below the session's folder.
pub(crate) fn is_safe_subpath(subpath: &str) -> bool {
    let parts = || subpath.split(['/', '\\']);
    !subpath.is_empty()
        && !subpath.contains(['\0', ':'])
        && parts().all(|part| !part.is_empty() && part != "." && part != "..")
        && Path::new(subpath).components().all(|part| matches!(part, Component::Normal(_)))
}

/// The CLI's configuration folder in an environment: `CLAUDE_CONFIG_DIR`, or `.claude` in the home.
///
/// # Errors
/// [`InvalidOption`](crate::ErrorKind::InvalidOption) if there is no home; the help is for who starts a session.
pub(crate) fn config_dir(look_up: impl Fn(&str) -> Option<String>) -> Result<PathBuf> {
    config_dir_of(look_up, std::env::home_dir)
}

fn config_dir_of(
    look_up: impl Fn(&str) -> Option<String>,
    home: impl FnOnce() -> Option<PathBuf>,
) -> Result<PathBuf> {
    let set = |name: &str| look_up(name).filter(|value| !value.is_empty());
    if let Some(dir) = set("CLAUDE_CONFIG_DIR") {
        return Ok(dir.nfc().collect::<String>().into());
    }
    let home = set("HOME").map(PathBuf::from).or_else(home).ok_or_else(|| {
        Error::invalid_option("this process has no home directory, so the CLI's configuration folder is not known")
            .with_help("set HOME or CLAUDE_CONFIG_DIR: in the environment of this process, or with `SessionBuilder::env`")
    })?;
    Ok(nfc(&home.join(".claude")).into())
}

/// The value of a variable in the environment of a CLI with these options.
pub(crate) fn variable(options: &Options, name: &str) -> Option<String> {
    let inherited = || std::env::var(name).ok().filter(|_| options.env_policy.inherits(name));
    options.env.get(name).cloned().or_else(inherited)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_project_folder_is_named_as_the_cli_names_it() {
        for (path, key) in [
            ("/tmp/.tmp0OZD6L", "-tmp--tmp0OZD6L"),
            ("/home/me/Über uns", "-home-me--ber-uns"),
            ("/a/😀", "-a---"),
            ("", ""),
        ] {
            assert_eq!(key_of_path(path), key);
        }
    }

    #[test]
    fn a_long_name_is_cut_and_gets_a_hash() {
        let path = format!("/{}", "a".repeat(300));
        let key = key_of_path(&path);
        assert_eq!((&key[..201], key.as_bytes()[200]), (format!("-{}-", "a".repeat(199)).as_str(), b'-'));
        assert_eq!(long_prefix(&key), Some(&key[..201]));
        // JavaScript: `h = (h << 5) - h + c | 0`.
        assert_eq!(hash("hello"), "1n1e4y");
        assert_eq!(hash(""), "0");
        assert_eq!(hash("polygenelubricants"), "zik0zk", "the hash whose absolute value overflows 32 bits");
    }

    #[test]
    fn only_a_uuid_is_a_session_id() {
        assert!(is_session_id("1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37"));
        assert!(is_session_id("1CB85D28-3D2D-4B39-BD1C-0F6C0BD52B37"));
        for id in ["", "..", "1cb85d283d2d4b39bd1c0f6c0bd52b37", "{1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37}"] {
            assert!(!is_session_id(id), "{id}");
            assert!(check_session_id(id).unwrap_err().to_string().contains(&format!("'{id}'")));
        }
    }

    #[test]
    fn a_subpath_stays_below_its_session() {
        assert!(is_safe_subpath("subagents/agent-1"));
        assert!(is_safe_subpath("subagents/workflows/run-1/agent-2"));
        for bad in ["", "/etc/x", "../x", "a/../b", "a//b", "a/./b", "\\x", "C:x", "a\0b", "a/", "..\\x"] {
            assert!(!is_safe_subpath(bad), "{bad:?}");
        }
    }

    #[test]
    fn the_configuration_folder_is_named_or_in_the_home() {
        let dir = |vars: &[(&str, &str)]| {
            config_dir(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into()))
                .unwrap()
        };
        assert_eq!(dir(&[("HOME", "/h")]), Path::new("/h/.claude"));
        assert_eq!(dir(&[("HOME", "/h"), ("CLAUDE_CONFIG_DIR", "/c")]), Path::new("/c"));
        assert_eq!(dir(&[("HOME", "/h"), ("CLAUDE_CONFIG_DIR", "")]), Path::new("/h/.claude"));
    }

    #[test]
    fn without_a_home_the_help_is_for_who_starts_a_session() {
        let error = config_dir_of(|_| None, || None).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidOption);
        let help = error.help().unwrap();
        for remedy in ["HOME", "CLAUDE_CONFIG_DIR", "`SessionBuilder::env`"] {
            assert!(help.contains(remedy), "{help}");
        }
        assert!(!help.contains("LocalSessions"), "{help}");
    }

    proptest! {
        #[test]
        fn a_key_is_a_valid_folder_name_that_depends_only_on_the_path(path in "/\\PC{0,400}") {
            let key = key_of_path(&path);
            prop_assert!(key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
            prop_assert!(key.len() <= LONGEST_KEY + 1 + 6);
            prop_assert_eq!(&key, &key_of_path(&path));
            let units = path.encode_utf16().count();
            prop_assert_eq!(long_prefix(&key).is_some(), units > LONGEST_KEY);
            if units <= LONGEST_KEY {
                prop_assert_eq!(key.len(), units);
            }
        }

        #[test]
        fn composed_and_decomposed_names_share_a_folder(name in "[a-zäöüéñ]{1,40}") {
            let decomposed: String = name.nfd().collect();
            let nfc_of = |name: &str| key_of_path(&nfc(Path::new(name)));
            prop_assert_eq!(nfc_of(&name), nfc_of(&decomposed));
        }

        #[test]
        fn a_safe_subpath_never_leaves_the_folder(subpath in "[a./\\\\:\0]{0,12}") {
            if is_safe_subpath(&subpath) {
                let joined = Path::new("/base").join(&subpath);
                prop_assert!(joined.starts_with("/base"));
                prop_assert!(joined.components().all(|part| part != Component::ParentDir));
            }
        }
    }
}
