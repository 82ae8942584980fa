//! An example of a device plugin. A container that asks for its resource gets the host's device node under the name
//! `/dev/sample-ID`, and `SAMPLE_DEVICES` with the ids. The protocol is `proto/deviceplugin/v1beta1/api.proto`.

mod agent;
mod service;

use std::path::PathBuf;

use clap::Parser;

/// Serves the devices of one resource.
#[derive(Debug, Parser)]
struct SampleArguments {
    /// The resource's name
    #[arg(long, default_value = "example.com/sample")]
    resource: String,
    /// The devices' ids
    #[arg(long, value_delimiter = ',', default_value = "a,b")]
    devices: Vec<String>,
    /// The device node of the host that stands behind all of them
    #[arg(long, default_value = "/dev/null")]
    node: PathBuf,
    /// Where agents have the socket of device plugins
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    folder: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = SampleArguments::parse();
    let socket = service::serve(&arguments.folder, &arguments.devices, &arguments.node)?;
    agent::stay_registered(&arguments.folder, &arguments.resource, &socket).await
}
