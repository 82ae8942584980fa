//! Requests, read and checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proto::network as wire;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tonic::Status;

use crate::attachments::AttachmentId;
use crate::conflist::{Form, Network, parse};
use crate::version::Version;

const INTERFACE: &str = "eth0";
const OWNER_MAX: usize = 64;
const ARGUMENT_MAX: usize = 4096;
const WITHIN_MAX: Duration = Duration::from_secs(600);
/// For a call that says nothing of its time: a chain of programs takes seconds, a slow IPAM a minute.
const CALL_TIMEOUT: Duration = Duration::from_secs(90);

/// What Add, Delete and Check say of an attachment.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The network may be empty.
    pub(crate) id: AttachmentId,
    pub(crate) netns: String,
    pub(crate) arguments: Vec<(String, String)>,
    pub(crate) capabilities: Map<String, Value>,
    pub(crate) end: Instant,
}

/// The parts of a request about an attachment, as three of them have them.
pub(crate) struct Parts {
    pub(crate) attachment: Option<wire::Attachment>,
    pub(crate) pod: Option<wire::Pod>,
    pub(crate) netns: String,
    pub(crate) capabilities: Option<wire::Capabilities>,
    pub(crate) cni_args: BTreeMap<String, String>,
    pub(crate) within_ms: u32,
}

fn invalid(text: impl Into<String>) -> Status {
    Status::invalid_argument(text)
}

/// Returns the moment at which a call has to be over.
pub(crate) fn end(within_ms: u32) -> Instant {
    let within = match within_ms {
        0 => CALL_TIMEOUT,
        millis => Duration::from_millis(millis.into()).min(WITHIN_MAX),
    };
    Instant::now() + within
}

/// Reads an attachment's identity.
pub(crate) fn identity(of: Option<wire::Attachment>) -> Result<AttachmentId, Status> {
    let of = of.ok_or_else(|| invalid("attachment: missing"))?;
    let interface = match of.interface_name.is_empty() {
        true => INTERFACE.to_owned(),
        false => of.interface_name,
    };
    let id = AttachmentId {
        network: of.network,
        sandbox: of.sandbox_id,
        interface,
    };
    id.check().map_err(invalid)?;
    Ok(id)
}

/// Reads what is wanted of an attachment.
pub(crate) fn wanted(parts: Parts) -> Result<Wanted, Status> {
    let id = identity(parts.attachment)?;
    if !parts.netns.is_empty() && !parts.netns.starts_with('/') {
        return Err(invalid(format!(
            "netns {:?}: expected an absolute path",
            parts.netns
        )));
    }
    let mut arguments = pod_arguments(parts.pod.unwrap_or_default(), &id);
    for (key, value) in parts.cni_args {
        arguments.retain(|(known, _)| *known != key);
        arguments.push((key, value));
    }
    for (key, value) in &arguments {
        let bad = |text: &str| text.contains([';', '\0']) || text.len() > ARGUMENT_MAX;
        if key.is_empty() || key.contains('=') || bad(key) || bad(value) {
            return Err(invalid(format!(
                "CNI argument {key:?}: it or its value cannot be in CNI_ARGS"
            )));
        }
    }
    Ok(Wanted {
        id,
        netns: parts.netns,
        arguments,
        capabilities: capabilities(parts.capabilities.unwrap_or_default())?,
        end: end(parts.within_ms),
    })
}

