//! A backend that several owners share.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{Backend, Channels, Reply};
use crate::id::Timestamp;
use crate::registry::{Commit, Committed, Lane, Rows, Wanted};
use crate::request::NodeMessage;

/// A backend behind an `Arc` is a backend: it passes everything on to the shared one.
impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn read(&self, lane: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        (**self).read(lane, wanted)
    }

    fn commit(&self, lane: Lane, commit: Commit) -> Reply<'_, Committed> {
        (**self).commit(lane, commit)
    }

    fn channels(&self) -> &Channels {
        (**self).channels()
    }

    fn publish(&self, message: NodeMessage) {
        (**self).publish(message);
    }

    fn default_folder(&self) -> Option<PathBuf> {
        (**self).default_folder()
    }

    fn is_exclusive(&self) -> bool {
        (**self).is_exclusive()
    }

    fn is_shared(&self) -> bool {
        (**self).is_shared()
    }

    fn carry_out<'a>(&'a self, request: &'static str, run: BoxFuture<'a, ()>) -> Reply<'a, ()> {
        (**self).carry_out(request, run)
    }
}
