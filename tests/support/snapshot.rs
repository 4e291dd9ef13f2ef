//! Snapshots on a busy machine: one leaves out a part of the session that does not answer within a second.

use greenroom::report::CliSnapshot;
use greenroom::{Session, Snapshot};

use crate::wait::in_time;

/// The CLI of a session, as soon as a snapshot has it.
///
/// # Panics
/// As [`in_time`], and if the session has ended.
#[track_caller]
pub(crate) fn reported_cli(session: &Session) -> impl Future<Output = CliSnapshot> {
    in_time("a snapshot with the CLI", async move {
        loop {
            match session.snapshot().await {
                Ok(Snapshot { cli: Some(cli), .. }) => return cli,
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => panic!("no snapshot: {error}"),
            }
        }
    })
}
