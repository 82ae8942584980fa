//! The value of a `fieldRef`.
//!
//! Mirrors upstream's `podFieldSelectorRuntimeValue` (kubelet_pods.go), pkg/apis/core/pods and
//! pkg/fieldpath at v1.36.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::ObjectFieldSelector;
use logic_api::pod::PodView;
use logic_api::text::field_path::{lines, subscript};

use super::{EnvironmentError, EnvironmentInput};

pub(super) fn value(
    input: &EnvironmentInput<'_>,
    selector: &ObjectFieldSelector,
) -> Result<String, EnvironmentError> {
    let version = selector.api_version.as_deref().unwrap_or_default();
    if !["", "v1"].contains(&version) {
        return Err(EnvironmentError::FieldVersion(version.to_owned()));
    }
    let (pod, path) = (input.pod, selector.field_path.as_str());
    if let Some((field, key)) = subscript(path) {
        let words = match field {
            "metadata.labels" => pod.labels(),
            "metadata.annotations" => pod.annotations(),
            _ => return Err(EnvironmentError::Subscript(path.to_owned())),
        };
        return Ok(words.get(key).cloned().unwrap_or_default());
    }
    let spec = pod.spec();
    let node = input.node;
    let value = match path {
        "metadata.name" => pod.name().to_owned(),
        "metadata.namespace" => pod.namespace().to_owned(),
        "metadata.uid" => pod.uid().to_string(),
        "metadata.labels" => lines(pod.labels()),
        "metadata.annotations" => lines(pod.annotations()),
        "spec.nodeName" | "spec.host" => spec
            .and_then(|s| s.node_name.clone())
            .unwrap_or_else(|| node.node_name.clone()),
        "spec.serviceAccountName" => spec
            .and_then(|s| s.service_account_name.clone())
            .unwrap_or_default(),
        "status.hostIP" => node.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => node.host_ips.join(","),
        "status.podIP" => pod_ips(input).into_iter().next().unwrap_or_default(),
        "status.podIPs" => pod_ips(input).join(","),
        "spec.restartPolicy" | "spec.schedulerName" | "status.phase" => {
            return Err(EnvironmentError::Field(path.to_owned()));
        }
        _ => return Err(EnvironmentError::FieldLabel(path.to_owned())),
    };
    Ok(value)
}

