//! What a pod's resolver file says (upstream's kubelet/network/dns at v1.36).

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};
use serde::{Deserialize, Serialize};

use crate::pod::PodView;
use crate::sandbox::NodePolicy;

/// The three lines of a resolver file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

const MOST_SERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const LONGEST_SEARCH_LINE: usize = 2048;
const LONGEST_DOMAIN: usize = 253;

impl Dns {
    /// Reads a resolver file; lines it does not know are passed over.
    pub fn parse(text: &str) -> Self {
        let mut dns = Self::default();
        for line in text.lines().map(str::trim).filter(|l| !l.starts_with('#')) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
                // The last one wins; a trailing dot is not part of the name.
                Some("search") => {
                    let domains = words.filter(|w| *w != ".");
                    dns.searches = domains
                        .map(|w| w.strip_suffix('.').unwrap_or(w).to_owned())
                        .collect();
                }
                Some("options") => words.for_each(|option| set_option(&mut dns.options, option)),
                _ => {}
            }
        }
        dns
    }

    fn within_limits(mut self) -> Self {
        self.servers.truncate(MOST_SERVERS);
        self.searches.truncate(MOST_SEARCHES);
        self.searches
            .retain(|domain| domain.len() <= LONGEST_DOMAIN);
        let line = |searches: &[String]| searches.join(" ").len();
        while line(&self.searches) > LONGEST_SEARCH_LINE {
            self.searches.pop();
        }
        self
    }
}

/// A pod's resolver settings by its `dnsPolicy` and `dnsConfig`.
pub fn pod_dns(pod: &Pod, node: &NodePolicy) -> Dns {
    let spec = pod.spec();
    let mut dns = match spec.and_then(|s| s.dns_policy.as_deref()) {
        Some("None") => Dns::default(),
        Some("Default") => node.resolv_conf.clone(),
        Some("ClusterFirst") | None if pod.host_network() => node.resolv_conf.clone(),
        // Without a cluster DNS there is only the node's.
        _ if node.cluster_dns.is_empty() => node.resolv_conf.clone(),
        _ => cluster_dns(pod, node),
    };
    if let Some(config) = spec.and_then(|s| s.dns_config.as_ref()) {
        merge(&mut dns, config);
    }
    dns.within_limits()
}

