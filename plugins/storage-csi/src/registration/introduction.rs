//! How one socket says who it is (upstream's pluginmanager/operationexecutor and csi_plugin.go, 1.36): asked for
//! its name, checked, its driver asked about this node, and told how it went.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proto::registration::registration_client::RegistrationClient;
use proto::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use proto::storage::Backend;
use tokio::time::timeout;
use tonic::transport::Channel;

use super::table::Held;
use super::version::{self, Version};
use crate::driver::wire::{self, Patience};
use crate::driver::{self, CALL_WITHIN, Driver, name};

/// Upstream's three.
const DIAL_WITHIN: Duration = Duration::from_secs(10);
const INFO_WITHIN: Duration = Duration::from_secs(1);
const NOTIFY_WITHIN: Duration = Duration::from_secs(5);
/// A driver that cannot tell its own name is not refused for that, nor waited for long.
const NAME_WITHIN: Duration = Duration::from_secs(5);

/// A name, an endpoint and a few versions.
const INFO_LIMIT: usize = 64 << 10;
const VERSIONS_MOST: usize = 64;
const CSI_PLUGIN: &str = "CSIPlugin";

/// The conversation with one socket.
#[derive(Debug)]
pub(super) struct Introduction {
    socket: PathBuf,
    client: RegistrationClient<Channel>,
    info: PluginInfo,
}

/// What became of the first question.
#[derive(Debug)]
pub(super) enum Greeting {
    /// It is a CSI driver's.
    Driver(Box<Introduction>),
    /// It is something else's, of this type.
    Foreign(String),
}

impl Introduction {
    /// Asks a socket who it is.
    pub(super) async fn begin(socket: &Path) -> Result<Greeting, String> {
        let mut client = dial(socket).await?;
        let request = wire::request(InfoRequest {}, INFO_WITHIN);
        let info = wire::finish(INFO_WITHIN, client.get_info(request)).await;
        let mut info = info.map_err(|failure| {
            format!(
                "RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {}, err: {failure}",
                socket.display()
            )
        })?;
        if info.r#type != CSI_PLUGIN {
            return Ok(Greeting::Foreign(info.r#type));
        }
        if info.endpoint.is_empty() {
            info.endpoint = socket.display().to_string();
        }
        Ok(Greeting::Driver(Box::new(Self {
            socket: socket.to_owned(),
            client,
            info,
        })))
    }

    /// The name that it gives.
    pub(super) fn name(&self) -> &str {
        &self.info.name
    }

    /// Checks what it says, and whether it may have its name.
    pub(super) fn check(
        &self,
        may_register: impl FnOnce(&str, &Version) -> Result<(), String>,
    ) -> Result<Version, String> {
        let (name, endpoint) = (&self.info.name, &self.info.endpoint);
        if let Some(why) = name::wrong(name) {
            return Err(why);
        }
        if !endpoint.starts_with('/') {
            return Err(format!("endpoint {endpoint:?} is not the path of a socket"));
        }
        self.version(may_register).map_err(|why| {
            format!(
                "validation failed for CSI Driver {name} at endpoint {endpoint}: \
                 kubernetes.io/csi: ValidatePlugin for CSI driver {name:?} failed. {why}"
            )
        })
    }

    fn version(
        &self,
        may_register: impl FnOnce(&str, &Version) -> Result<(), String>,
    ) -> Result<Version, String> {
        let versions = &self.info.supported_versions;
        if versions.is_empty() {
            return Err("Plugin returned an empty list for supported versions".to_owned());
        }
        if versions.len() > VERSIONS_MOST {
            return Err(format!(
                "Plugin returned {} supported versions, at most {VERSIONS_MOST} are read",
                versions.len()
            ));
        }
        let highest = version::highest(versions).map_err(|why| {
            format!(
                "None of the versions specified {} are supported. err={why}",
                quoted(versions)
            )
        })?;
        may_register(&self.info.name, &highest)?;
        Ok(highest)
    }

    /// Asks the driver itself about this node.
    pub(super) async fn examine(&self, version: Version) -> Result<Held, String> {
        let endpoint = Path::new(&self.info.endpoint);
        let name = &self.info.name;
        if let Ok(own) = driver::own_name(endpoint, NAME_WITHIN).await
            && !own.is_empty()
            && own != *name
        {
            return Err(format!(
                "the driver at {} calls itself {own:?}, it registered as {name:?}",
                endpoint.display()
            ));
        }
        let node = driver::node_info(endpoint, CALL_WITHIN).await;
        let node = node.map_err(|failure| failure.to_string())?;
        if node.node_id.is_empty() {
            return Err(
                "error adding CSI driver node info: driverNodeID must not be empty".to_owned(),
            );
        }
        let abilities = driver::abilities(endpoint, CALL_WITHIN).await;
        let abilities = abilities.map_err(|failure| failure.to_string())?;
        let topology = node.accessible_topology.unwrap_or_default();
        let backend = Backend {
            name: name.clone(),
            node_id: node.node_id,
            max_volumes: node.max_volumes_per_node,
            topology: topology.segments,
            endpoint: self.info.endpoint.clone(),
            versions: self.info.supported_versions.clone(),
            abilities: abilities
                .iter()
                .map(|ability| ability.as_str_name().to_owned())
                .collect(),
        };
        let driver = Driver {
            name: name.clone(),
            endpoint: endpoint.to_owned(),
            abilities,
        };
        Ok(Held {
            socket: self.socket.clone(),
            version,
            driver: Arc::new(driver),
            backend,
        })
    }

    /// Tells it how it went: with a reason, that it was refused.
    pub(super) async fn notify(mut self, refusal: Option<&str>) {
        let status = RegistrationStatus {
            plugin_registered: refusal.is_none(),
            error: refusal.unwrap_or_default().to_owned(),
        };
        let request = wire::request(status, NOTIFY_WITHIN);
        let told = wire::finish(
            NOTIFY_WITHIN,
            self.client.notify_registration_status(request),
        )
        .await;
        if let Err(failure) = told {
            tracing::warn!(
                "RegisterPlugin error -- failed to send registration status at socket {}, err: {failure}",
                self.socket.display()
            );
        }
    }
}

/// What a driver reads when what it said of itself was wrong.
pub(super) fn invalid(why: &str) -> String {
    format!("RegisterPlugin error -- plugin validation failed with err: {why}")
}

/// What it reads when its driver could not be taken.
pub(super) fn failed(why: &str) -> String {
    format!("RegisterPlugin error -- plugin registration failed with err: {why}")
}

async fn dial(socket: &Path) -> Result<RegistrationClient<Channel>, String> {
    let why = match timeout(DIAL_WITHIN, wire::connect(socket, Patience::Starting)).await {
        Ok(Ok(channel)) => {
            return Ok(RegistrationClient::new(channel).max_decoding_message_size(INFO_LIMIT));
        }
        Ok(Err(failure)) => failure.to_string(),
        Err(_) => "context deadline exceeded".to_owned(),
    };
    let socket = socket.display();
    Err(format!(
        "RegisterPlugin error -- dial failed at socket {socket}, err: failed to dial socket {socket}, err: {why}"
    ))
}

/// `["a" "b"]`, as Go prints it.
fn quoted(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    format!("[{}]", words.join(" "))
}
