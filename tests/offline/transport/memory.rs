//! The connected pair in memory, without a session.

use std::task::Poll;

use futures_util::poll;
use greenroom::transport::{Connection, Exit, Launch, MemoryCli, Transport, memory};
use greenroom::{ErrorKind, Session};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Most connections that wait to be accepted.
const UNACCEPTED: u64 = 64;

/// The launch of a session whose start is cancelled: only the library makes a launch.
async fn launch(epoch: u64) -> Launch {
    let (transport, mut listener) = memory();
    let mut launch = tokio::select! {
        cli = listener.accept() => cli.unwrap().launch().clone(),
        _ = Session::builder().transport(transport).start() => panic!("nobody has answered `initialize`"),
    };
    launch.epoch = epoch;
    launch
}

async fn connected() -> (Connection, MemoryCli) {
    let (transport, mut listener) = memory();
    let connection = transport.open(launch(1).await).await.unwrap();
    (connection, listener.accept().await.unwrap())
}

async fn read_all(reader: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn bytes_go_both_ways() {
    let (mut host, mut cli) = connected().await;
    let (mut stdin, mut stdout) = cli.take_pipes();
    host.writer.write_all(b"ask").await.unwrap();
    host.writer.shutdown().await.unwrap();
    assert_eq!(read_all(&mut stdin).await, "ask");
    stdout.write_all(b"answer").await.unwrap();
    drop(stdout);
    assert_eq!(read_all(&mut host.reader).await, "answer");
}

#[tokio::test(start_paused = true)]
async fn one_direction_closes_alone() {
    let (mut host, mut cli) = connected().await;
    let (mut stdin, stdout) = cli.take_pipes();
    drop(stdout);
    assert_eq!(read_all(&mut host.reader).await, "");
    host.writer.write_all(b"still").await.unwrap();
    drop(host.writer);
    assert_eq!(read_all(&mut stdin).await, "still");
    assert!(poll!(host.process.wait()).is_pending());
}

#[tokio::test(start_paused = true)]
async fn each_open_arrives_with_its_launch() {
    let (transport, mut listener) = memory();
    let clone = transport.clone();
    let _first = transport.open(launch(1).await).await.unwrap();
    let _second = clone.open(launch(2).await).await.unwrap();
    for epoch in [1, 2] {
        assert_eq!(listener.accept().await.unwrap().launch().epoch, epoch);
    }
}

#[tokio::test(start_paused = true)]
async fn wait_returns_the_first_exit_every_time() {
    let (mut host, cli) = connected().await;
    // A first future is dropped, a second one waits.
    assert!(poll!(host.process.wait()).is_pending());
    cli.exit(Exit::Code(7));
    cli.exit(Exit::Code(8));
    assert_eq!(host.process.wait().await, Exit::Code(7));
    drop(cli);
    assert_eq!(host.process.wait().await, Exit::Code(7));
    assert_eq!(host.process.pid(), None);
}

#[tokio::test(start_paused = true)]
async fn exit_closes_the_pipes_whoever_holds_them() {
    let (mut host, mut cli) = connected().await;
    let (mut stdin, mut stdout) = cli.take_pipes();
    stdout.write_all(b"last words").await.unwrap();
    let mut reads = JoinSet::new();
    reads.spawn(async move { read_all(&mut stdin).await });
    // Runs the task until it waits for input.
    tokio::task::yield_now().await;
    cli.exit(Exit::Code(1));

    assert_eq!(reads.join_next().await.unwrap().unwrap(), "");
    assert_eq!(stdout.write_all(b"x").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(read_all(&mut host.reader).await, "last words");
    assert_eq!(host.writer.write_all(b"x").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_makes_its_writer_wait() {
    let (transport, mut listener) = memory();
    let mut host = transport.with_buffer_bytes(4).open(launch(1).await).await.unwrap();
    let mut cli = listener.accept().await.unwrap();
    let (mut stdin, _stdout) = cli.take_pipes();
    host.writer.write_all(b"full").await.unwrap();
    {
        let mut more = Box::pin(host.writer.write_all(b"!"));
        assert!(poll!(&mut more).is_pending());
        let mut four = [0; 4];
        stdin.read_exact(&mut four).await.unwrap();
        assert!(matches!(poll!(&mut more), Poll::Ready(Ok(()))));
    }
    drop(host.writer);
    assert_eq!(read_all(&mut stdin).await, "!");
}

#[tokio::test(start_paused = true)]
async fn terminate_is_reported_and_ends_nothing() {
    let (mut host, cli) = connected().await;
    assert!(poll!(Box::pin(cli.terminated())).is_pending());
    host.process.terminate();
    cli.terminated().await;
    assert!(poll!(host.process.wait()).is_pending());
    cli.exit(Exit::Signal(15));
    assert_eq!(host.process.wait().await, Exit::Signal(15));
}

#[tokio::test(start_paused = true)]
async fn kill_ends_the_process() {
    let (mut host, mut cli) = connected().await;
    let (mut stdin, _stdout) = cli.take_pipes();
    host.process.kill();
    cli.killed().await;
    assert_eq!(read_all(&mut stdin).await, "");
    cli.exit(Exit::Code(0));
    assert_eq!(host.process.wait().await, Exit::Signal(9));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_hosts_process_kills() {
    let (host, cli) = connected().await;
    assert!(poll!(Box::pin(cli.killed())).is_pending());
    drop(host);
    cli.killed().await;
    assert!(format!("{cli:?}").contains("Signal(9)"));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_survives_a_kill_ends_by_exit() {
    let (mut host, cli) = connected().await;
    cli.survive_kill();
    host.process.kill();
    cli.killed().await;
    assert!(poll!(host.process.wait()).is_pending());
    cli.exit(Exit::Signal(9));
    assert_eq!(host.process.wait().await, Exit::Signal(9));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_script_has_exited() {
    let (mut host, cli) = connected().await;
    drop(cli);
    assert_eq!(host.process.wait().await, Exit::Code(0));
    assert_eq!(read_all(&mut host.reader).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_script_that_panics_exits_with_101() {
    let (mut host, cli) = connected().await;
    let mut script = JoinSet::new();
    script.spawn(async move {
        let _cli = cli;
        panic!("on purpose");
    });
    assert_eq!(host.process.wait().await, Exit::Code(101));
    assert!(script.join_next().await.unwrap().unwrap_err().is_panic());
}

#[tokio::test(start_paused = true)]
async fn pipes_taken_twice_are_closed() {
    let (_host, mut cli) = connected().await;
    let _pipes = cli.take_pipes();
    let (mut stdin, mut stdout) = cli.take_pipes();
    assert_eq!(read_all(&mut stdin).await, "");
    assert!(stdout.write_all(b"x").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn opening_without_a_listener_fails() {
    let (transport, listener) = memory();
    let mut waiting = transport.open(launch(1).await).await.unwrap();
    drop(listener);
    // The connection that was not accepted has ended.
    assert_eq!(waiting.process.wait().await, Exit::Code(0));
    let error = transport.open(launch(2).await).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Spawn);
    assert!(error.to_string().contains("the listener of the in-memory transport was dropped"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn opening_waits_while_too_many_connections_wait() {
    let (transport, mut listener) = memory();
    let mut open = Vec::new();
    for epoch in 0..UNACCEPTED {
        open.push(transport.open(launch(epoch).await).await.unwrap());
    }
    let mut one_more = transport.open(launch(99).await);
    assert!(poll!(&mut one_more).is_pending());
    let _accepted = listener.accept().await.unwrap();
    assert!(one_more.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn accept_returns_none_after_all_transports_are_dropped() {
    let (transport, mut listener) = memory();
    let clone = transport.clone();
    let _connection = transport.open(launch(1).await).await.unwrap();
    drop((transport, clone));
    assert!(listener.accept().await.is_some());
    assert!(listener.accept().await.is_none());
}
