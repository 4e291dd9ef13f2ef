//! Fleets on a file: power cuts, disks that fail, and files that are refused.
//!
//! The file's thread works while tokio's clock is paused, so these tests run on the real clock, and wait for events
//! alone.

mod full;
mod names;
mod power;
mod refused;

use std::path::Path;

use greenroom_fleet::backend::LocalBackend;
use greenroom_fleet::testkit::SimulatedDisk;
use greenroom_fleet::{BackendError, BackendErrorKind, Fleet, FleetBuilder, FleetError, FleetEvent};

use crate::scenes::{Clis, Log, session};

/// A fleet's definition, with its CLIs and the folder for the files of its sessions.
fn on(backend: LocalBackend, clis: &Clis, folder: &Path) -> FleetBuilder {
    let clis = clis.clone();
    Fleet::builder()
        .backend(backend)
        .folder(folder)
        .configure(|limits| (limits.live, limits.activations_at_once) = (20, 20))
        .profile("default", move |cx| session(&clis, cx.name.session()))
}

async fn on_disk(disk: &SimulatedDisk) -> LocalBackend {
    LocalBackend::on_disk(disk).await.unwrap()
}

/// The backend's error.
fn of_backend<T>(refused: Result<T, FleetError>) -> BackendError {
    match refused {
        Err(FleetError::Backend(error)) => error,
        Err(other) => panic!("no error of the backend: {other:?}"),
        Ok(_) => panic!("it was not refused"),
    }
}

fn unavailable(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::BackendUnavailable { .. })
}

/// No session of the fleet was ended for the backend's sake.
fn assert_unharmed(log: &Log) {
    let harmed = |event: &FleetEvent| {
        matches!(
            event,
            FleetEvent::Fenced { .. }
                | FleetEvent::LeaseLost { .. }
                | FleetEvent::Passivating { .. }
                | FleetEvent::Failed { .. }
                | FleetEvent::ActorRestarted { .. }
        )
    };
    assert_eq!(log.count(harmed), 0, "{:?}", log.all());
}

fn assert_says(error: &BackendError, kind: BackendErrorKind, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
}
