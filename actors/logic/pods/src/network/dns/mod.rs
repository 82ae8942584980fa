//! A pod's resolver file (upstream's pkg/kubelet/network/dns at v1.36).

mod resolver;

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};
use logic_api::pod::PodView;
use logic_api::types::{EventLevel, HistoryEvent};
use logic_resources::node::policy::NodePolicy;
pub use resolver::{MAX_RESOLVER_FILE_BYTES, ResolverConfig, ResolverError, complaint};

/// Name servers of a resolver file: `MAXNS` of the C library, which reads no more.
const MAX_SERVERS: usize = 3;
/// Search domains of a resolver file: upstream's `MaxDNSSearchPaths`.
const MAX_SEARCHES: usize = 32;
/// Characters of the line of search domains: upstream's `MaxDNSSearchListChars`.
const MAX_SEARCH_LINE: usize = 2048;
/// Characters of one search domain: the bound of DNS on a name.
const MAX_DOMAIN: usize = 253;

/// A pod's resolver settings, and what there is to say about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDns {
    pub dns: ResolverConfig,
    /// Events of the pod.
    pub why: Vec<HistoryEvent>,
    /// Events of the node.
    pub node_why: Vec<HistoryEvent>,
}

/// Which resolver a pod uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DnsSource {
    Cluster,
    Node,
    Pod,
}

/// A pod's resolver settings by its `dnsPolicy` and `dnsConfig`; `resolver` is the node's own file.
pub fn pod_dns(pod: &Pod, node: &NodePolicy, resolver: &ResolverConfig) -> PodDns {
    let mut made = PodDns::default();
    let servers = cluster_servers(node);
    made.dns = match source(pod) {
        DnsSource::Pod => ResolverConfig::default(),
        DnsSource::Cluster if !servers.is_empty() => cluster_dns(pod, node, servers, resolver),
        DnsSource::Cluster => {
            if !is_default(pod, node) {
                made.tell_missing_cluster_dns(pod);
            }
            node_dns(node, resolver)
        }
        DnsSource::Node => node_dns(node, resolver),
    };
    if let Some(config) = pod.spec().and_then(|spec| spec.dns_config.as_ref()) {
        merge(&mut made.dns, config);
    }
    made.keep_limits();
    made
}

fn source(pod: &Pod) -> DnsSource {
    let policy = pod.spec().and_then(|spec| spec.dns_policy.as_deref());
    match policy {
        Some("None") => DnsSource::Pod,
        Some("Default") => DnsSource::Node,
        Some("ClusterFirst") if pod.host_network() => DnsSource::Node,
        // ClusterFirst, ClusterFirstWithHostNet, and whatever the API should have refused.
        Some(_) | None => DnsSource::Cluster,
    }
}

/// Whether nobody asked for a cluster's names: the node has no cluster and no address of one's DNS, and the pod the policy
/// that every pod has by default. Upstream warns at each start of such a pod.
fn is_default(pod: &Pod, node: &NodePolicy) -> bool {
    let policy = pod.spec().and_then(|spec| spec.dns_policy.as_deref());
    let is_pods_default = policy.is_none_or(|policy| policy == "ClusterFirst");
    node.is_standalone && node.cluster_dns.is_empty() && is_pods_default
}

fn cluster_servers(node: &NodePolicy) -> Vec<String> {
    let addresses = node
        .cluster_dns
        .iter()
        .filter_map(|text| text.parse::<IpAddr>().ok());
    addresses.map(|address| address.to_string()).collect()
}

fn cluster_dns(
    pod: &Pod,
    node: &NodePolicy,
    servers: Vec<String>,
    resolver: &ResolverConfig,
) -> ResolverConfig {
    let domain = &node.cluster_domain;
    let own = resolver.searches.iter().cloned();
    let searches = if domain.is_empty() {
        own.collect()
    } else {
        let cluster = [
            format!("{}.svc.{domain}", pod.namespace()),
            format!("svc.{domain}"),
            domain.clone(),
        ];
        unique(cluster.into_iter().chain(own))
    };
    ResolverConfig {
        servers,
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

/// Without a resolver file, lookups go to the node itself, and find nothing unless it serves names.
fn node_dns(node: &NodePolicy, resolver: &ResolverConfig) -> ResolverConfig {
    if !node.resolver_config.as_os_str().is_empty() {
        return resolver.clone();
    }
    let local = |ip: &String| match ip.parse() {
        Ok(IpAddr::V6(_)) => "::1".to_owned(),
        Ok(IpAddr::V4(_)) | Err(_) => "127.0.0.1".to_owned(),
    };
    let mut servers: Vec<_> = node.host_ips.iter().map(local).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    ResolverConfig {
        servers,
        searches: vec![".".to_owned()],
        options: Vec::new(),
    }
}

fn merge(dns: &mut ResolverConfig, config: &PodDNSConfig) {
    let more = |list: &mut Vec<String>, added: &Option<Vec<String>>| {
        let all = std::mem::take(list).into_iter();
        *list = unique(all.chain(added.iter().flatten().cloned()));
    };
    more(&mut dns.servers, &config.nameservers);
    more(&mut dns.searches, &config.searches);
    for option in config.options.iter().flatten() {
        let Some(name) = &option.name else { continue };
        match option.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => resolver::set_option(&mut dns.options, &format!("{name}:{value}")),
            None => resolver::set_option(&mut dns.options, name),
        }
    }
}

fn unique(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut list = Vec::new();
    for word in words {
        if !list.contains(&word) {
            list.push(word);
        }
    }
    list
}

impl PodDns {
    fn tell_missing_cluster_dns(&mut self, pod: &Pod) {
        const TEXT: &str = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
        let reason = "MissingClusterDNS";
        let of_pod = format!("pod: {:?}. {TEXT}", pod.formatted());
        self.node_why.push(warning(reason, TEXT.to_owned()));
        self.why.push(warning(reason, of_pod));
    }

    fn keep_limits(&mut self) {
        if self.dns.servers.len() > MAX_SERVERS {
            self.dns.servers.truncate(MAX_SERVERS);
            self.tell_limit(
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is:",
                &self.dns.servers.join(" "),
            );
        }
        let searches = &mut self.dns.searches;
        let asked = searches.len();
        searches.truncate(MAX_SEARCHES);
        // Some resolvers abort at a longer name.
        searches.retain(|domain| domain.len() <= MAX_DOMAIN);
        while searches.join(" ").len() > MAX_SEARCH_LINE {
            searches.pop();
        }
        if searches.len() < asked {
            self.tell_limit(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is:",
                &self.dns.searches.join(" "),
            );
        }
    }

    fn tell_limit(&mut self, text: &str, line: &str) {
        self.why
            .push(warning("DNSConfigForming", format!("{text} {line}")));
    }
}

fn warning(reason: &str, message: String) -> HistoryEvent {
    HistoryEvent {
        object: None,
        weight: EventLevel::Warning,
        reason: reason.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests;
