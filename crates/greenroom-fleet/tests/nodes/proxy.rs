//! A connection to the database that can be cut: a proxy for each node.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The state of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Pass,
    /// Nothing comes through, and nobody is told, as behind a switch that has failed.
    Hold,
    /// Each piece comes later.
    Slow,
}

/// The delay of a piece in a slow direction.
const DELAY: Duration = Duration::from_millis(30);

/// The side of a piece on which the connections are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The server does not get it.
    Before,
    /// The server gets it, and the node gets no answer.
    After,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flows {
    pub(crate) to_server: Flow,
    pub(crate) to_node: Flow,
    /// Connections that are closed when this number changes.
    pub(crate) closed: u64,
    /// Bytes to the server at which the connections are held.
    pub(crate) hold_at: Option<(String, Side)>,
}

/// Passes the connections of a node on to the server.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    flows: Arc<watch::Sender<Flows>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let flows = Flows { to_server: Flow::Pass, to_node: Flow::Pass, closed: 0, hold_at: None };
        let flows = Arc::new(watch::Sender::new(flows));
        let mut tasks = JoinSet::new();
        let of_all = flows.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((node, _)) = listener.accept().await {
                let flows = of_all.clone();
                connections.spawn(async move {
                    // An error: the server is away, and the connection ends.
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await {
                        connect(node, server, &flows).await;
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, flows, _tasks: tasks }
    }

    /// Changes both directions.
    pub(crate) fn set(&self, to_server: Flow, to_node: Flow) {
        self.flows.send_modify(|flows| (flows.to_server, flows.to_node) = (to_server, to_node));
    }

    /// Holds all connections before or after a piece with these bytes has gone to the server. The future is over when that has happened.
    pub(crate) fn hold_at(&self, text: &str, side: Side) -> impl Future<Output = ()> + use<> {
        let text = text.to_owned();
        self.flows.send_modify(|flows| flows.hold_at = Some((text, side)));
        let mut flows = self.flows.subscribe();
        async move {
            flows.wait_for(|flows| flows.hold_at.is_none()).await.expect("the proxy runs");
        }
    }

    /// Ends all connections.
    pub(crate) fn close(&self) {
        self.flows.send_modify(|flows| flows.closed += 1);
    }
}

async fn connect(node: TcpStream, server: TcpStream, flows: &watch::Sender<Flows>) {
    let closed = flows.borrow().closed;
    let mut closing = flows.subscribe();
    let ((from_node, to_node), (from_server, to_server)) = (node.into_split(), server.into_split());
    let (up, down) = (flows.subscribe(), flows.subscribe());
    tokio::select! {
        // A connection whose one direction has ended is no connection.
        () = pass(from_node, to_server, up, |flows| flows.to_server, |piece| hold_at(flows, piece)) => {}
        () = pass(from_server, to_node, down, |flows| flows.to_node, |_| {}) => {}
        _ = closing.wait_for(|flows| flows.closed != closed) => {}
    }
}

/// Holds the connections from now on if the piece has the bytes that were named.
fn hold_at(flows: &watch::Sender<Flows>, piece: &[u8]) {
    flows.send_if_modified(|flows| {
        let Some((text, side)) = &flows.hold_at else { return false };
        let has = piece.windows(text.len()).any(|part| part == text.as_bytes());
        if has {
            if *side == Side::Before {
                flows.to_server = Flow::Hold;
            }
            (flows.hold_at, flows.to_node) = (None, Flow::Hold);
        }
        has
    });
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut flows: watch::Receiver<Flows>,
    of: impl Fn(&Flows) -> Flow,
    look: impl Fn(&[u8]),
) {
    let mut piece = vec![0; 16 * 1024];
    while let Ok(read) = from.read(&mut piece).await {
        // An error: the proxy has ended.
        let Ok(flow) = flows.wait_for(|flows| of(flows) != Flow::Hold).await.map(|flows| of(&flows)) else {
            return;
        };
        if flow == Flow::Slow {
            // The pace of the connection is an input of the test.
            tokio::time::sleep(DELAY).await;
        }
        look(&piece[..read]);
        if flows.wait_for(|flows| of(flows) != Flow::Hold).await.is_err() {
            return;
        }
        if read == 0 || to.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
}
