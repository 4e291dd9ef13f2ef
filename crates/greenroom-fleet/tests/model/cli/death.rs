//! Processes that take a moment to die.

use futures_util::future::BoxFuture;
use greenroom::transport::{Connection, Conversations, Exit, Launch, MemoryTransport, Process, Transport};

use super::DYING;

/// A transport whose processes live on for a moment when nobody waits for their end.
pub(super) struct SlowDeath(pub(super) MemoryTransport);

impl Transport for SlowDeath {
    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        let opening = self.0.open(launch);
        Box::pin(async move {
            let Connection { reader, writer, process } = opening.await?;
            Ok(Connection { reader, writer, process: Box::new(Dying(Some(process))) })
        })
    }

    fn conversations(&self) -> Conversations {
        self.0.conversations()
    }
}

/// The process, until this is dropped.
struct Dying(Option<Box<dyn Process>>);

impl Process for Dying {
    fn pid(&self) -> Option<u32> {
        None
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        self.0.as_mut().unwrap().wait()
    }

    fn terminate(&mut self) {
        self.0.as_mut().unwrap().terminate();
    }

    fn kill(&mut self) {
        self.0.as_mut().unwrap().kill();
    }
}

impl Drop for Dying {
    fn drop(&mut self) {
        let process = self.0.take();
        // Without a runtime the whole service is being killed.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(DYING).await;
                drop(process);
            });
        }
    }
}
