//! What a server tells the CLI of its tools beside their list.

use greenroom::tool::ToolPolicy;
use greenroom::{ErrorKind, NoArgs, Session, ToolDef, ToolServer};
use greenroom_testkit::Delivered;
use serde_json::json;

#[tokio::test]
async fn always_load_applies_to_tools_that_do_not_set_it() {
    let later = ToolDef::new("later", "Later", async |_: NoArgs| "").always_load(false);
    let server: ToolServer = ToolServer::new("disk", "1")
        .always_load(true)
        .tool("now", "Now", async |_: NoArgs| "")
        .add_tool(later);
    let list = server.handle(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await.unwrap();
    let loaded = |index: usize| &list["result"]["tools"][index]["_meta"]["anthropic/alwaysLoad"];
    assert_eq!((loaded(0), loaded(1)), (&json!(true), &json!(false)), "{list}");
    let told = Delivered::of(Session::builder().mcp_server(server)).unwrap().initialize;
    assert_eq!(told["sdkMcpServerManifests"]["disk"]["toolsListResult"], list["result"]);
}

#[test]
fn the_last_policy_counts_and_one_for_an_unknown_tool_is_refused() {
    let server: ToolServer = ToolServer::new("disk", "1")
        .tool("wipe", "Wipe", async |_: NoArgs| "")
        .tool_policy("wipe", ToolPolicy::AlwaysAllow)
        .tool_policy("wipe", ToolPolicy::AlwaysDeny);
    let told = Delivered::of(Session::builder().mcp_server(server.clone())).unwrap().initialize;
    let tools = &told["sdkMcpServerConfigs"]["disk"]["tools"];
    assert_eq!(*tools, json!([{ "name": "wipe", "permission_policy": "always_deny" }]));
    let unknown = server.tool_policy("erase", ToolPolicy::AlwaysAsk);
    let error = Delivered::of(Session::builder().mcp_server(unknown)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("'erase'"), "{error}");
}
