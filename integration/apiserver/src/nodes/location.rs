//! The location of a proxied call: a kubelet's address, and the kubelet's path for the API's.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{QueryParameters, RequestInfo};
use crate::kinds::core;
use crate::server::state::State;

const KUBELET: u64 = 10250;
/// The feature that a node declares whose kubelet understands the newer WebSockets.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// A path of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProxyTarget {
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) path: String,
}

impl ProxyTarget {
    pub(super) fn host(&self) -> String {
        if self.address.contains(':') {
            format!("[{}]:{}", self.address, self.port)
        } else {
            format!("{}:{}", self.address, self.port)
        }
    }
}

/// Returns where a call goes; none for the log of a pod that is on no node.
pub(super) fn of(
    state: &State,
    call: &RequestInfo,
    uri: &http::Uri,
) -> Result<Option<ProxyTarget>, StatusError> {
    if call.resource.plural == "nodes" {
        let query = uri
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        let name = call.name().split(':').next().unwrap_or_default();
        let name = if name == "https" || name == "http" {
            call.name().split(':').nth(1).unwrap_or_default()
        } else {
            name
        };
        return kubelet(state, name, format!("/{}{query}", call.rest)).map(Some);
    }
    let pods = core("pods");
    let pod = state
        .store()
        .get(pods, call.namespace(), call.name())
        .ok_or_else(|| StatusError::not_found(pods, call.name()))?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let path = path(call, &pod)?;
    match (node, call.subresource()) {
        ("", Some("log")) => Ok(None),
        ("", _) => Err(StatusError::bad_request(format!(
            "pod {} does not have a host assigned",
            call.name()
        ))),
        (node, _) => kubelet(state, node, path).map(Some),
    }
}

/// Whether the node of a call's pod declares that its kubelet understands the newer WebSockets.
pub(super) fn understands_websockets(state: &State, call: &RequestInfo) -> bool {
    let store = state.store();
    let pod = store.get(core("pods"), call.namespace(), call.name());
    let node = pod.and_then(|pod| {
        let node = pod["spec"]["nodeName"].as_str()?;
        store.get(core("nodes"), "", node)
    });
    let declared = node.and_then(|node| node["status"]["declaredFeatures"].as_array().cloned());
    declared.is_some_and(|features| features.iter().any(|one| one == WEBSOCKETS))
}

