//! A tenant moves to another schema while others work in both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use greenroom_fleet::admin::Admin;
use greenroom_fleet::backend::Backend;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::tenants::{Kept, Tenants, accept, joined, tenant, turn};
use crate::{connect, schema, server};

/// Turns of another tenant at a backend, until it is over.
async fn work(backend: Arc<dyn Backend>, number: usize, over: Arc<AtomicBool>, turns: Arc<AtomicU32>) {
    let (node, conversation) = (joined(&*backend).await, Uuid::new_v4());
    let name = format!("tenant {number}/works");
    while !over.load(Ordering::SeqCst) {
        turn(&*backend, node, accept(&name, conversation), 1).await;
        turns.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_moves_under_the_load_of_others_however_often_the_move_is_killed() {
    let Some(address) = server::address() else { return };
    let (from, to) = (connect(&address, &schema()).await, connect(&address, &schema()).await);
    let tenants = Tenants::on(&from).await;
    let (acme, other) = (tenants.acme(&from).await, tenants.other(&from).await);
    let (over, turns, mut working) =
        (Arc::new(AtomicBool::new(false)), Arc::<AtomicU32>::default(), JoinSet::new());
    for number in 0..4 {
        let backend = if number % 2 == 0 { from.clone() } else { to.clone() };
        working.spawn(work(Arc::new(backend), number, over.clone(), turns.clone()));
    }
    let (here, there) = (Admin::new(from.clone()), Admin::new(to.clone()));
    let (mut killed, mut limit) = (0, Duration::from_millis(10));
    while tokio::time::timeout(limit, here.move_tenant(&tenant("acme"), &there))
        .await
        .map(Result::unwrap)
        .is_err()
    {
        (killed, limit) = (killed + 1, limit.mul_f64(1.3));
    }
    over.store(true, Ordering::SeqCst);
    working.join_all().await;
    println!("killed {killed} times, beside {} turns of others", turns.load(Ordering::SeqCst));
    assert!(killed > 0 && turns.load(Ordering::SeqCst) > 0);
    assert_eq!(tenants.acme(&to).await, acme);
    assert_eq!((tenants.acme(&from).await, tenants.other(&from).await), (Kept::default(), other));
}
