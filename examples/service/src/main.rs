//! A web service with an agent session for each user.

fn main() {}
