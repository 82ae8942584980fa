//! `csi-driver`: a small CSI driver for tests.

use std::process::ExitCode;

use clap::Parser;
use integration::doubles::csi_driver::{self, DriverOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match csi_driver::run(DriverOptions::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("csi-driver: {error:#}");
            ExitCode::FAILURE
        }
    }
}
