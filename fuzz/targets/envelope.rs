#![no_main]

#[path = "../checks/envelope.rs"]
mod envelope;

libfuzzer_sys::fuzz_target!(|input: &[u8]| envelope::check(input));
