//! A proxy between a node and the server, which loses replies and connections on demand.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::server;

/// The end of every reply: the server is ready, outside of a transaction.
const READY: [u8; 6] = [b'Z', 0, 0, 0, 5, b'I'];

#[derive(Default)]
struct Plan {
    /// The reply to a request with this text is swallowed, and its connection cut. Taken by the first request that has it.
    lose: Option<String>,
    lost: usize,
    /// The last bytes of a request with this text are kept back from the server. Taken by the first request that has it.
    hold: Option<String>,
}

/// The length of the message with which a request ends: with it the server ends the transaction.
const SYNC: usize = 5;

/// What happens to the connections that there are.
#[derive(Default)]
struct Line {
    cuts: usize,
    silences: usize,
}

pub(crate) struct Proxy {
    address: String,
    plan: Arc<Mutex<Plan>>,
    line: watch::Sender<Line>,
    /// The end of a request is kept back.
    held: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// A proxy to the server at an address.
    pub(crate) async fn to(address: &str) -> Self {
        let place = server::socket(address);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (plan, line) = (Arc::new(Mutex::new(Plan::default())), watch::Sender::new(Line::default()));
        let (mut tasks, theirs, changes) = (JoinSet::new(), plan.clone(), line.subscribe());
        let held = watch::Sender::new(false);
        let holding = held.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(place).await else { continue };
                connections.spawn(pass(client, server, theirs.clone(), changes.clone(), holding.clone()));
            }
        });
        Self { address: server::through(address, port), plan, line, held, _tasks: tasks }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Loses the reply to the next request with this text, once the server has given it.
    pub(crate) fn lose_reply_to(&self, text: impl ToString) {
        self.plan.lock().unwrap().lose = Some(text.to_string());
    }

    pub(crate) fn lost(&self) -> usize {
        self.plan.lock().unwrap().lost
    }

    /// Keeps the end of the next request with this text back, as if the node were stopped while it writes. The future is over when all but
    /// the end has gone to the server.
    pub(crate) fn hold_end_of(&self, text: &str) -> impl Future<Output = ()> + use<> {
        self.plan.lock().unwrap().hold = Some(text.to_owned());
        let mut held = self.held.subscribe();
        async move { drop(held.wait_for(|held| *held).await.unwrap()) }
    }

    /// Sends the end that was kept back.
    pub(crate) fn go_on(&self) {
        self.held.send_replace(false);
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.line.send_modify(|line| line.cuts += 1);
    }

    /// The connections that there are pass nothing from now on, and stay open. New ones are as usual.
    pub(crate) fn silence(&self) {
        self.line.send_modify(|line| line.silences += 1);
    }
}

async fn pass(
    mut client: TcpStream,
    mut server: TcpStream,
    plan: Arc<Mutex<Plan>>,
    mut line: watch::Receiver<Line>,
    held: watch::Sender<bool>,
) {
    let (mut sent, mut given) = (vec![0; 65536], vec![0; 65536]);
    let (mut losing, mut reply) = (false, Vec::new());
    let cuts = line.borrow_and_update().cuts;
    loop {
        tokio::select! {
            changed = line.changed() => {
                if changed.is_err() || line.borrow_and_update().cuts > cuts {
                    return;
                }
                // Silent from now on, whatever comes: only a cut ends the connection.
                while line.changed().await.is_ok() && line.borrow_and_update().cuts == cuts {}
                return;
            }
            read = client.read(&mut sent) => {
                let Ok(read @ 1..) = read else { return };
                let mut holds = false;
                if let Some(request) = sent.get(..read) {
                    let mut plan = plan.lock().unwrap();
                    let has = |text: &String| request.windows(text.len()).any(|part| part == text.as_bytes());
                    holds = plan.hold.take_if(|text| has(text)).is_some();
                    if plan.lose.as_ref().is_some_and(has) {
                        plan.lose = None;
                        losing = true;
                    }
                }
                let mut piece = &sent[..read];
                if holds {
                    let (first, last) = piece.split_at(read - SYNC);
                    if server.write_all(first).await.is_err() { return }
                    held.send_replace(true);
                    held.subscribe().wait_for(|held| !held).await.ok();
                    piece = last;
                }
                if server.write_all(piece).await.is_err() { return }
            }
            read = server.read(&mut given) => {
                let Ok(read @ 1..) = read else { return };
                if losing {
                    reply.extend_from_slice(&given[..read]);
                    if reply.ends_with(&READY) {
                        plan.lock().unwrap().lost += 1;
                        return;
                    }
                } else if client.write_all(&given[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}
