//! Stdin, stdout and stderr of a child.

use super::*;

#[tokio::test]
async fn bytes_and_the_end_of_input_reach_the_child() {
    let mut connection = open(sh("cat")).await;
    connection.stdin.write_all(b"one\ntwo").await.unwrap();
    drop(connection.stdin);
    assert_eq!(to_the_end(&mut connection.stdout).await, "one\ntwo");
    assert_eq!(in_time(connection.process.wait()).await, Exit::Code(0));
}

#[tokio::test]
async fn dropping_the_writer_is_the_end_of_input() {
    let Child { stdout: reader, stdin: writer, mut process } = open(sh("cat; echo end")).await;
    drop(writer);
    assert_eq!(to_the_end(reader).await, "end\n");
    assert_eq!(in_time(process.wait()).await, Exit::Code(0));
}

#[tokio::test]
async fn stderr_is_read_while_stdout_is_not() {
    let mut connection = open(sh("yes | head -c 1000000 >&2; echo done")).await;
    assert_eq!(to_the_end(&mut connection.stdout).await, "done\n");
}

#[tokio::test]
async fn lines_before_the_exit_have_arrived_when_wait_returns() {
    for _ in 0..20 {
        let seen = Seen::default();
        let script = "printf 'one\\r\\ntwo\\n123456789\\nno end' >&2; exit 1";
        let launch = Command { stderr: seen.sink(), stderr_line_bytes: 6, ..sh(script) };
        let mut connection = open(launch).await;
        assert_eq!(wait(&mut connection).await, Exit::Code(1));
        assert_eq!(seen.lines(), ["one", "two", "123456", "no end"]);
    }
}

#[tokio::test]
async fn a_grandchild_that_holds_stderr_open_delays_nothing() {
    let seen = Seen::default();
    let launch = Command { stderr: seen.sink(), ..sh("sleep 1000 & echo last >&2; exit 1") };
    let mut connection = open(launch).await;
    assert_eq!(wait(&mut connection).await, Exit::Code(1));
    assert_eq!(seen.lines(), ["last"]);
}

#[tokio::test]
async fn lines_of_a_grandchild_arrive_after_the_exit() {
    let (lines, mut seen) = mpsc::unbounded_channel();
    let sink = Arc::new(move |line: &str| lines.send(line.to_owned()).unwrap());
    // A background job does not get the script's stdin, so it is passed as descriptor 3.
    let script = "exec 3<&0; { read line <&3; echo \"late $line\" >&2; } & exit 0";
    let mut connection = open(Command { stderr: sink, ..sh(script) }).await;
    assert_eq!(wait(&mut connection).await, Exit::Code(0));
    connection.stdin.write_all(b"word\n").await.unwrap();
    assert_eq!(in_time(seen.recv()).await.unwrap(), "late word");
}

#[tokio::test]
async fn a_sink_that_panics_loses_only_its_line() {
    let seen = Seen::default();
    let inner = seen.sink();
    let sink = Arc::new(move |line: &str| {
        assert_ne!(line, "bad", "on purpose");
        inner(line);
    });
    let mut connection = open(Command { stderr: sink, ..sh("printf 'one\\nbad\\ntwo\\n' >&2") }).await;
    assert_eq!(wait(&mut connection).await, Exit::Code(0));
    assert_eq!(seen.lines(), ["one", "two"]);
}

#[tokio::test]
async fn dropping_the_process_drops_the_sink() {
    let (sent, mut dropped) = mpsc::channel::<()>(1);
    let sink = Arc::new(move |_: &str| {
        let _ = &sent;
    });
    // Leaves the group, so that it outlives the kill and holds stderr open until its stdin ends.
    let containment = Containment::Group;
    let launch = Command { stderr: sink, containment, ..sh("exec 3<&0; setsid cat <&3 & echo ready; wait") };
    let Child { stdout: reader, stdin: writer, process } = open(launch).await;
    let mut reader = BufReader::new(reader);
    expect_line(&mut reader, "ready").await;
    drop(process);
    assert_eq!(in_time(dropped.recv()).await, None);
    drop(writer);
    assert_eq!(to_the_end(reader).await, "");
}
