//! Users of the system that are lent to live sessions, one to each.
//!
//! ```text
//!            take: locked, and the session written into the slip            release
//!   Free ───────────────────────────────────────────────────────────► Held ─────────► Cleaning ──► Free
//!    ▲ ▲                                                               │                 │ something of the user is left
//!    │ │ cleaned by the next opening, or a take                        ▼                 ▼
//!    │ └───────────────── Left: the slip still names a session ◄── the service is killed │
//!    │                                                                                   │
//!    └──────── cleaned by a later take, when no other user is free ◄── Aside ◄───────────┘
//!                                                                        ▲
//!   Free ── a process of the user runs that no session has started ──────┘
//! ```
//!
//! Cleaning, in this order:
//!
//! 1. The folder of the session is closed. The files in it stay the user's until the session is activated again, and nobody reaches
//!    them.
//! 2. All processes of the user are ended, also those that no session knows of.
//! 3. The user's files in the system's folders for temporary files and its System V objects are removed.
//! 4. The slip is emptied.
//!
//! The slip of a user (`slip.rs`) is a file that is locked while the user is held. So several fleets on one folder, such as two
//! versions of a service during a deploy, never lend a user twice; and after a crash whoever takes the user next knows what to close.
//! A session gets its last user again if that one is free: its files are its own already.

mod clean;
mod pool;
mod rights;
mod slip;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use greenroom::options::OsUser;
use greenroom::transport::processes_of_user;
use uuid::Uuid;

use crate::error::FleetError;
use crate::files::owner::NewOwner;
use crate::files::{Folders, blocking};
use crate::lock::locked;
pub use pool::UserPool;
use slip::Slip;

/// The users of a fleet.
#[derive(Clone)]
pub(crate) struct Users {
    folders: Folders,
    /// The ids of all users.
    pool: Arc<[u32]>,
    free: Arc<Mutex<Vec<Free>>>,
}

/// A user that no session of this fleet holds.
#[derive(Clone, Copy)]
struct Free {
    user: OsUser,
    /// The user could not be cleaned.
    is_aside: bool,
}

/// A user that a session holds. If it is dropped without [`Users::release`], this fleet does not lend the user again, and the next
/// fleet cleans it.
pub(crate) struct HeldUser {
    slip: Slip,
    owner: NewOwner,
}

impl HeldUser {
    pub(crate) fn user(&self) -> OsUser {
        self.owner.user
    }

    /// The rule by which files become the user's.
    pub(crate) fn owner(&self) -> NewOwner {
        self.owner.clone()
    }
}

/// A user that was set aside, and the reason.
pub(crate) struct SetAside {
    pub(crate) uid: u32,
    pub(crate) why: String,
}

impl Users {
    /// The users of a pool, for at most `live` sessions at once.
    ///
    /// # Errors
    /// [`FleetError::Invalid`] if this process lacks a right, or the pool cannot serve.
    pub(crate) fn new(pool: &UserPool, live: usize, folders: Folders) -> Result<Self, FleetError> {
        rights::check()?;
        let users = pool.resolve(live)?;
        let free = users.iter().map(|user| Free { user: *user, is_aside: false }).collect();
        let pool = users.iter().map(|user| user.uid).collect();
        Ok(Self { folders, pool, free: Arc::new(Mutex::new(free)) })
    }

    /// Creates the folder of the slips, cleans the users that an earlier service held when it was killed, and finds out whether all users
    /// can reach the sessions' folders.
    ///
    /// # Errors
    /// [`FleetError::Files`] if the folder cannot be created, [`FleetError::Invalid`] if a user cannot pass a folder above it.
    pub(crate) async fn open(&self) -> Result<(), FleetError> {
        let (users, this) =
            (locked(&self.free).iter().map(|free| free.user).collect::<Vec<_>>(), self.clone());
        let settle = users.clone();
        blocking(move || {
            slip::create_folder(&this.slips())?;
            for OsUser { uid, .. } in settle {
                let is_left = !matches!(slip::session_of(&this.slips(), uid), Ok(None));
                if let Some(why) = is_left.then(|| this.settled(uid).err()).flatten() {
                    // The next session that would get it sets it aside.
                    tracing::warn!(
                        uid,
                        why,
                        "a user of the pool that an earlier service held could not be cleaned"
                    );
                }
            }
            Ok(())
        })
        .await?;
        let root = self.folders.root().to_owned();
        match blocking(move || Ok(pool::barred(&root, &users))).await? {
            Some(why) => Err(FleetError::Invalid(why)),
            None => Ok(()),
        }
    }

    fn slips(&self) -> PathBuf {
        self.folders.root().join("users")
    }

