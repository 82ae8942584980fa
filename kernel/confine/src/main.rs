//! `oxlet-confine ORDER PROGRAM [ARGUMENT...]`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    confine::run(std::env::args_os().skip(1))
}
