//! One fuzz target under libFuzzer, whose `main` and flags it has; `.ci/fuzz` builds and runs it.
#![no_main]

use std::sync::LazyLock;

use integration::fuzz::FuzzSession;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

static SESSION: LazyLock<FuzzSession> = LazyLock::new(|| {
    FuzzSession::from_environment().unwrap_or_else(|error| panic!("cannot fuzz: {error:#}"))
});

fuzz_target!(init: LazyLock::force(&SESSION), |input: &[u8]| SESSION.read(input));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    SESSION.mutate(&mut data[..max_size], size, seed, fuzzer_mutate)
});
