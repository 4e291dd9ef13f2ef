//! The session's claim on its conversation: taken at the start if the id is known, and moved when the CLI names another
//! conversation. Held across restarts of the CLI, and released when the session has ended.

use std::path::Path;
use std::sync::Mutex;

use crate::Options;
use crate::error::Result;
use crate::lock::lock;
use crate::sessions::{Claim, ConversationPlace, config_dir, is_session_id, lock_folders, variable};
use crate::transport::{Conversations, Transport, opens};

pub(crate) struct Claims {
    /// `None` if the session's conversation is not written to disk.
    place: Option<ConversationPlace>,
    /// Held while the claim is moved.
    turn: tokio::sync::Mutex<()>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Conversation(Claim),
    /// The session has ended; a claim that comes late is not kept.
    Ended,
}

impl Claims {
    /// The claims of a session, which holds none yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) if there is no configuration folder.
    pub(crate) fn new(options: &Options, transport: Option<&dyn Transport>) -> Result<Self> {
        let conversations = transport.map_or(Conversations::OfUser, Transport::conversations);
        let place = if options.persist_session == Some(false) {
            None
        } else {
            Some(match conversations {
                Conversations::Apart(number) => ConversationPlace::Transport(number),
                Conversations::OfUser => {
                    let config_dir = config_dir(|name| variable(options, name))?;
                    // Relative to the CLI's working directory, as the CLI takes it.
                    let base = options.cwd.as_deref().unwrap_or(Path::new("."));
                    let config_dir = base.join(config_dir);
                    let config_dir = std::path::absolute(&config_dir).unwrap_or(config_dir);
                    let of_another = options.user.is_some_and(|user| !user.is_this_process());
                    let locks = match &options.lock_dir {
                        Some(folder) => vec![folder.clone()],
                        None => lock_folders(Some(config_dir.as_path()).filter(|_| !of_another)),
                    };
                    ConversationPlace::Disk { config_dir, locks }
                }
            })
        };
        Ok(Self { place, turn: tokio::sync::Mutex::default(), held: Mutex::default() })
    }

    /// The CLI's configuration folder, if the conversation is written to this machine's disk.
    pub(crate) fn config_dir(&self) -> Option<&Path> {
        match &self.place {
            Some(ConversationPlace::Disk { config_dir, .. }) => Some(config_dir),
            Some(ConversationPlace::Transport(_)) | None => None,
        }
    }

    /// Checks that a conversation can be claimed.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if it cannot: a session without an id would fail in its first turn.
    pub(crate) async fn check(&self) -> Result<()> {
        match &self.place {
            Some(place) => Claim::check(place).await,
            None => Ok(()),
        }
    }

    /// Claims the conversation that the options open by its id, if they name one. Not for a fork, which does not write
    /// to its origin.
    pub(crate) async fn begin(&self, options: &Options) -> Result<()> {
        match opens(options).filter(|id| is_session_id(id)) {
            Some(id) => self.follow(|| Some(id.to_owned())).await,
            None => Ok(()),
        }
    }

    /// Claims the conversation that `named` returns, and releases the claim held before. `named` is called when earlier
    /// calls are done.
    ///
    /// # Errors
    /// The errors of [`Claim::take`]; the old claim is still held then.
    pub(crate) async fn follow(&self, named: impl FnOnce() -> Option<String>) -> Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        let _turn = self.turn.lock().await;
        let Some(id) = named() else { return Ok(()) };
        if matches!(&*lock(&self.held), Held::Conversation(claim) if claim.is_on(&id)) {
            return Ok(());
        }
        let claim = Claim::take(place, &id).await?;
        let mut held = lock(&self.held);
        if !matches!(*held, Held::Ended) {
            *held = Held::Conversation(claim);
        }
        Ok(())
    }

    /// Releases the claim for good.
    pub(crate) fn release(&self) {
        *lock(&self.held) = Held::Ended;
    }
}
