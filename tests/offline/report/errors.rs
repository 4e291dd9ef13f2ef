//! The reports that errors print when `main` returns them.

use greenroom::mcp::RpcError;
use greenroom::report::{ErrorReport, ExitCause};
use greenroom::store::Unsupported;
use greenroom::transport::Exit;
use greenroom::{Error, ErrorKind};

#[test]
fn what_main_returns_prints_its_text_its_causes_and_its_kind() {
    fn run() -> Result<(), Box<dyn std::error::Error>> {
        let cause = std::io::Error::other("no route to host");
        Err(Error::new(ErrorKind::Spawn, "the CLI cannot be started on db7").with_source(cause))?
    }
    let error = run().unwrap_err();
    assert_eq!(
        format!("{error:?}"),
        "the CLI cannot be started on db7\nCaused by: no route to host\nKind: Spawn"
    );
    assert_eq!(format!("{:#}", ErrorReport(&*error)), "the CLI cannot be started on db7: no route to host");
}

#[test]
fn each_public_error_prints_a_report() {
    let cause = ExitCause::Exited { exit: Exit::Signal(9), stderr: "out of memory\n".into() };
    assert_eq!(
        format!("{cause:?}"),
        "the CLI was ended by signal 9\nthe CLI's stderr ended with:\nout of memory\nKind: CliExited"
    );
    let gone = RpcError::resource_not_found("file:///gone.txt");
    assert_eq!(
        format!("{gone:?}"),
        "Resource 'file:///gone.txt' not found (-32002)\nData: {\"uri\":\"file:///gone.txt\"}"
    );
    assert_eq!(format!("{:?}", RpcError::internal("out of paper")), "out of paper (-32603)");
    assert_eq!(
        format!("{:?}", Unsupported::new("list_sessions")),
        "the session store does not support `list_sessions`"
    );
}
