//! The network plugin that runs chains of CNI plugins, as container runtimes do with libcni.
//!
//! Read in this order: [`service`] answers the calls and [`request`] reads them; [`engine`] carries them out, one at a
//! time for a sandbox; [`conflist`] is the folder of networks, [`chain`] the verbs of CNI over processes,
//! [`attachments`] what is kept; [`readiness`] tells whether pods get a network.
//!
//! Its configuration, with the defaults: `{"confDir": "/etc/cni/net.d", "binDirs": ["/opt/cni/bin"]}`; `"cacheDir"` is
//! the plugin's own folder.

mod attachments;
mod chain;
mod clock;
mod conflist;
mod engine;
mod leftovers;
mod netns;
mod readiness;
mod request;
mod result;
mod service;
mod settings;
mod version;

use std::sync::Arc;
use std::time::Duration;

use blocking_pool::BlockingPool;
use proto::network::network_server::NetworkServer;
use tokio::sync::watch;

use crate::attachments::Store;
pub use crate::chain::{Call, CniError, Preparation, Programs, Step, Steps, Sweep, Work};
use crate::chain::{Chains, Doers};
use crate::clock::Clock;
pub use crate::conflist::{ConfError, Form, Network, PluginConf, parse};
use crate::engine::Engine;
pub use crate::netns::{NetnsError, open as open_netns};
pub use crate::result::{CniResult, Dns, Interface, IpConfig, ResultError, Route};
use crate::service::Service;
use crate::settings::Settings;
pub use crate::version::Version;

const NAME: &str = "network-cni";
/// Looks at files and folders at once; those that hang are given up.
const FILE_THREADS: usize = 16;
/// Steps of chains that are done in this process, at once: the kernel takes one change of links at a time anyway.
const STEP_THREADS: usize = 16;
/// The agent waits ten seconds for a plugin to start, all of what is done for it together.
const LEFTOVERS_TIMEOUT: Duration = Duration::from_secs(4);

/// Returns the plugin's answer to `Info`. Two processes would both undo what the other has begun: it is alone.
pub fn info(version: &'static str) -> sdk::Info {
    sdk::Info {
        name: NAME,
        version,
        kind: sdk::Kind::Network,
        capabilities: vec!["alone"],
    }
}

/// Makes the service, with every step of a chain done by its program.
pub async fn build(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
    build_with(setup, Arc::new(Programs)).await
}

/// Makes the service. Refuses wrong settings; a folder of networks that is empty or broken shows in its health.
pub async fn build_with(
    setup: sdk::Setup,
    steps: Arc<dyn Steps>,
) -> Result<sdk::Routes, sdk::Refusal> {
    let settings: Settings = setup.parse()?;
    settings.check().map_err(sdk::Refusal::new)?;
    let cache = settings
        .cache_dir
        .clone()
        .unwrap_or_else(|| setup.dir.clone());
    let cache = std::path::absolute(&cache)
        .map_err(|error| sdk::Refusal::new(format!("cacheDir {}: {error}", cache.display())))?;
    let mark = cache.to_string_lossy().into_owned();
    let pool = BlockingPool::new(setup.health.clone(), FILE_THREADS);
    end_leftovers(&pool, mark.clone()).await;
    let (folder, networks) = watch::channel(conflist::Folder::default());
    conflist::read(&settings.conf_dir, &pool, &folder).await;
    let engine = Engine {
        conf_dir: settings.conf_dir.clone(),
        networks,
        chains: Chains::new(Doers {
            bin_dirs: settings.bin_dirs,
            mark,
            pool: pool.clone(),
            steps,
            threads: BlockingPool::new(setup.health.clone(), STEP_THREADS),
        }),
        store: Store::load(&cache, pool.clone()).await,
        clock: Clock::start(),
        pool: pool.clone(),
        sandboxes: blocking_pool::KeyedLock::new(),
        gates: blocking_pool::KeyedLock::new(),
    };
    let engine = engine.shared();
    drop(tokio::spawn(conflist::follow(
        settings.conf_dir,
        pool,
        folder,
    )));
    // STATUS may take its time, and the agent waits for the answer to this call.
    setup
        .health
        .degraded("whether pods get a network is not known yet");
    drop(tokio::spawn(readiness::follow(
        engine.clone(),
        setup.health,
    )));
    let server = NetworkServer::new(Service::new(engine))
        .max_decoding_message_size(sdk::MESSAGE_LIMIT)
        .max_encoding_message_size(sdk::MESSAGE_LIMIT);
    Ok(sdk::Routes::new(server))
}

async fn end_leftovers(pool: &BlockingPool, mark: String) {
    let ended = pool.run(
        "ending CNI plugins of an earlier process",
        LEFTOVERS_TIMEOUT,
        move || leftovers::end(&mark).map_err(|error| tonic::Status::internal(error.to_string())),
    );
    match ended.await {
        Ok(0) => {}
        Ok(count) => tracing::warn!("{count} CNI plugins of an earlier process were ended"),
        Err(status) => tracing::warn!("{}", status.message()),
    }
}
