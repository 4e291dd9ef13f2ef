// An `async move` closure as a permission handler.
// says: async closure does not implement `Fn` because it captures state from its environment

use std::sync::Arc;

use greenroom::{PermissionDecision, Session};

fn main() {
    let allowed = Arc::new(String::from("Read"));
    let _ = Session::builder().can_use_tool(async move |request, _cx| {
        if request.tool_name == *allowed { PermissionDecision::allow() } else { PermissionDecision::deny("no") }
    });
}
