//! The helper by which tests wait.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;

use crate::common::{SOON, in_time, within};
use crate::wait::found;

async fn text_of(waits: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(waits).catch_unwind().await.unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_says_for_what_and_where() {
    let text = text_of(in_time("the spring", std::future::pending())).await;
    assert!(text.starts_with("the spring: not within "), "{text}");
    assert!(text.contains("tests/offline/testkit/waits.rs:") && text.contains("pending())"), "{text}");
    let text = text_of(within(SOON, std::future::pending())).await;
    assert!(text.starts_with("not within 300s: ") && text.contains("within(SOON, "), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_paused_clock_may_take_longer_than_the_limit_of_real_time() {
    in_time("an hour", tokio::time::sleep(Duration::from_secs(3600))).await;
    let mut looks = 0;
    let seen = found("the third look", || {
        looks += 1;
        (looks == 3).then_some(looks)
    });
    assert_eq!(seen.await, 3);
}
