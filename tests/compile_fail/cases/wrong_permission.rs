// A permission handler that returns a `bool`.
// says: `bool` is no answer of this handler
// says: this handler has to return `PermissionDecision`

use greenroom::Session;

fn main() {
    let _ = Session::builder().can_use_tool(async |request, _cx| request.tool_name == "Read");
}