/// Returns where the kubelet of a node listens.
pub(super) fn kubelet(state: &State, node: &str, path: String) -> Result<ProxyTarget, StatusError> {
    let nodes = core("nodes");
    let node = state
        .store()
        .get(nodes, "", node)
        .ok_or_else(|| StatusError::not_found(nodes, node))?;
    let addresses = node["status"]["addresses"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let of_kind = |kind: &str| {
        addresses
            .iter()
            .find(|one| one["type"] == kind)
            .and_then(|one| one["address"].as_str())
    };
    let address = ["InternalIP", "ExternalIP", "InternalDNS", "Hostname"]
        .into_iter()
        .find_map(of_kind);
    let address = address.ok_or_else(|| {
        StatusError::new(
            500,
            "InternalError",
            "Internal error occurred: no preferred addresses found; known addresses: []",
        )
    })?;
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        .as_u64()
        .filter(|port| *port > 0)
        .unwrap_or(KUBELET);
    let address = state.options.kubelets_at.as_deref().unwrap_or(address);
    Ok(ProxyTarget {
        address: address.to_string(),
        port: u16::try_from(port).unwrap_or_default(),
        path,
    })
}

fn path(call: &RequestInfo, pod: &Value) -> Result<String, StatusError> {
    let (namespace, name, query) = (call.namespace(), call.name(), &call.query);
    let flags = [
        ("stdin", "input"),
        ("stdout", "output"),
        ("stderr", "error"),
        ("tty", "tty"),
    ];
    let streams = || {
        flags
            .into_iter()
            .filter(|(wanted, _)| query.is_true(wanted))
            .map(|(_, name)| (name, "1".to_string()))
    };
    let (path, pairs): (String, Vec<(&str, String)>) = match call.subresource() {
        Some("log") => (
            format!("containerLogs/{namespace}/{name}/{}", container(call, pod)?),
            log_options(query),
        ),
        Some("exec") => {
            let command = query
                .all("command")
                .map(|word| ("command", word.to_string()));
            (
                format!("exec/{namespace}/{name}/{}", container(call, pod)?),
                streams().chain(command).collect(),
            )
        }
        Some("attach") => (
            format!("attach/{namespace}/{name}/{}", container(call, pod)?),
            streams().collect(),
        ),
        Some("portforward") => {
            let ports: Vec<&str> = query.all("ports").collect();
            let port = (!ports.is_empty()).then(|| ("port", ports.join(",")));
            (
                format!("portForward/{namespace}/{name}"),
                port.into_iter().collect(),
            )
        }
        _ => return Err(StatusError::no_such_path()),
    };
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={}", encoded(&value)))
        .collect();
    let mark = if pairs.is_empty() { "" } else { "?" };
    Ok(format!("/{path}{mark}{}", pairs.join("&")))
}

fn log_options(query: &QueryParameters) -> Vec<(&'static str, String)> {
    let flags = ["follow", "previous", "timestamps"]
        .into_iter()
        .filter(|name| query.is_true(name))
        .map(|name| (name, "true".to_string()));
    let values = [
        "sinceSeconds",
        "sinceTime",
        "tailLines",
        "limitBytes",
        "stream",
    ];
    let values = values
        .into_iter()
        .filter_map(|name| query.get(name).map(|value| (name, value.to_string())));
    flags.chain(values).collect()
}

/// Returns the container that is meant; a pod with one container needs no name.
fn container<'a>(call: &'a RequestInfo, pod: &'a Value) -> Result<&'a str, StatusError> {
    let names = |field: &str| -> Vec<&'a str> {
        let containers = pod["spec"][field].as_array().into_iter().flatten();
        containers
            .filter_map(|container| container["name"].as_str())
            .collect()
    };
    let (all, first) = (names("containers"), names("initContainers"));
    if let Some(name) = call.query.get("container") {
        if all.contains(&name)
            || first.contains(&name)
            || names("ephemeralContainers").contains(&name)
        {
            return Ok(name);
        }
        return Err(StatusError::bad_request(format!(
            "container {name} is not valid for pod {}",
            call.name()
        )));
    }
    match all.as_slice() {
        [one] => Ok(one),
        [] => Err(StatusError::bad_request(format!(
            "a container name must be specified for pod {}",
            call.name()
        ))),
        several => {
            let mut why = format!(
                "a container name must be specified for pod {}, choose one of: [{}]",
                call.name(),
                several.join(" ")
            );
            if !first.is_empty() {
                why.push_str(&format!(
                    " or one of the init containers: [{}]",
                    first.join(" ")
                ));
            }
            Err(StatusError::bad_request(why))
        }
    }
}

/// What a URL has unescaped by RFC 3986.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};
    use serde_json::json;

    use super::*;

    fn carried(target: &str, pod: &Value) -> Result<String, StatusError> {
        let uri = format!("/api/v1/namespaces/d/pods/a/{target}")
            .parse()
            .unwrap();
        path(
            &RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new()).unwrap(),
            pod,
        )
    }

    /// Upstream's TestCheckLogLocation and TestSelectableFieldLabelConversions' neighbours for exec and port-forward.
    #[test]
    fn options_are_the_kubelets() {
        let pod = json!({"spec": {"containers": [{"name": "c"}]}});
        for (target, path) in [
            ("log", "/containerLogs/d/a/c"),
            (
                "log?follow=true&tailLines=5&timestamps=false",
                "/containerLogs/d/a/c?follow=true&tailLines=5",
            ),
            (
                "log?sinceTime=2026-01-02T03:04:05Z",
                "/containerLogs/d/a/c?sinceTime=2026-01-02T03%3A04%3A05Z",
            ),
            (
                "exec?command=sh&command=-c&command=a%20%26b&stdin=true&stdout=1&tty=true",
                "/exec/d/a/c?input=1&output=1&tty=1&command=sh&command=-c&command=a%20%26b",
            ),
            ("attach?container=c&stderr=true", "/attach/d/a/c?error=1"),
            ("portforward", "/portForward/d/a"),
            (
                "portforward?ports=80&ports=81",
                "/portForward/d/a?port=80%2C81",
            ),
        ] {
            assert_eq!(carried(target, &pod).unwrap(), path, "{target}");
        }
    }

    #[test]
    fn a_container_must_be_named_where_there_are_several() {
        let pod = json!({"spec": {"containers": [{"name": "b"}, {"name": "c"}], "initContainers": [{"name": "i"}]}});
        let why = |target: &str| carried(target, &pod).unwrap_err().message;
        assert_eq!(
            why("log"),
            "a container name must be specified for pod a, choose one of: [b c] or one of the init containers: [i]"
        );
        assert_eq!(
            why("exec?container=x"),
            "container x is not valid for pod a"
        );
        assert_eq!(
            carried("log?container=i", &pod).unwrap(),
            "/containerLogs/d/a/i"
        );
    }
}
