//! An example of a device plugin. A container that asks for its resource gets the host's device node under the name
//! `/dev/sample-ID`, and `SAMPLE_DEVICES` with the ids. The protocol is `proto/deviceplugin/v1beta1/api.proto`.

mod agent;
mod health;
mod service;

use std::path::PathBuf;

use clap::Parser;
use tokio::sync::watch;

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
    /// A file with the ids of the devices that are out of order, one a line; it may change at any time
    #[arg(long)]
    unhealthy: Option<PathBuf>,
    /// Where agents have the socket of device plugins
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    folder: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = SampleArguments::parse();
    let unhealthy = match &arguments.unhealthy {
        Some(file) => health::follow(file)?,
        None => watch::channel(Default::default()).1,
    };
    let plugin = service::SamplePlugin {
        devices: arguments.devices,
        node: arguments.node,
        unhealthy,
    };
    agent::stay_registered(&arguments.folder, &arguments.resource, &plugin).await
}
