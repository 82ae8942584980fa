//! The settings of the node in its cluster: how the API server is reached, and with which identity.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api_client::{Dial, Identity, ProxyEnvironment, RestConfig};
use cluster::certificates::{CertificateFiles, CertificateStore};
use cluster::node;
use config::NodeConfig;
use logic_api::objects::{ChangeDetection, IssuancePolicy};
use logic_api::types::PodUid;
use logic_node::certificates::RotationPolicy;
use logic_node::node_status::lease::LeaseHolder;
use logic_node::node_status::{
    self, AttachDetachMode, CloudProvider, ExtendedResourcePolicy, NodeResources, Scheduling,
};
use logic_resources::node::Support;
use state::objects::manager;

use super::AgentSettings;

/// The API server's address and the node's credentials.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    pub access: RestConfig,
    /// The same server with the bootstrap credentials.
    pub bootstrap: Option<RestConfig>,
    /// The client certificate to request; none where the kubeconfig's own is used.
    pub client_certificate: Option<ClientCertificate>,
}

/// A certificate that the API server is asked to sign.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    pub store: CertificateStore,
    pub renewal: RotationPolicy,
}

/// Where the certificate of the HTTPS API comes from.
#[derive(Debug, Clone)]
pub enum ServingCertificate {
    /// `tlsCertFile` and `tlsPrivateKeyFile`.
    Given(CertificateFiles),
    /// Signed by the API server on request: `serverTLSBootstrap`.
    Asked(CertificateStore),
    /// Self-signed once, and stored in this folder.
    SelfSigned(PathBuf),
}

impl AgentSettings {
    /// The object manager's settings. `supplied` are the pods whose objects were all in the offline checkpoint.
    pub fn keeping(&self, supplied: BTreeSet<PodUid>) -> manager::SupplyRules {
        let kubelet = &self.config.kubelet;
        manager::SupplyRules {
            node_name: self.config.node_name.clone(),
            detection: match kubelet
                .config_map_and_secret_change_detection_strategy
                .as_str()
            {
                "Get" => ChangeDetection::Get,
                "Cache" => ChangeDetection::Cache,
                _ => ChangeDetection::Watch,
            },
            period: kubelet.sync_frequency.into(),
            asking: match self.config.gates.enabled("PodCertificateRequest") {
                true => IssuancePolicy::Always,
                false => IssuancePolicy::Never,
            },
            supplied,
        }
    }

    /// The holder of the node's lease and its seconds; none where leases are switched off.
    pub fn lease_holder(&self) -> Option<LeaseHolder> {
        let seconds = self.config.kubelet.node_lease_duration_seconds;
        let seconds = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
        Some(LeaseHolder {
            name: self.config.node_name.clone(),
            seconds,
        })
    }

    /// The node status manager's settings.
    pub fn presence(&self) -> node::Policy {
        let kubelet = &self.config.kubelet;
        node::Policy {
            status: self.node_status(),
            registering: match kubelet.register_node {
                true => node::Registering::Itself,
                false => node::Registering::Awaited,
            },
            look_every: kubelet.node_status_update_frequency.into(),
            report_every: kubelet.node_status_report_frequency.into(),
            host: host::identity::read(Path::new("/"), self.swap),
            resources: NodeResources {
                capacity: self.facts.capacity.clone(),
                allocatable: self.facts.allocatable.clone(),
            },
            folder: self.folder.clone(),
        }
    }

