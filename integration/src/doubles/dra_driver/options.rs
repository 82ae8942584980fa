//! The flags of the driver's process.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use logic_placement::claims::NodeService;

/// A small DRA driver whose devices are names.
#[derive(Clone, Debug, Parser)]
pub struct DraOptions {
    /// The name under which it registers.
    #[arg(long)]
    pub name: String,
    /// Its own folder: its records and its socket.
    #[arg(long)]
    pub dir: PathBuf,
    /// The agent's root folder: it registers below `plugins_registry`.
    #[arg(long)]
    pub root: PathBuf,
    /// The version of the service that it speaks.
    #[arg(long, value_enum, default_value_t = DraVersion::V1)]
    pub version: DraVersion,
    /// The devices that it reports as healthy.
    #[arg(long, value_delimiter = ',')]
    pub devices: Vec<String>,
    /// A call takes a random time before it acts and another one after that, each of at most so many milliseconds.
    #[arg(long, default_value_t = 0)]
    pub pause: u64,
}

/// A version of the DRA drivers' service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DraVersion {
    V1,
    V1beta1,
}

impl DraVersion {
    pub(super) fn service(self) -> NodeService {
        match self {
            DraVersion::V1 => NodeService::V1,
            DraVersion::V1beta1 => NodeService::V1Beta1,
        }
    }
}

impl DraOptions {
    /// The flags that make these options.
    pub(super) fn arguments(&self) -> Vec<String> {
        let version = match self.version {
            DraVersion::V1 => "v1",
            DraVersion::V1beta1 => "v1beta1",
        };
        vec![
            format!("--name={}", self.name),
            format!("--dir={}", self.dir.display()),
            format!("--root={}", self.root.display()),
            format!("--version={version}"),
            format!("--devices={}", self.devices.join(",")),
            format!("--pause={}", self.pause),
        ]
    }

    /// The socket of the driver's service.
    pub(super) fn endpoint(&self) -> PathBuf {
        self.dir.join("dra.sock")
    }

    /// The socket by which it registers.
    pub(super) fn registration_socket(&self) -> PathBuf {
        let name = format!("{}-reg.sock", self.name);
        self.root.join("plugins_registry").join(name)
    }
}