/// The arguments that runtimes give for the kubelet, in the order in which they do.
fn pod_arguments(pod: wire::Pod, id: &AttachmentId) -> Vec<(String, String)> {
    let pairs = [
        ("IgnoreUnknown", "1".to_owned()),
        ("K8S_POD_NAMESPACE", pod.namespace),
        ("K8S_POD_NAME", pod.name),
        ("K8S_POD_INFRA_CONTAINER_ID", id.sandbox.clone()),
        ("K8S_POD_UID", pod.uid),
    ];
    let told = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    told.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The capabilities under CNI's names; what is not asked for is left out.
fn capabilities(of: wire::Capabilities) -> Result<Map<String, Value>, Status> {
    let mut all = Map::new();
    for (name, text) in of.other_json {
        let value = serde_json::from_slice(&text)
            .map_err(|error| invalid(format!("capability {name:?} is not JSON: {error}")))?;
        all.insert(name, value);
    }
    let mut put = |name: &str, wanted: bool, value: Value| {
        if wanted {
            all.insert(name.to_owned(), value);
        }
    };
    let mappings = of.port_mappings.iter().map(mapping);
    let mappings = mappings.collect::<Result<Vec<_>, _>>()?;
    put("portMappings", !mappings.is_empty(), mappings.into());
    put(
        "bandwidth",
        of.bandwidth.is_some(),
        bandwidth(of.bandwidth.unwrap_or_default()),
    );
    put("dns", of.dns.is_some(), dns(of.dns.unwrap_or_default()));
    put("ips", !of.ips.is_empty(), json!(of.ips));
    put("mac", !of.mac.is_empty(), of.mac.into());
    put(
        "infinibandGUID",
        !of.infiniband_guid.is_empty(),
        of.infiniband_guid.into(),
    );
    put(
        "cgroupPath",
        !of.cgroup_path.is_empty(),
        of.cgroup_path.into(),
    );
    put("aliases", !of.aliases.is_empty(), json!(of.aliases));
    let annotations = json!(of.pod_annotations);
    put(
        "io.kubernetes.cri.pod-annotations",
        !of.pod_annotations.is_empty(),
        annotations,
    );
    if !of.ip_ranges_json.is_empty() {
        let ranges = serde_json::from_slice(&of.ip_ranges_json).map_err(|error| {
            invalid(format!("capabilities.ip_ranges_json is not JSON: {error}"))
        })?;
        all.insert("ipRanges".to_owned(), ranges);
    }
    Ok(all)
}

fn mapping(of: &wire::PortMapping) -> Result<Value, Status> {
    let port = |field: &str, port: u32| match u16::try_from(port) {
        Ok(port @ 1..) => Ok(port),
        Ok(0) | Err(_) => Err(invalid(format!(
            "capabilities.port_mappings: {field} {port}, expected 1 to 65535"
        ))),
    };
    let protocol = of.protocol.to_ascii_lowercase();
    if !matches!(protocol.as_str(), "tcp" | "udp" | "sctp") {
        let text =
            format!("capabilities.port_mappings: protocol {protocol:?}, expected tcp, udp or sctp");
        return Err(invalid(text));
    }
    Ok(json!({
        "hostPort": port("host_port", of.host_port)?,
        "containerPort": port("container_port", of.container_port)?,
        "protocol": protocol,
        "hostIP": of.host_ip,
    }))
}

fn bandwidth(of: wire::Bandwidth) -> Value {
    json!({
        "ingressRate": of.ingress_rate,
        "ingressBurst": of.ingress_burst,
        "egressRate": of.egress_rate,
        "egressBurst": of.egress_burst,
    })
}

// The names are those of the capability's conventions, not those of a result's dns.
fn dns(of: wire::Dns) -> Value {
    json!({ "servers": of.nameservers, "searches": of.search, "options": of.options })
}

/// Reads an owner's name.
pub(crate) fn owner(name: &str) -> Result<(), Status> {
    let sound = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    match sound && (1..=OWNER_MAX).contains(&name.len()) {
        true => Ok(()),
        false => Err(invalid(format!(
            "owner {name:?}: expected at most {OWNER_MAX} letters, digits, '-'"
        ))),
    }
}

/// Reads the version that a result is wanted in.
pub(crate) fn version(text: &str) -> Result<Version, Status> {
    match text {
        "" => Ok(Version::NEWEST),
        text => Version::parse(text).ok_or_else(|| {
            invalid(format!(
                "result_version {text:?}: expected one of 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"
            ))
        }),
    }
}

/// Reads the configuration that a caller kept of an attachment; none where it is empty.
pub(crate) fn configuration(text: &[u8]) -> Result<Option<Arc<Network>>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let network = parse(text, Form::List);
    let network = network.map_err(|error| invalid(format!("configuration_json: {error}")))?;
    match network.plugins.is_empty() {
        true => Err(invalid("configuration_json: no plugins in the list")),
        false => Ok(Some(Arc::new(network))),
    }
}