/// At most one address of each family, that of the node's first address first.
fn pod_ips(input: &EnvironmentInput<'_>) -> Vec<String> {
    let node = &input.node.host_ips;
    let all = if input.pod.host_network() {
        node
    } else {
        input.pod_ips
    };
    let is_v6 = |ip: &str| ip.parse::<IpAddr>().ok().map(|ip| ip.is_ipv6());
    let first_is_v6 = node.first().and_then(|ip| is_v6(ip)).unwrap_or(false);
    let of = |wanted: bool| all.iter().find(|ip| is_v6(ip) == Some(wanted)).cloned();
    [of(first_is_v6), of(!first_is_v6)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use logic_api::objects::StaticObjects;
    use logic_api::testing::*;
    use logic_api::text::env_file::EnvFiles;
    use logic_resources::node::policy::NodePolicy;

    use super::*;

    fn of(
        pod: &Pod,
        path: &str,
        version: &str,
        ips: &[&str],
        node: &[&str],
    ) -> Result<String, String> {
        let owned = |list: &[&str]| list.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
        let node = NodePolicy {
            node_name: "edge-1".into(),
            host_ips: owned(node),
            ..NodePolicy::default()
        };
        let container = spec_container("c");
        let input = EnvironmentInput {
            pod,
            container: &container,
            pod_ips: &owned(ips),
            node: &node,
            objects: &StaticObjects::default(),
            env_files: &EnvFiles::default(),
        };
        let selector = ObjectFieldSelector {
            api_version: (!version.is_empty()).then(|| version.to_owned()),
            field_path: path.to_owned(),
        };
        value(&input, &selector).map_err(|error| error.to_string())
    }

    const IPS: [&str; 2] = ["10.0.0.1", "fd00::2"];
    const NODE: [&str; 2] = ["192.168.0.1", "fd00::1"];

    /// Upstream's TestExtractFieldPathAsString, TestFormatMap, TestSplitMaybeSubscriptedPath and
    /// TestConvertDownwardAPIFieldLabel.
    #[test]
    fn fields_of_the_pod_are_its_values() {
        let mut pod = pod("web");
        pod.metadata.labels = Some(string_map(&[("app/tier", "front"), ("b", "\"\n\\é\u{1}")]));
        pod.metadata.annotations = Some(string_map(&[("a[b]c", "x"), ("note", "y")]));
        pod.spec.as_mut().unwrap().service_account_name = Some("robot".into());
        let cases = [
            ("metadata.name", Ok("web")),
            ("metadata.namespace", Ok("default")),
            ("metadata.uid", Ok("web-uid")),
            ("metadata.labels['app/tier']", Ok("front")),
            ("metadata.annotations['note']", Ok("y")),
            ("metadata.annotations['a[b]c']", Ok("x")),
            ("metadata.annotations['none']", Ok("")),
            ("metadata.labels['']", Ok("")),
            ("metadata.annotations", Ok("a[b]c=\"x\"\nnote=\"y\"")),
            (
                "metadata.labels",
                Ok("app/tier=\"front\"\nb=\"\\\"\\n\\\\é\\x01\""),
            ),
            ("spec.nodeName", Ok("edge-1")),
            ("spec.host", Ok("edge-1")),
            ("spec.serviceAccountName", Ok("robot")),
            ("status.hostIP", Ok("192.168.0.1")),
            ("status.hostIPs", Ok("192.168.0.1,fd00::1")),
            ("status.podIP", Ok("10.0.0.1")),
            ("status.podIPs", Ok("10.0.0.1,fd00::2")),
            ("status.phase", Err("unsupported fieldPath: status.phase")),
            (
                "metadata.nothing",
                Err("field label not supported: metadata.nothing"),
            ),
            (
                "metadata.labels['x",
                Err("field label not supported: metadata.labels['x"),
            ),
            ("['x']", Err("field label not supported: ['x']")),
            ("", Err("field label not supported: ")),
            (
                "spec['a']",
                Err("field label does not support subscript: spec['a']"),
            ),
        ];
        for (path, expected) in cases {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(of(&pod, path, "v1", &IPS, &NODE), expected, "{path}");
        }
        let said = of(&pod, "metadata.name", "v2", &IPS, &NODE);
        assert_eq!(said, Err("unsupported pod version: v2".to_owned()));
        assert_eq!(
            of(&pod, "metadata.name", "", &IPS, &NODE),
            Ok("web".to_owned())
        );
    }

    /// Upstream's TestMakeEnvironmentVariables ("downward api pod ips ...") and TestSortPodIPs.
    #[test]
    fn a_pod_has_one_address_of_each_family_in_the_nodes_order() {
        let cases: [(&[&str], &[&str], &str); 6] = [
            (&["1.2.3.4", "fd00::6"], &NODE, "1.2.3.4,fd00::6"),
            (&["fd00::6", "1.2.3.4"], &NODE, "1.2.3.4,fd00::6"),
            (
                &["1.2.3.4", "192.168.1.1.", "fd00::6"],
                &NODE,
                "1.2.3.4,fd00::6",
            ),
            (&["1.2.3.4", "1.2.3.5"], &NODE, "1.2.3.4"),
            (&["1.2.3.4", "fd00::6"], &["fd00::1"], "fd00::6,1.2.3.4"),
            (&[], &NODE, ""),
        ];
        for (ips, node, expected) in cases {
            let made = of(&pod("p"), "status.podIPs", "v1", ips, node);
            assert_eq!(made, Ok(expected.to_owned()), "{ips:?} {node:?}");
        }
        let on_host = pod("p").spec_with(|spec| spec.host_network = Some(true));
        let made = of(&on_host, "status.podIP", "v1", &IPS, &NODE);
        assert_eq!(made, Ok("192.168.0.1".to_owned()));
    }
}
