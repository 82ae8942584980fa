//! The settings of the HTTPS API: its address, its authentication and authorization, its debug paths.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use config::NodeConfig;
use serving::policy::{
    AuthenticationPolicy, AuthorizationPolicy, EndpointPolicy, Policy, TlsPolicy,
};

/// Where the HTTPS API listens; none where it is switched off.
pub(super) fn address(config: &NodeConfig) -> Option<SocketAddr> {
    let kubelet = &config.kubelet;
    super::address(&kubelet.address, kubelet.port).filter(|_| kubelet.enable_server)
}

/// The policy of the HTTPS API and the read-only port.
pub(super) fn policy(config: &NodeConfig) -> Policy {
    let kubelet = &config.kubelet;
    Policy {
        address: address(config).unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()),
        node_name: config.node_name.clone(),
        tls: TlsPolicy {
            min_version: kubelet.tls_min_version.clone(),
            cipher_suites: kubelet.tls_cipher_suites.clone(),
            curves: kubelet.tls_curve_preferences.clone(),
        },
        authentication: authentication(config),
        authorization: authorization(config),
        paths: paths(config),
        idle: kubelet.streaming_connection_idle_timeout.into(),
        system_logs: PathBuf::from("/var/log"),
        journalctl: PathBuf::from("journalctl"),
    }
}

fn authentication(config: &NodeConfig) -> AuthenticationPolicy {
    let section = &config.kubelet.authentication;
    let client_ca = &section.x509.client_ca_file;
    AuthenticationPolicy {
        anonymous: section.anonymous.enabled,
        tokens: section
            .webhook
            .enabled
            .then(|| section.webhook.cache_ttl.into()),
        client_ca: (!client_ca.is_empty()).then(|| PathBuf::from(client_ca)),
    }
}

fn authorization(config: &NodeConfig) -> AuthorizationPolicy {
    let section = &config.kubelet.authorization;
    match section.mode.as_str() {
        "AlwaysAllow" => AuthorizationPolicy::AlwaysAllow,
        // Validation allows no third mode.
        _ => AuthorizationPolicy::Webhook {
            allowed: section.webhook.cache_authorized_ttl.into(),
            refused: section.webhook.cache_unauthorized_ttl.into(),
        },
    }
}

fn paths(config: &NodeConfig) -> EndpointPolicy {
    let (kubelet, gates) = (&config.kubelet, &config.gates);
    EndpointPolicy {
        debugging: kubelet.enable_debugging_handlers,
        system_logs: kubelet.enable_system_log_handler,
        log_query: kubelet.enable_system_log_query,
        profiling: kubelet.enable_profiling_handler,
        debug_flags: kubelet.enable_debug_flags_handler,
        checkpoint: gates.enabled("ContainerCheckpoint"),
        split_streams: gates.enabled("PodLogsQuerySplitStreams"),
        fine_grained: gates.enabled("KubeletFineGrainedAuthz"),
        statusz: gates.enabled("ComponentStatusz"),
        flagz: gates.enabled("ComponentFlagz"),
        websockets: gates.enabled("ExtendWebSocketsToKubelet"),
        console: config.flags.console,
    }
}
