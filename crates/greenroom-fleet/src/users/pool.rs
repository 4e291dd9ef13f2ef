//! The pool as the application names it.

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use greenroom::options::OsUser;
use rustix::process::{geteuid, getuid};

use crate::error::FleetError;

/// Most users of a pool.
const MOST: usize = 65_536;

/// Users of the operating system, for the CLIs of a fleet's sessions: see [`FleetBuilder::users`](crate::FleetBuilder::users).
///
/// The users belong to the fleet alone: it kills their processes and removes their files in `/tmp` and the like after each session.
/// Use none that a person or another service uses, and none with entries in `/etc/subuid`.
#[derive(Clone, Debug)]
pub struct UserPool(Named);

#[derive(Clone, Debug)]
enum Named {
    Names(Vec<String>),
    Ids(Range<u32>),
}

impl UserPool {
    /// Users by their names in `/etc/passwd`, each with its own group there. Give each user a group that no other user is in.
    ///
    /// ```
    /// use greenroom_fleet::UserPool;
    ///
    /// let pool = UserPool::of((1..=40).map(|number| format!("agent-{number}")));
    /// # drop(pool);
    /// ```
    pub fn of(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(Named::Names(names.into_iter().map(Into::into).collect()))
    }

    /// Users by their ids, with the group of the same number. The system need not know their names.
    ///
    /// ```
    /// use greenroom_fleet::UserPool;
    ///
    /// let pool = UserPool::ids(60_000..60_040);
    /// # drop(pool);
    /// ```
    pub fn ids(ids: Range<u32>) -> Self {
        Self(Named::Ids(ids))
    }

    /// The ids of the users.
    pub(super) fn resolve(&self, live: usize) -> Result<Vec<OsUser>, FleetError> {
        let users = match &self.0 {
            Named::Ids(ids) => ids.clone().take(MOST + 1).map(|id| OsUser::new(id, id)).collect(),
            Named::Names(names) => {
                let known = fs::read_to_string("/etc/passwd").map_err(|error| {
                    invalid(format!("the users of the pool are not known: /etc/passwd: {error}"))
                })?;
                names.iter().map(|name| user_in(&known, name)).collect::<Result<Vec<_>, _>>()?
            }
        };
        check(&users, live)?;
        Ok(users)
    }
}

fn invalid(why: String) -> FleetError {
    FleetError::Invalid(why)
}

/// The user of a name in the text of `/etc/passwd`: `name:password:uid:gid:…`.
pub(super) fn user_in(known: &str, name: &str) -> Result<OsUser, FleetError> {
    let lines = known.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let ids = lines.filter(|line| line.first() == Some(&name)).find_map(|line| {
        let [uid, gid] = [2, 3].map(|nth| line.get(nth)?.parse().ok());
        Some(OsUser::new(uid?, gid?))
    });
    ids.ok_or_else(|| {
        invalid(format!(
            "/etc/passwd has no user '{}' of the pool: create it (`useradd --system`), or name ids with `UserPool::ids`",
            name.escape_debug()
        ))
    })
}

pub(super) fn check(users: &[OsUser], live: usize) -> Result<(), FleetError> {
    let mut seen = HashSet::new();
    for OsUser { uid, .. } in users {
        if *uid == 0 || *uid == u32::MAX || [getuid(), geteuid()].iter().any(|own| own.as_raw() == *uid) {
            return Err(invalid(format!(
                "the user {uid} of the pool is root, the user of this service, or none: name others"
            )));
        }
        if !seen.insert(*uid) {
            return Err(invalid(format!("the user {uid} is in the pool twice: name it once")));
        }
    }
    if users.len() < live {
        return Err(invalid(format!(
            "the pool has {} users, and each of the `live` sessions, {live} at most, needs its own: name more users, or lower \
             `FleetLimits::live`",
            users.len()
        )));
    }
    if users.len() > MOST {
        return Err(invalid(format!("the pool has more than {MOST} users: name fewer")));
    }
    Ok(())
}

/// The reason why a user cannot reach a folder. `None`: all users can.
pub(super) fn barred(folder: &Path, users: &[OsUser]) -> Option<String> {
    // An error: the check is left to the start of the CLI.
    let folder = fs::canonicalize(folder).ok()?;
    folder.ancestors().find_map(|above| {
        let found = fs::metadata(above).ok()?;
        let mode = found.permissions().mode();
        let passes = |user: &&OsUser| {
            let bit = match (found.uid() == user.uid, found.gid() == user.gid) {
                (true, _) => 0o100,
                (false, true) => 0o010,
                (false, false) => 0o001,
            };
            mode & bit != 0
        };
        let OsUser { uid, .. } = users.iter().find(|user| !passes(user))?;
        Some(format!(
            "the user {uid} of the pool cannot pass the folder {} (mode {:04o}), in which the folder of the sessions lies: let it \
             pass (`chmod o+x`), or name another folder with `FleetBuilder::folder`",
            above.display(),
            mode & 0o7777
        ))
    })
}
