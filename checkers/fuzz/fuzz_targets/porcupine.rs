//! The reader of this format, and the models on what it read.
#![no_main]

mod foreign;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // With the beginning of a good file, so that most of the effort goes into the format.
    foreign::read_and_judge(br#"INFO  jepsen.util - 0 :invoke "#, data);
    foreign::read_and_judge(b"", data);
});
