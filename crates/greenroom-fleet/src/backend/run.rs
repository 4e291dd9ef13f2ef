//! Carries out a request by its rule: reads the rows that the rule wants, and commits those that it writes.

use std::time::Duration;

use super::Backend;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::{Attempt, Committed, Lane, Result, Rows, Step, Wanted, try_on};

/// Conflicts of a request before it pauses between two attempts.
const CONFLICTS_WITHOUT_PAUSE: u32 = 8;

/// Conflicts after which a request is [`Unavailable`](BackendErrorKind::Unavailable).
const CONFLICTS: u32 = 200;

/// Reads of one attempt. A page reads again for rows in place of those that it leaves out.
const ROUNDS: u32 = 10_000;

/// Rows that are read again with those that a request lacks, so that all of them are of one moment.
const FEW: usize = 512;

/// Times that an attempt reads its rows again as a whole. After them, a request for a page answers from rows of several moments, and
/// any other request counts a conflict.
const REREADS: u32 = 3;

/// The longest pause before an attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// Carries out a request by its rule.
pub(super) async fn request<T: Send>(
    backend: &(impl Backend + ?Sized),
    name: &'static str,
    rule: impl Fn(&mut Step<'_>) -> Result<T> + Send + Sync,
) -> Result<T> {
    let mut answer = None;
    let carried_out = Box::pin(async { answer = Some(run(backend, Lane::of(name), rule).await) });
    backend.carry_out(name, carried_out).await?;
    answer.unwrap_or_else(|| {
        let message = format!("the backend has not carried out the request `{name}`: repeat it");
        Err(BackendError::new(BackendErrorKind::Unavailable, message))
    })
}

/// Carries out a request. It runs again when it lacks rows, and when a row that it has read has changed.
pub(super) async fn run<T: Send>(
    backend: &(impl Backend + ?Sized),
    lane: Lane,
    request: impl Fn(&mut Step<'_>) -> Result<T> + Send + Sync,
) -> Result<T> {
    let mut known = Wanted::default();
    for conflicts in 0..CONFLICTS {
        if conflicts >= CONFLICTS_WITHOUT_PAUSE {
            // By chance: requests that were in each other's way begin at different moments.
            tokio::time::sleep(PAUSE.mul_f64(fastrand::f64())).await;
        }
        // Until its commit, a request has one moment: ranges end there, and would be others at each read.
        let now = backend.now();
        let mut rows = Rows::default();
        if known != Wanted::default() {
            rows = backend.read(lane, known).await?;
        }
        // False once the rows are of several moments.
        let (mut at_one_moment, mut rereads) = (true, 0);
        known = 'attempt: {
            for _ in 0..ROUNDS {
                let Attempt { answer, commit, lacking, all, is_page } = try_on(&rows, now, &request);
                if lacking != Wanted::default() {
                    at_one_moment = rows.len() <= FEW;
                    match at_one_moment {
                        true => rows = backend.read(lane, all).await?,
                        false => rows.add(backend.read(lane, lacking).await?),
                    }
                    continue;
                }
                if !at_one_moment && rereads < REREADS {
                    rows = backend.read(lane, all).await?;
                    (at_one_moment, rereads) = (true, rereads + 1);
                    continue;
                }
                // Others change its rows all the time.
                if !at_one_moment && !is_page {
                    break 'attempt all;
                }
                let Some(commit) = commit else { return answer };
                let answer = answer?;
                match backend.commit(lane, commit).await? {
                    Committed::Done => return Ok(answer),
                    Committed::Conflict => break 'attempt all,
                }
            }
            Wanted::default()
        };
    }
    let message = format!(
        "other requests have changed the rows of this one {CONFLICTS} times in a row: repeat it, with fewer requests at a time"
    );
    Err(BackendError::new(BackendErrorKind::Unavailable, message))
}
