//! Gives a session that a profile has built its folders, its conversation and its user of the system.

use std::path::Path;

use greenroom::options::OsUser;
use greenroom::sessions::LocalSessions;
use greenroom::{Options, SessionBuilder};

use super::name_file::NameFile;
use super::{Folders, blocking};
use crate::error::FleetError;
use crate::profile::ActivationContext;

const CONFIG: &str = "CLAUDE_CONFIG_DIR";

impl Folders {
    /// Sets the working directory, the configuration folder and the conversation of a session. The first two stay as they are
    /// if the profile has set them. With a `user`, also the user, and `HOME` and `TMPDIR` unless the profile has set them.
    ///
    /// # Errors
    /// [`FleetError::Invalid`] if the profile chooses the conversation, or a user in place of this one; [`FleetError::Files`] if `name.json` cannot be written.
    pub(crate) async fn apply(
        &self,
        builder: SessionBuilder,
        activation: &ActivationContext,
        user: Option<OsUser>,
    ) -> Result<SessionBuilder, FleetError> {
        let mut elsewhere = Ok(NameFile::default());
        let builder = builder.configure(|options| elsewhere = set(options, activation));
        let folder = self.folder(activation.conversation);
        let mut with_user = Ok(());
        let builder = builder.configure(|options| {
            with_user = user.map_or(Ok(()), |user| run_as(options, user, &folder, activation));
        });
        with_user?;
        let NameFile { config_folders, lock_folders, .. } = elsewhere?;
        blocking(move || {
            NameFile::change(&folder, |file| {
                file.config_folders.extend(config_folders);
                file.lock_folders.extend(lock_folders);
            })
        })
        .await?;
        Ok(builder)
    }
}

/// Has the CLI run as a user of the pool, with a home that belongs to it.
fn run_as(
    options: &mut Options,
    user: OsUser,
    folder: &Path,
    activation: &ActivationContext,
) -> Result<(), FleetError> {
    if options.user.is_some() {
        return Err(FleetError::Invalid(format!(
            "the profile of the session '{}' sets the option `user`, and the fleet has a pool of users, from which each session gets \
             its own: leave the option or `FleetBuilder::users` out",
            activation.name.to_string().escape_debug(),
        )));
    }
    options.user = Some(user);
    for (variable, name) in [("HOME", "home"), ("TMPDIR", "tmp")] {
        let path = || folder.join(name).to_string_lossy().into_owned();
        options.env.entry(variable.to_owned()).or_insert_with(path);
    }
    Ok(())
}

/// Sets the options. Returns the folders of the profile in which the session will have files.
fn set(options: &mut Options, activation: &ActivationContext) -> Result<NameFile, FleetError> {
    check_conversation(options, activation)?;
    options.conversation = Some(activation.conversation.to_string());
    options.cwd.get_or_insert_with(|| activation.working_directory.clone());
    let mut elsewhere = NameFile::default();
    if options.env.contains_key(CONFIG) {
        let sessions = LocalSessions::of(options).map_err(FleetError::Session)?;
        // A relative folder is relative to the working directory of the CLI.
        let cwd = options.cwd.as_deref().unwrap_or(&activation.working_directory);
        elsewhere.config_folders.insert(absolute(&cwd.join(sessions.config_dir())));
    } else {
        let config = activation.config_directory.to_string_lossy().into_owned();
        options.env.insert(CONFIG.to_owned(), config);
    }
    elsewhere.lock_folders.extend(options.lock_dir.as_deref().map(absolute));
    Ok(elsewhere)
}

fn absolute(path: &Path) -> std::path::PathBuf {
    // An error: the working directory of this process is gone.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Finds out if the options of a profile leave the conversation to the fleet.
///
/// # Errors
/// [`FleetError::Invalid`] if they do not.
pub(crate) fn check_conversation(
    options: &Options,
    activation: &ActivationContext,
) -> Result<(), FleetError> {
    let Some(option) = chosen_conversation(options, activation) else { return Ok(()) };
    Err(FleetError::Invalid(format!(
        "the profile sets the option `{option}`, and the fleet chooses the conversation: leave the option out, and use \
         `ActivationContext::conversation` where you need the id",
    )))
}

/// The option by which a profile chooses the conversation, or keeps it from being found again.
fn chosen_conversation(options: &Options, activation: &ActivationContext) -> Option<&'static str> {
    let own = activation.conversation.to_string();
    let other = options.conversation.as_ref().is_some_and(|id| !id.eq_ignore_ascii_case(&own));
    [
        ("conversation", other),
        ("resume", options.resume.is_some()),
        ("resume_session_at", options.resume_session_at.is_some()),
        ("resume_drops_turn", options.resume_drops_turn.is_some()),
        ("fork_session", options.fork_session),
        ("continue_conversation", options.continue_conversation),
        ("session_id", options.session_id.is_some()),
        ("persist_session", options.persist_session == Some(false)),
    ]
    .into_iter()
    .find_map(|(option, is_set)| is_set.then_some(option))
}
