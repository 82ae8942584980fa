//! The flags of the driver's process.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// A small CSI driver whose volumes are folders, and whose faults are on demand.
#[derive(Clone, Debug, Parser)]
pub struct DriverOptions {
    /// The name under which it registers.
    #[arg(long)]
    pub name: String,
    /// Its own folder: what it keeps, and what the volumes hold.
    #[arg(long)]
    pub dir: PathBuf,
    /// The agent's root folder: the sockets go below `plugins` and `plugins_registry`.
    #[arg(long)]
    pub root: PathBuf,
    #[arg(long, default_value = "node-of-the-driver")]
    pub node_id: String,
    #[arg(long, default_value = "1.0.0")]
    pub vendor_version: String,
    /// The capabilities of its node service.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "stage,stats,expand,condition,multi-writer"
    )]
    pub abilities: Vec<DriverCapability>,
    /// NodeGetInfo's `max_volumes_per_node`; 0 is no limit.
    #[arg(long, default_value_t = 0)]
    pub max_volumes: i64,
    /// The node's topology segments: KEY=VALUE.
    #[arg(long, value_parser = pair)]
    pub topology: Vec<(String, String)>,
    /// The secrets that NodeStageVolume must have: KEY=VALUE.
    #[arg(long, value_parser = pair)]
    pub stage_secret: Vec<(String, String)>,
    /// The secrets that NodePublishVolume must have: KEY=VALUE.
    #[arg(long, value_parser = pair)]
    pub publish_secret: Vec<(String, String)>,
    /// The secrets that NodeExpandVolume must have: KEY=VALUE.
    #[arg(long, value_parser = pair)]
    pub expand_secret: Vec<(String, String)>,
    /// A key that every NodePublishVolume must have in its context.
    #[arg(long)]
    pub context_key: Vec<String>,
    /// How it registers.
    #[arg(long, value_enum, default_value_t = RegistrationMode::Normal)]
    pub registration: RegistrationMode,
    /// The versions that it offers for registration.
    #[arg(long = "offer", default_value = "1.0.0")]
    pub offers: Vec<String>,
    /// Volumes may grow only while they are published nowhere.
    #[arg(long)]
    pub offline_expansion: bool,
}

/// A capability of the node service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DriverCapability {
    Stage,
    Stats,
    Expand,
    Condition,
    MultiWriter,
    MountGroup,
    /// No capability.
    Nothing,
}

/// How the driver registers, rightly or wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RegistrationMode {
    Normal,
    /// A second socket registers the same driver.
    Twice,
    /// GetInfo answers another name than GetPluginInfo.
    OtherName,
    /// Its plugin type is unknown.
    OtherType,
    /// Its only version is not the agent's.
    WrongVersion,
    /// GetInfo is never answered.
    Silent,
    /// Where the socket should be, there is a file.
    PlainFile,
    /// There is no socket.
    Nothing,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl DriverOptions {
    /// Whether the node service has this capability.
    pub fn can(&self, ability: DriverCapability) -> bool {
        self.abilities.contains(&ability)
    }

    /// Returns the socket of its CSI services.
    pub fn endpoint(&self) -> PathBuf {
        self.root.join("plugins").join(&self.name).join("csi.sock")
    }

    /// Returns the socket by which it registers.
    pub fn registration_socket(&self) -> PathBuf {
        let name = format!("{}-reg.sock", self.name);
        self.root.join("plugins_registry").join(name)
    }

    /// The file in which a test sets `max_volumes_per_node`.
    pub(super) const MAX_VOLUMES: &str = "max-volumes";

    pub(super) fn max_volumes(&self) -> i64 {
        let written = fs::read_to_string(self.dir.join(Self::MAX_VOLUMES));
        let written = written.ok().and_then(|text| text.parse().ok());
        written.unwrap_or(self.max_volumes)
    }

    pub(super) fn topology(&self) -> BTreeMap<String, String> {
        self.topology.iter().cloned().collect()
    }
}
