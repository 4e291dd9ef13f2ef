//! A collector on loopback that keeps what it is sent, for the example and its test.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// Bodies of the requests, with their paths.
type Received = Arc<Mutex<Vec<(String, Value)>>>;

/// A collector that takes JSON by HTTP (OTLP/HTTP).
pub(crate) struct Collector {
    address: SocketAddr,
    received: Received,
}

impl Collector {
    /// Listens on a free port of 127.0.0.1 until the process ends.
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, received) = (listener.local_addr()?, Received::default());
        let keeps = received.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Err(error) = take(stream, &keeps) {
                    tracing::warn!(%error, "a request to the collector failed");
                }
            }
        });
        Ok(Self { address, received })
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was sent to this path.
    pub(crate) fn bodies(&self, path: &str) -> Vec<Value> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.iter().filter(|(to, _)| to == path).map(|(_, body)| body.clone()).collect()
    }

    /// All spans.
    pub(crate) fn spans(&self) -> Vec<Value> {
        let bodies = self.bodies("/v1/traces");
        each(&bodies, &["resourceSpans", "scopeSpans", "spans"])
    }

    /// All metrics.
    pub(crate) fn metrics(&self) -> Vec<Value> {
        let bodies = self.bodies("/v1/metrics");
        each(&bodies, &["resourceMetrics", "scopeMetrics", "metrics"])
    }

    /// The names of all spans and metrics.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let all = self.spans().into_iter().chain(self.metrics());
        all.filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect()
    }
}

/// The elements of lists within lists.
fn each(from: &[Value], path: &[&str]) -> Vec<Value> {
    let Some((list, rest)) = path.split_first() else { return from.to_vec() };
    let inner: Vec<Value> =
        from.iter().filter_map(|value| value[list].as_array()).flatten().cloned().collect();
    each(&inner, rest)
}

fn take(stream: TcpStream, received: &Received) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        match line.split_once(':') {
            _ if path.is_empty() => path = line.split(' ').nth(1).unwrap_or_default().to_owned(),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    received.lock().unwrap_or_else(PoisonError::into_inner).push((path, serde_json::from_slice(&body)?));
    let mut stream = reader.into_inner();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
}
