//! When a certificate is replaced, and what the next one must say.
//!
//! Upstream: client-go util/certificate/certificate_manager.go and pkg/kubelet/certificate/kubelet.go (1.36).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Whether a certificate is replaced before it is over: `rotateCertificates`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RotationPolicy {
    #[default]
    InTime,
    Never,
}

/// From when until when a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidityPeriod {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl ValidityPeriod {
    /// Whether it is no longer good.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now > self.not_after
    }

    /// When it is replaced, if it is: after 70 to 90 % of its life, by `chance` between zero and one.
    pub fn rotation(&self, renewal: RotationPolicy, chance: f64) -> Option<Timestamp> {
        match renewal {
            RotationPolicy::InTime => Some(self.in_time(chance)),
            RotationPolicy::Never => None,
        }
    }

    fn in_time(&self, chance: f64) -> Timestamp {
        let life = self.not_after.duration_since(self.not_before);
        let share = 0.7 + 0.2 * chance.clamp(0.0, 1.0);
        let used = SignedDuration::try_from_secs_f64(life.as_secs_f64() * share);
        let used = used.unwrap_or(SignedDuration::ZERO);
        self.not_before
            .saturating_add(used)
            .unwrap_or(self.not_after)
    }
}

/// A certificate's subject and subject alternative names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateSubject {
    pub common_name: String,
    pub organizations: BTreeSet<String>,
    pub names: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
}

impl CertificateSubject {
    /// The node's user: the subject of its client certificate.
    pub fn node(name: &str) -> CertificateSubject {
        CertificateSubject {
            common_name: format!("system:node:{name}"),
            organizations: BTreeSet::from(["system:nodes".to_owned()]),
            ..CertificateSubject::default()
        }
    }

    /// What this subject lacks of the wanted one, as text for an operator; none if it satisfies. More than wanted does
    /// no harm.
    pub fn difference_from(&self, wanted: &CertificateSubject) -> Option<String> {
        if self.common_name != wanted.common_name {
            let (has, wants) = (&self.common_name, &wanted.common_name);
            return Some(format!("its common name is {has:?}, expected {wants:?}"));
        }
        lacking("names", &self.names, &wanted.names)
            .or_else(|| lacking("addresses", &self.addresses, &wanted.addresses))
            .or_else(|| lacking("organizations", &self.organizations, &wanted.organizations))
    }
}

fn lacking<T: Ord + ToString>(
    what: &str,
    has: &BTreeSet<T>,
    wanted: &BTreeSet<T>,
) -> Option<String> {
    let missing: Vec<String> = wanted.difference(has).map(ToString::to_string).collect();
    (!missing.is_empty()).then(|| format!("it lacks the {what} {}", missing.join(", ")))
}

/// Whether a serving certificate may name no address at all: the gate AllowDNSOnlyNodeCSR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsOnlyPolicy {
    Allowed,
    Refused,
}

/// The subject that the node's serving certificate must have, by the addresses in the node's status (type and value);
/// none while it has no address.
pub fn serving<'a>(
    node: &str,
    addresses: impl IntoIterator<Item = (&'a str, &'a str)>,
    names_only: DnsOnlyPolicy,
) -> Option<CertificateSubject> {
    let mut subject = CertificateSubject::node(node);
    for (kind, value) in addresses {
        let address = value.parse::<IpAddr>();
        match (kind, address) {
            ("Hostname" | "InternalIP" | "ExternalIP", Ok(address)) => {
                subject.addresses.insert(address);
            }
            ("Hostname" | "InternalDNS" | "ExternalDNS", _) if !value.is_empty() => {
                subject.names.insert(value.to_owned());
            }
            _ => {}
        }
    }
    let is_reachable = match names_only {
        DnsOnlyPolicy::Allowed => !subject.addresses.is_empty() || !subject.names.is_empty(),
        DnsOnlyPolicy::Refused => !subject.addresses.is_empty(),
    };
    is_reachable.then_some(subject)
}

