//! Deletions whose files cannot be removed.

use std::path::PathBuf;

use super::*;
use crate::actor::deletion;

/// Marks a name as being deleted whose files cannot be removed: a symbolic link lies where its folder should be. Returns the link and the
/// folder.
async fn stuck_deletion(stage: &Stage, name: &Name) -> (PathBuf, PathBuf) {
    stage.shared.folders.open().await.unwrap();
    stage.accept(accept(name.session(), HOUR)).await;
    let owner = stage.claim(name).await;
    let record = stage.backend.name_record(name.clone()).await.unwrap().unwrap();
    let own = stage.shared.folders.create(&record).await.unwrap();
    assert_eq!(stage.shared.backend.release(owner).await.unwrap(), Owned::Done(true));
    let (folder, away) = (own.work.parent().unwrap(), own.work.parent().unwrap().with_extension("away"));
    std::fs::rename(folder, &away).unwrap();
    std::os::unix::fs::symlink(&away, folder).unwrap();
    assert_eq!(deletion::mark(&stage.shared, name).await.unwrap(), Marked::Done);
    assert!(deletion::erase(&stage.shared, name).await.is_err());
    let record = stage.backend.name_record(name.clone()).await.unwrap().unwrap();
    assert!(matches!(record.state, NameState::Deleting { .. }));
    (folder.to_owned(), away)
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_delays_no_other_deletion() {
    let mut stage = Stage::new().await;
    stuck_deletion(&stage, &"acme/a stuck one".parse::<Name>().unwrap()).await;
    let _keeper = stage.keeper();
    // Its pause is 15 s by then.
    tokio::time::sleep(SECOND * 60).await;
    stage.events = stage.shared.events.subscribe();
    stage.accept(accept("b", HOUR)).await;
    let before = Instant::now();
    let name = "acme/b".parse::<Name>().unwrap();
    assert_eq!(stage.backend.delete(name.clone()).await.unwrap(), Marked::Done);
    let deleted = FleetEvent::Deleted { name };
    stage.event(|event| *event == deleted).await;
    assert!(before.elapsed() <= LOOK + SECOND, "{:?}", before.elapsed());
    tokio::time::sleep(SECOND * 60 - before.elapsed()).await;
    let events = std::iter::from_fn(|| stage.events.try_recv().ok());
    let failures = events.filter(|event| matches!(event, FleetEvent::DeletionFailed { .. })).count();
    assert!((3..=5).contains(&failures), "{failures} failures in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_files_cannot_be_removed_is_tried_again() {
    let mut stage = Stage::new().await;
    let name = "acme/a".parse::<Name>().unwrap();
    let (folder, away) = stuck_deletion(&stage, &name).await;

    let _keeper = stage.keeper();
    for _ in 0..3 {
        let failed = stage.event(|event| matches!(event, FleetEvent::DeletionFailed { .. })).await;
        let FleetEvent::DeletionFailed { why, .. } = failed else { unreachable!() };
        assert!(why.contains("a symbolic link lies where a folder should be"), "{why}");
    }
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    let event = stage.event(|event| matches!(event, FleetEvent::Deleted { .. })).await;
    assert_eq!(event, FleetEvent::Deleted { name: name.clone() });
    assert!(!folder.exists());
    assert_eq!(stage.backend.name_record(name.clone()).await.unwrap(), None);
    assert_eq!(deletion::mark(&stage.shared, &name).await.unwrap(), Marked::Gone);
}
