//! `dra-driver`: a small DRA driver for tests.

use std::process::ExitCode;

use clap::Parser;
use integration::doubles::dra_driver::{self, DraOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match dra_driver::run(DraOptions::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dra-driver: {error:#}");
            ExitCode::FAILURE
        }
    }
}
