#![no_main]

#[path = "../checks/dispatch.rs"]
mod dispatch;

libfuzzer_sys::fuzz_target!(|input: &[u8]| dispatch::check(input));
