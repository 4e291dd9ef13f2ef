//! The end of a fleet, for moments that no fleet can be stopped at.

use super::*;
use crate::backend::MemoryBackend;
use crate::limits::FleetLimits;
use crate::stage::joined;

/// A step hangs where neither a kill nor a lost lease ends it: in the profile, or on a disk.
#[tokio::test(start_paused = true)]
async fn callers_wait_for_a_step_that_hangs_up_to_a_limit() {
    let shared = joined(MemoryBackend::new(), FleetLimits::default()).await;
    let cells = [NameCell::new("acme/a".parse::<Name>().unwrap())];
    let (goes_on, hangs) = oneshot::channel::<()>();
    cells[0].steps.spawn(hangs);
    let nodes = async || shared.backend.nodes(None, 10).await.unwrap().len();
    let callers = async {
        tokio::time::timeout(ENDS * 2, shared.ended.cancelled()).await.expect("the callers wait on");
        assert_eq!(nodes().await, 1, "the node stays, because the step may still start a CLI");
        goes_on.send(()).unwrap();
    };
    tokio::join!(end_sessions(&shared, &cells, true, true), callers);
    assert_eq!(nodes().await, 0);
}