    fn node_status(&self) -> node_status::NodeStatusPolicy {
        let (config, kubelet, flags) = (&self.config, &self.config.kubelet, &self.config.flags);
        let gates = &config.gates;
        node_status::NodeStatusPolicy {
            name: config.node_name.clone(),
            hostname: config.node_name.clone(),
            port: u16::try_from(kubelet.port).unwrap_or(0),
            version: config.version.clone(),
            node_ips: config.node_ips.clone(),
            cloud: match flags.cloud_provider.as_str() {
                "external" => CloudProvider::External,
                _ => CloudProvider::None,
            },
            provider_id: kubelet.provider_id.clone(),
            labels: self.facts.labels.clone(),
            taints: self.facts.taints.clone(),
            scheduling: match flags.register_schedulable {
                true => Scheduling::Open,
                false => Scheduling::Closed,
            },
            attaching: match kubelet.enable_controller_attach_detach {
                true => AttachDetachMode::Controller,
                false => AttachDetachMode::Node,
            },
            max_images: usize::try_from(kubelet.node_status_max_images).ok(),
            declared_features: node_status::declared_features(|gate| gates.enabled(gate)),
            supplemental_groups_policy: match gates.enabled("SupplementalGroupsPolicy") {
                true => Support::Yes,
                false => Support::No,
            },
            extended_resources: ExtendedResourcePolicy::Kept,
            local_storage: super::node::local_storage(kubelet),
        }
    }
}

/// The settings of the cluster; none for a standalone node.
pub(super) fn cluster(config: &NodeConfig) -> Option<ClusterSettings> {
    let flags = &config.flags;
    if flags.kubeconfig.is_empty() {
        return None;
    }
    let bootstrap = (!flags.bootstrap_kubeconfig.is_empty())
        .then(|| access(config, &flags.bootstrap_kubeconfig));
    let renewal = match config.kubelet.rotate_certificates {
        true => RotationPolicy::InTime,
        false => RotationPolicy::Never,
    };
    let asked = renewal == RotationPolicy::InTime || bootstrap.is_some();
    Some(ClusterSettings {
        access: RestConfig {
            identity: match asked {
                true => Identity::Comes,
                false => Identity::There,
            },
            ..access(config, &flags.kubeconfig)
        },
        bootstrap,
        client_certificate: asked.then(|| ClientCertificate {
            store: store(config, "kubelet-client"),
            renewal,
        }),
    })
}

fn store(config: &NodeConfig, prefix: &'static str) -> CertificateStore {
    CertificateStore::new(PathBuf::from(&config.flags.cert_dir), prefix, None)
}

fn access(config: &NodeConfig, kubeconfig: &str) -> RestConfig {
    let kubelet = &config.kubelet;
    RestConfig {
        kubeconfig: PathBuf::from(kubeconfig),
        qps: kubelet.kube_api_qps,
        burst: kubelet.kube_api_burst,
        event_qps: kubelet.event_record_qps,
        event_burst: kubelet.event_burst,
        heartbeat_within: heartbeat(kubelet),
        user_agent: format!(
            "kubelet/{} (linux/{}) oxlet/{}",
            config.version,
            std::env::consts::ARCH,
            env!("CARGO_PKG_VERSION")
        ),
        content_type: kubelet.content_type.clone(),
        identity: Identity::There,
        dial: Dial::Tcp,
        proxies: ProxyEnvironment::read(),
    }
}

/// As upstream: a heartbeat's timeout is the node's update frequency, and at most the lease's duration.
fn heartbeat(kubelet: &config::KubeletConfiguration) -> Duration {
    let looks: Duration = kubelet.node_status_update_frequency.into();
    let lease = u64::try_from(kubelet.node_lease_duration_seconds).unwrap_or(0);
    match lease {
        0 => looks,
        seconds => looks.min(Duration::from_secs(seconds)),
    }
}

pub(super) fn serving_certificate(config: &NodeConfig) -> ServingCertificate {
    let kubelet = &config.kubelet;
    let (certificate, key) = (&kubelet.tls_cert_file, &kubelet.tls_private_key_file);
    if !certificate.is_empty() && !key.is_empty() {
        return ServingCertificate::Given(CertificateFiles {
            certificate: PathBuf::from(certificate),
            key: PathBuf::from(key),
        });
    }
    match kubelet.server_tls_bootstrap && !config.flags.kubeconfig.is_empty() {
        true => ServingCertificate::Asked(store(config, "kubelet-server")),
        false => ServingCertificate::SelfSigned(PathBuf::from(&config.flags.cert_dir)),
    }
}