fn cluster_dns(pod: &Pod, node: &NodePolicy) -> Dns {
    let domain = &node.cluster_domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        let services = format!("svc.{domain}");
        add(&mut searches, &format!("{}.{services}", pod.namespace()));
        add(&mut searches, &services);
        add(&mut searches, domain);
    }
    node.resolv_conf
        .searches
        .iter()
        .for_each(|s| add(&mut searches, s));
    Dns {
        servers: node.cluster_dns.clone(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

fn merge(dns: &mut Dns, config: &PodDNSConfig) {
    config
        .nameservers
        .iter()
        .flatten()
        .for_each(|s| add(&mut dns.servers, s));
    config
        .searches
        .iter()
        .flatten()
        .for_each(|s| add(&mut dns.searches, s));
    for option in config.options.iter().flatten() {
        let Some(name) = &option.name else { continue };
        match option.value.as_deref().filter(|v| !v.is_empty()) {
            Some(value) => set_option(&mut dns.options, &format!("{name}:{value}")),
            None => set_option(&mut dns.options, name),
        }
    }
}

fn add(list: &mut Vec<String>, item: &str) {
    if !list.iter().any(|known| known == item) {
        list.push(item.to_owned());
    }
}

/// A later value of the same option replaces the earlier one, in its place.
fn set_option(options: &mut Vec<String>, option: &str) {
    let name = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|known| name(known) == name(option)) {
        Some(known) => option.clone_into(known),
        None => options.push(option.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodDNSConfigOption;

    use super::*;
    use crate::testing::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn node() -> NodePolicy {
        NodePolicy {
            cluster_dns: list(&["10.96.0.10"]),
            cluster_domain: "cluster.local".into(),
            resolv_conf: Dns {
                servers: list(&["1.1.1.1"]),
                searches: list(&["lan"]),
                options: Vec::new(),
            },
            ..NodePolicy::default()
        }
    }

    /// Upstream's TestParseResolvConf.
    #[test]
    fn resolver_files_are_read_as_upstream() {
        let cases: [(&str, Dns); 8] = [
            ("", Dns::default()),
            ("# comment\n\n \n", Dns::default()),
            (
                "nameserver 1.2.3.4",
                Dns {
                    servers: list(&["1.2.3.4"]),
                    ..Dns::default()
                },
            ),
            (
                "  nameserver   1.2.3.4\nnameserver 5.6.7.8",
                Dns {
                    servers: list(&["1.2.3.4", "5.6.7.8"]),
                    ..Dns::default()
                },
            ),
            ("nameserver", Dns::default()),
            (
                "search foo. bar .\nsearch baz.",
                Dns {
                    searches: list(&["baz"]),
                    ..Dns::default()
                },
            ),
            ("search .", Dns::default()),
            (
                "options ndots:5 a\noptions ndots:1",
                Dns {
                    options: list(&["ndots:1", "a"]),
                    ..Dns::default()
                },
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(Dns::parse(text), expected, "{text:?}");
        }
    }

    /// Policy, on the node's network, servers, searches.
    type Row<'a> = (Option<&'a str>, bool, &'a [&'a str], &'a [&'a str]);

    /// Upstream's TestGetPodDNS.
    #[test]
    fn the_policy_decides_whose_resolver_a_pod_has() {
        let cluster: &[&str] = &[
            "default.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
            "lan",
        ];
        let cases: [Row<'_>; 6] = [
            (None, false, &["10.96.0.10"], cluster),
            (Some("ClusterFirst"), false, &["10.96.0.10"], cluster),
            (Some("ClusterFirst"), true, &["1.1.1.1"], &["lan"]),
            (
                Some("ClusterFirstWithHostNet"),
                true,
                &["10.96.0.10"],
                cluster,
            ),
            (Some("Default"), false, &["1.1.1.1"], &["lan"]),
            (Some("None"), false, &[], &[]),
        ];
        for (policy, host_network, servers, searches) in cases {
            let pod = pod("p").spec_with(|spec| {
                spec.dns_policy = policy.map(str::to_owned);
                spec.host_network = Some(host_network);
            });
            let dns = pod_dns(&pod, &node());
            assert_eq!(
                (dns.servers, dns.searches),
                (list(servers), list(searches)),
                "{policy:?} {host_network}"
            );
        }
        let alone = NodePolicy {
            cluster_dns: Vec::new(),
            ..node()
        };
        assert_eq!(
            pod_dns(&pod("p"), &alone).servers,
            ["1.1.1.1"],
            "no cluster DNS: the node's"
        );
    }

    #[test]
    fn the_pods_own_settings_are_added_within_limits() {
        let option = |name: &str, value: Option<&str>| PodDNSConfigOption {
            name: Some(name.into()),
            value: value.map(str::to_owned),
        };
        let pod = pod("p").spec_with(|spec| {
            spec.dns_config = Some(PodDNSConfig {
                nameservers: Some(list(&["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"])),
                searches: Some(vec!["lan".into(), "x".repeat(254), "own".into()]),
                options: Some(vec![option("ndots", Some("2")), option("edns0", None)]),
            });
        });
        let dns = pod_dns(&pod, &node());
        assert_eq!(dns.servers, ["10.96.0.10", "1.1.1.1", "2.2.2.2"]);
        assert_eq!(dns.searches[3..], ["lan", "own"]);
        assert_eq!(dns.options, ["ndots:2", "edns0"]);
        let many = pod.spec_with(|spec| {
            let searches = (0..40)
                .map(|n| format!("{n:03}{}", "x".repeat(100)))
                .collect();
            spec.dns_config.as_mut().unwrap().searches = Some(searches);
        });
        let searches = pod_dns(&many, &node()).searches;
        assert!(searches.len() <= 32 && searches.join(" ").len() <= 2048);
    }
}