/// Between attempts to get a certificate: 2, 4, 8, 16 seconds, then every 32.
pub fn pause(failures: u32) -> Duration {
    Duration::from_secs(2 << failures.saturating_sub(1).min(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime() -> ValidityPeriod {
        ValidityPeriod {
            not_before: Timestamp::from_second(1_000).unwrap(),
            not_after: Timestamp::from_second(2_000).unwrap(),
        }
    }

    /// Upstream's TestSetRotationDeadline.
    #[test]
    fn a_certificate_is_replaced_after_seventy_to_ninety_percent_of_its_life() {
        let at = |chance| lifetime().rotation(RotationPolicy::InTime, chance);
        for (chance, second) in [(0.0, 1_700), (0.5, 1_800), (1.0, 1_900), (7.0, 1_900)] {
            assert_eq!(at(chance), Timestamp::from_second(second).ok());
        }
        assert_eq!(lifetime().rotation(RotationPolicy::Never, 0.0), None);
    }

    #[test]
    fn it_is_over_after_its_last_moment() {
        let at = |second| lifetime().is_over(Timestamp::from_second(second).unwrap());
        assert!(!at(2_000));
        assert!(at(2_001));
    }

    /// Upstream's TestCertSatisfiesTemplate.
    #[test]
    fn a_certificate_satisfies_if_it_says_at_least_what_is_wanted() {
        let mut has = CertificateSubject::node("n");
        has.names.insert("n".into());
        has.addresses.insert("10.0.0.1".parse().unwrap());
        let mut wanted = CertificateSubject::node("n");
        assert_eq!(has.difference_from(&wanted), None);
        wanted.names.insert("m".into());
        assert_eq!(
            has.difference_from(&wanted).unwrap(),
            "it lacks the names m"
        );
        wanted = CertificateSubject::node("n");
        wanted.addresses.insert("::1".parse().unwrap());
        assert_eq!(
            has.difference_from(&wanted).unwrap(),
            "it lacks the addresses ::1"
        );
        wanted = CertificateSubject::node("n");
        wanted.organizations.insert("x".into());
        assert_eq!(
            has.difference_from(&wanted).unwrap(),
            "it lacks the organizations x"
        );
        let other = CertificateSubject::node("o");
        assert!(has.difference_from(&other).unwrap().contains("common name"));
    }

    /// Upstream's TestAddressesToHostnamesAndIPs.
    #[test]
    fn addresses_of_the_node_become_names_and_addresses() {
        let all = [
            ("Hostname", "n"),
            ("Hostname", "10.0.0.9"),
            ("InternalIP", "10.0.0.1"),
            ("ExternalIP", "not an address"),
            ("InternalDNS", "n.example.com"),
            ("InternalDNS", ""),
            ("Hostname", ""),
            ("Other", "x"),
        ];
        let subject = serving("n", all, DnsOnlyPolicy::Refused).unwrap();
        let names: Vec<&str> = subject.names.iter().map(String::as_str).collect();
        assert_eq!(names, ["n", "n.example.com"]);
        assert_eq!(subject.addresses.len(), 2);
    }

    /// Upstream's TestNewCertificateManagerConfigGetTemplate.
    #[test]
    fn a_node_without_an_address_has_no_serving_certificate_unless_names_suffice() {
        const NAME: (&str, &str) = ("Hostname", "fake-node");
        const ADDRESS: (&str, &str) = ("InternalIP", "192.168.1.1");
        type Row<'a> = (&'a [(&'a str, &'a str)], [bool; 2]);
        let rows: [Row<'_>; 4] = [
            (&[], [false, false]),
            (&[NAME], [true, false]),
            (&[ADDRESS], [true, true]),
            (&[NAME, ADDRESS], [true, true]),
        ];
        for (addresses, wanted) in rows {
            let policies = [DnsOnlyPolicy::Allowed, DnsOnlyPolicy::Refused];
            for (policy, is_wanted) in policies.into_iter().zip(wanted) {
                let mut subject = CertificateSubject::node("fake-node");
                if addresses.contains(&NAME) {
                    subject.names.insert("fake-node".to_owned());
                }
                if addresses.contains(&ADDRESS) {
                    subject.addresses.insert("192.168.1.1".parse().unwrap());
                }
                let found = serving("fake-node", addresses.iter().copied(), policy);
                let expected = is_wanted.then_some(subject);
                assert_eq!(found, expected, "{addresses:?} {policy:?}");
            }
        }
        let subject = CertificateSubject::node("fake-node");
        assert_eq!(subject.common_name, "system:node:fake-node");
        assert_eq!(subject.organizations, ["system:nodes".to_owned()].into());
    }

    #[test]
    fn attempts_are_far_apart_soon_but_not_ever_farther() {
        let seconds: Vec<u64> = (1..=7).map(|n| pause(n).as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 32, 32]);
    }
}
