// A handler that holds an `Rc` while it waits.
// says: has type `Rc<String>` which is not `Send`

use std::rc::Rc;

use greenroom::{NoArgs, ToolServer};

async fn ask(_: NoArgs) -> String {
    let shared = Rc::new(String::from("a"));
    std::future::ready(()).await;
    shared.to_string()
}

fn main() {
    let _: ToolServer = ToolServer::new("db", "1.0.0").tool("ask", "Ask", ask);
}
