//! Errors of handlers: one text for the model, another for the log.

use crate::common::*;
use greenroom::tool::{self, ToolError};
use greenroom::{Event, IntoToolResult, NoArgs, Session, ToolDef, ToolServer};
use serde_json::json;

/// An error of a driver with a cause, as a database has it.
#[derive(Debug, thiserror::Error)]
#[error("10.0.0.7 refuses the login of `orders`")]
struct Refused(#[source] std::io::Error);

fn refused() -> Refused {
    Refused(std::io::Error::other("connection reset"))
}

const LOGGED: &str = "10.0.0.7 refuses the login of `orders`: connection reset";
const DOWN: &str = "The order service is down. Try again in a minute.";

fn orders() -> ToolServer {
    ToolServer::new("orders", "1.0.0")
        .tool("find", "Finds an order", async |_: NoArgs| -> tool::Result<String> {
            Err(ToolError::new(DOWN).log(refused()))
        })
        .tool("count", "Counts the orders", async |_: NoArgs| -> tool::Result<u32> {
            Err(refused())?;
            Ok(3)
        })
        .tool("cancel", "Cancels an order", async |_: NoArgs| -> tool::Result<()> {
            Err(ToolError::new("The order has been sent. Offer a return instead."))
        })
        .add_tool(ToolDef::blocking("print", "Prints an order", |_: NoArgs, _| -> tool::Result<String> {
            Err(ToolError::new("The printer is off.").log("lp0 on fire"))
        }))
}

#[tokio::test(start_paused = true)]
async fn the_model_reads_the_text_of_a_tool_error_and_the_event_has_the_cause() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(orders())).await;
    let mut events = session.events();
    let internal = "the tool failed because of an internal error, which was logged";
    for (tool, text, cause) in
        [("find", DOWN, LOGGED), ("count", internal, LOGGED), ("print", "The printer is off.", "lp0 on fire")]
    {
        let request_id = end.call_tool("orders", tool, json!({}));
        let answer = rpc_answer(&mut end, &request_id).await;
        assert_eq!(error_text(&answer), text);
        assert!(!answer.to_string().contains(cause) && !answer.to_string().contains("10.0.0.7"), "{answer}");
        let failed = event(&mut events, |event| match event {
            Event::CallFailed { server, tool, request_id, message, cause } => {
                Some([server, tool, request_id, message, cause].map(Clone::clone))
            }
            _ => None,
        });
        assert_eq!(failed.await, ["orders", tool, &request_id, text, cause]);
    }
    // An error without a cause has no event, and a failure is no panic.
    let answer = call(&mut end, "orders", "cancel", json!({})).await;
    assert_eq!(error_text(&answer), "The order has been sent. Offer a return instead.");
    assert_eq!(counters(&session).await.panics, 0);
    stop(session, end).await;
    while let Some(event) = events.next().await {
        assert!(!matches!(event, Event::CallFailed { .. }), "{event:?}");
    }
}

#[tokio::test]
async fn a_tool_error_prints_one_text_to_the_model_and_both_to_the_developer() {
    let error = ToolError::new(DOWN).log(refused());
    assert_eq!(error.to_string(), DOWN);
    assert_eq!(format!("{error:#}"), DOWN);
    assert_eq!(
        format!("{error:?}"),
        format!("{DOWN}\nCaused by: 10.0.0.7 refuses the login of `orders`\nCaused by: connection reset")
    );
    assert!(error.cause().unwrap().downcast_ref::<Refused>().is_some());
    let result = Err::<String, _>(error).into_tool_result();
    assert_eq!((result.is_error, result.text().as_str()), (true, DOWN));

    // Without a session, too.
    assert_eq!(orders().call("find", json!({})).await.text(), DOWN);
}