    /// Lends a clean user to a session. Calls `aside` for each user that could not be cleaned and was not set aside before.
    ///
    /// # Errors
    /// The reason why no user is free. It does not count against the session.
    pub(crate) async fn take(
        &self,
        conversation: Uuid,
        mut aside: impl FnMut(SetAside) + Send,
    ) -> Result<HeldUser, String> {
        let mut tried = HashSet::new();
        let folders = self.folders.clone();
        let last =
            blocking(move || Ok(folders.last_user(conversation))).await.map_err(|error| error.to_string())?;
        if let Some(uid) = last.filter(|last| !self.pool.contains(last))
            && self.still_names(uid, conversation).await
        {
            return Err(not_clean(uid));
        }
        while let Some(free) = self.pick(&tried, last) {
            tried.insert(free.user.uid);
            let this = self.clone();
            let taken = blocking(move || Ok(this.prepare(free.user, conversation))).await;
            let why = match taken.unwrap_or_else(|error| Taken::Not(error.to_string())) {
                Taken::Held(held) => return Ok(held),
                Taken::Elsewhere => None,
                Taken::Not(why) => Some(why),
            };
            let is_aside = why.is_some();
            locked(&self.free).push(Free { is_aside, ..free });
            if let Some(why) = why
                && !free.is_aside
            {
                aside(SetAside { uid: free.user.uid, why });
            }
            // Its processes may still use the session's files.
            if let Some(uid) = last.filter(|last| *last == free.user.uid)
                && self.still_names(uid, conversation).await
            {
                return Err(not_clean(uid));
            }
        }
        Err("no user of the pool is free and clean: see the log for users that were set aside, and for the reasons".to_owned())
    }

    /// Takes the best user out of the free ones: the session's last one, one that is clean, any.
    fn pick(&self, tried: &HashSet<u32>, last: Option<u32>) -> Option<Free> {
        let mut free = locked(&self.free);
        let best = (0..free.len())
            .filter(|nth| !tried.contains(&free[*nth].user.uid))
            .min_by_key(|nth| (Some(free[*nth].user.uid) != last, free[*nth].is_aside))?;
        // Not `swap_remove`: the user that was used last is lent again last.
        Some(free.remove(best))
    }

    async fn still_names(&self, uid: u32, conversation: Uuid) -> bool {
        let slips = self.slips();
        let names = blocking(move || Ok(slip::session_of(&slips, uid))).await;
        // A slip that cannot be read may name it.
        !matches!(names, Ok(Ok(session)) if session != Some(conversation))
    }

    /// Locks the slip of a user, and cleans the user if a service held it when it was killed. Returns whether it did. `None`: another
    /// fleet holds the user.
    fn settled(&self, uid: u32) -> Result<Option<(Slip, bool)>, String> {
        let failed = |error: std::io::Error| error.to_string();
        let Some(mut slip) = Slip::take(&self.slips(), uid).map_err(failed)? else { return Ok(None) };
        let left = slip.session().map_err(failed)?;
        if let Some(session) = left {
            self.clean(uid, session)?;
            slip.empty().map_err(failed)?;
        }
        Ok(Some((slip, left.is_some())))
    }

    fn prepare(&self, user: OsUser, conversation: Uuid) -> Taken {
        let prepared = || -> Result<Option<HeldUser>, String> {
            let failed = |error: std::io::Error| error.to_string();
            let Some((mut slip, was_left)) = self.settled(user.uid)? else { return Ok(None) };
            if !was_left && !processes_of_user(user.uid).map_err(failed)?.is_empty() {
                return Err("a process of the user runs that no session has started: give the fleet users that nobody else uses".into());
            }
            let since = slip.write(conversation).map_err(failed)?;
            let owner = NewOwner { user, pool: self.pool.clone(), since };
            Ok(Some(HeldUser { slip, owner }))
        };
        match prepared() {
            Ok(Some(held)) => Taken::Held(held),
            Ok(None) => Taken::Elsewhere,
            Err(why) => Taken::Not(why),
        }
    }

    /// Takes a user back, when the processes of its session are gone, and cleans it. Returns why it was set aside if that fails.
    pub(crate) async fn release(&self, held: HeldUser) -> Option<SetAside> {
        let (user, this) = (held.user(), self.clone());
        let HeldUser { mut slip, .. } = held;
        let cleaned = blocking(move || {
            let cleaned = slip.session().map_err(|error| error.to_string()).and_then(|session| {
                session.map_or(Ok(()), |session| this.clean(user.uid, session))?;
                slip.empty().map_err(|error| error.to_string())
            });
            Ok(cleaned)
        });
        let why = cleaned.await.map_err(|error| error.to_string()).and_then(|cleaned| cleaned).err();
        locked(&self.free).push(Free { user, is_aside: why.is_some() });
        why.map(|why| SetAside { uid: user.uid, why })
    }

    /// Closes the folder of a user's session, and removes all that the user has left.
    fn clean(&self, uid: u32, session: Uuid) -> Result<(), String> {
        self.folders.close_to(session, uid).map_err(|error| error.to_string())?;
        clean::clean(uid)
    }
}

fn not_clean(uid: u32) -> String {
    format!(
        "processes of the user {uid}, as which the session's last CLI ran, may still use its files: end them"
    )
}

/// The end of an attempt to take a user.
enum Taken {
    Held(HeldUser),
    /// Another fleet on this folder holds it.
    Elsewhere,
    /// It could not be cleaned.
    Not(String),
}
