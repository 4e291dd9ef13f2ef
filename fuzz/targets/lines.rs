#![no_main]

#[path = "../checks/lines.rs"]
mod lines;

libfuzzer_sys::fuzz_target!(|input: &[u8]| lines::check(input));
