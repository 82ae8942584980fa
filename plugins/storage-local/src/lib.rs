//! The storage plugin for what is on the node itself: emptyDir, hostPath, local volumes, NFS, and the files of
//! configMap, secret, projected and downwardAPI.
//!
//! Read in this order: [`service`] answers the calls, [`work`] runs them on threads that can be given up, [`request`]
//! and [`place`] say what is asked for and where it lies. Then one file a kind: [`empty_dir`], [`files`] with
//! [`payload`] and [`writer`], [`host_path`], [`local`] with [`disk`] and [`block`], [`nfs`]; and what concerns all
//! of them: [`list`], [`stats`].
//!
//! Its configuration: `{"rootDir": "/var/lib/kubelet"}`, the folder in which the kubelet keeps its pods; with
//! `"rootPropagation": "shared"` that folder is made a shared mount as a kubelet makes it.

mod command;
mod executor;
mod kind;
mod payload;
mod request;
mod service;
mod settings;
mod state;
mod stats;
#[cfg(test)]
mod testing;
mod volumes;
mod writer;

use proto::storage::storage_server::StorageServer;

use crate::executor::Executor;
use crate::service::Service;
use crate::settings::Settings;
use crate::volumes::nfs::Programs;

const NAME: &str = "storage-local";

/// Returns the plugin's answer to `Info`.
pub fn info(version: &'static str) -> sdk::Info {
    sdk::Info {
        name: NAME,
        version,
        kind: sdk::Kind::Storage,
        capabilities: vec![],
    }
}

/// Makes the service. Refuses wrong settings; without mount propagation of the root folder it only warns.
pub async fn build(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
    let settings: Settings = setup.parse()?;
    settings.check().map_err(refused)?;
    let programs = Programs {
        mounter: settings.mounter_path.clone(),
        ..Programs::default()
    };
    let executor = Executor::new(setup.health.clone(), settings.root_dir.clone(), programs);
    if let Err(status) = executor.prepare(settings.root_propagation).await {
        // Only pods that ask for propagation miss it; a node without volumes would be worse.
        tracing::warn!("{}", status.message());
    }
    setup.health.healthy();
    let server = StorageServer::new(Service::new(executor))
        .max_decoding_message_size(sdk::MESSAGE_LIMIT)
        .max_encoding_message_size(sdk::MESSAGE_LIMIT);
    Ok(sdk::Routes::new(server))
}

fn refused(status: tonic::Status) -> sdk::Refusal {
    sdk::Refusal::new(status.message())
}
