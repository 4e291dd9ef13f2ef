// A closure that borrows a local value.
// says: closure may outlive the current function, but it borrows `pool`
// says: use the `move` keyword

use greenroom::{NoArgs, ToolServer};

fn main() {
    let pool = String::from("a pool");
    let _: ToolServer = ToolServer::new("db", "1.0.0")
        .tool("ask", "Ask the database", |_: NoArgs| async { pool.to_string() });
}
