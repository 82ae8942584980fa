//! What the runtime says: the verb and its parameters in the environment, the configuration on standard input.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use proto::network::{Attachment, Capabilities, Pod};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::answer::{self, Failure};

/// Set for every process that a network plugin runs: a call from there would end at the same plugin.
const WITHIN_PLUGIN: &str = "OXLET_NETWORK_DIR";
const INPUT_MAX: u64 = 4 << 20;
/// Less than the time that a kubelet gives its runtime (two minutes), and than the runtime's own.
const TIMEOUT: u64 = 80;
const TIMEOUT_MAX: u64 = 110;
const OWNER: &str = "oxlet-cni";

/// A verb of CNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
    Status,
    Gc,
    Version,
}

/// Everything that a call is made of.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) verb: Verb,
    pub(crate) socket: String,
    pub(crate) version: String,
    pub(crate) owner: String,
    pub(crate) timeout: Duration,
    /// Without a sandbox for STATUS and GC.
    pub(crate) attachment: Attachment,
    pub(crate) netns: String,
    pub(crate) pod: Pod,
    pub(crate) arguments: BTreeMap<String, String>,
    pub(crate) capabilities: Capabilities,
    /// For GC.
    pub(crate) valid: Vec<Valid>,
}

/// An attachment that GC is to leave.
#[derive(Debug, Deserialize)]
pub(crate) struct Valid {
    #[serde(rename = "containerID")]
    pub(crate) sandbox: String,
    #[serde(rename = "ifname")]
    pub(crate) interface: String,
}

/// What is read of the configuration; runtimes add to it as they like.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Conf {
    cni_version: String,
    #[serde(default)]
    socket: String,
    #[serde(default)]
    network: String,
    owner: Option<String>,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    runtime_config: Map<String, Value>,
    prev_result: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid: Option<Vec<Valid>>,
    /// The name that libcni gives it as well.
    #[serde(rename = "cni.dev/attachments")]
    attachments: Option<Vec<Valid>>,
}

impl Verb {
    pub(crate) fn read(environment: &impl Fn(&str) -> String) -> Result<Self, Failure> {
        Ok(match environment("CNI_COMMAND").as_str() {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "STATUS" => Self::Status,
            "GC" => Self::Gc,
            "VERSION" => Self::Version,
            other => {
                let text = format!("CNI_COMMAND is {other:?}, expected a verb of CNI");
                return Err(Failure::new(answer::ENVIRONMENT, text));
            }
        })
    }

    fn is_of_attachment(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }
}

impl Input {
    pub(crate) fn read(
        verb: Verb,
        environment: &impl Fn(&str) -> String,
        input: impl Read,
    ) -> Result<Self, Failure> {
        let config = |text: String| Failure::new(answer::CONFIG, text);
        if !environment(WITHIN_PLUGIN).is_empty() {
            let text = "oxlet-cni is called by a network plugin: it would call itself; take it out of that plugin's chain";
            return Err(config(text.to_owned()));
        }
        let conf = read_conf(input)?;
        if !answer::is_version(&conf.cni_version) {
            let text = format!(
                "cniVersion {:?} is none of those that VERSION lists",
                conf.cni_version
            );
            return Err(Failure::new(answer::VERSION, text));
        }
        if !conf.socket.starts_with('/') {
            let text = format!(
                "socket {:?}, expected the path of the network plugin's socket",
                conf.socket
            );
            return Err(config(text));
        }
        if verb == Verb::Add && conf.prev_result.is_some() {
            let text = "oxlet-cni is not the first of its chain: put the other plugins into the network plugin's own chain";
            return Err(config(text.to_owned()));
        }
        let attachment = attachment(verb, environment, &conf.network)?;
        let (pod, arguments) = pod(&environment("CNI_ARGS"))?;
        let valid = conf.valid.or(conf.attachments);
        if verb == Verb::Gc && valid.is_none() {
            let text =
                "cni.dev/valid-attachments is missing: without it nothing is known to be valid";
            return Err(config(text.to_owned()));
        }
        let seconds = conf
            .timeout_seconds
            .unwrap_or(TIMEOUT)
            .clamp(1, TIMEOUT_MAX);
        Ok(Self {
            verb,
            socket: conf.socket,
            version: conf.cni_version,
            owner: conf.owner.unwrap_or_else(|| OWNER.to_owned()),
            timeout: Duration::from_secs(seconds),
            attachment,
            netns: environment("CNI_NETNS"),
            pod,
            arguments,
            capabilities: capabilities(conf.runtime_config),
            valid: valid.unwrap_or_default(),
        })
    }
}

fn read_conf(input: impl Read) -> Result<Conf, Failure> {
    let mut text = Vec::new();
    input
        .take(INPUT_MAX)
        .read_to_end(&mut text)
        .map_err(|error| Failure::new(answer::IO, format!("standard input: {error}")))?;
    serde_json::from_slice(&text)
        .map_err(|error| Failure::new(answer::DECODE, format!("network configuration: {error}")))
}

fn attachment(
    verb: Verb,
    environment: &impl Fn(&str) -> String,
    network: &str,
) -> Result<Attachment, Failure> {
    let mut names: Vec<&str> = Vec::new();
    if verb.is_of_attachment() {
        names.extend(["CNI_CONTAINERID", "CNI_IFNAME"]);
    }
    if matches!(verb, Verb::Add | Verb::Check) {
        names.push("CNI_NETNS");
    }
    names.retain(|name| environment(name).is_empty());
    if !names.is_empty() {
        let text = format!("missing in the environment: {}", names.join(", "));
        return Err(Failure::new(answer::ENVIRONMENT, text));
    }
    Ok(Attachment {
        sandbox_id: environment("CNI_CONTAINERID"),
        network: network.to_owned(),
        interface_name: environment("CNI_IFNAME"),
    })
}

/// Reads CNI_ARGS: who the pod is, and what else there is.
fn pod(text: &str) -> Result<(Pod, BTreeMap<String, String>), Failure> {
    let (mut pod, mut others) = (Pod::default(), BTreeMap::new());
    for pair in text.split(';').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            let text = format!("CNI_ARGS: {pair:?}, expected KEY=VALUE");
            return Err(Failure::new(answer::ENVIRONMENT, text));
        };
        let value = value.to_owned();
        match key {
            "K8S_POD_NAMESPACE" => pod.namespace = value,
            "K8S_POD_NAME" => pod.name = value,
            "K8S_POD_UID" => pod.uid = value,
            _ => drop(others.insert(key.to_owned(), value)),
        }
    }
    Ok((pod, others))
}

/// Every capability goes on as it came: the chain decides which it takes.
fn capabilities(given: Map<String, Value>) -> Capabilities {
    let given = given.into_iter();
    Capabilities {
        other_json: given
            .map(|(name, value)| (name, value.to_string().into_bytes()))
            .collect(),
        ..Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str =
        r#"{"cniVersion": "1.0.0", "name": "n", "type": "oxlet-cni", "socket": "/s"}"#;

    fn read(verb: &str, variables: &[(&str, &str)], conf: &str) -> Result<Input, Failure> {
        let environment = |name: &str| {
            let command = ("CNI_COMMAND", verb);
            let mut all = variables.iter().chain([&command]);
            let found = all.find(|(known, _)| *known == name);
            found.map_or_else(String::new, |(_, value)| (*value).to_owned())
        };
        Input::read(Verb::read(&environment)?, &environment, conf.as_bytes())
    }

    const POD: [(&str, &str); 4] = [
        ("CNI_CONTAINERID", "abc"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/run/netns/x"),
        (
            "CNI_ARGS",
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_UID=u;IP=10.0.0.9",
        ),
    ];

    #[test]
    fn the_pod_and_the_rest_of_the_arguments_are_told_apart() {
        let input = read("ADD", &POD, CONF).unwrap();
        assert_eq!(
            (input.pod.namespace.as_str(), input.pod.name.as_str()),
            ("ns", "pod")
        );
        assert_eq!(input.pod.uid, "u");
        assert_eq!(input.arguments["IP"], "10.0.0.9");
        assert_eq!(input.timeout, Duration::from_secs(80));
    }

    #[test]
    fn a_call_from_within_a_network_plugin_is_refused_by_name() {
        let mut variables = POD.to_vec();
        variables.push((WITHIN_PLUGIN, "/var/lib/x"));
        let refusal = read("ADD", &variables, CONF).unwrap_err();
        assert_eq!(refusal.code, answer::CONFIG);
        assert!(
            refusal
                .message
                .starts_with("oxlet-cni is called by a network plugin")
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_code_of_the_specification() {
        let chained = CONF.replace("\"name\"", "\"prevResult\": {}, \"name\"");
        let old = CONF.replace("1.0.0", "0.2.0");
        let homeless = CONF.replace("/s", "s");
        for (verb, variables, conf, code) in [
            ("SING", &POD[..], CONF, answer::ENVIRONMENT),
            ("ADD", &POD[..2], CONF, answer::ENVIRONMENT),
            ("DEL", &POD[..1], CONF, answer::ENVIRONMENT),
            ("ADD", &POD[..], "{", answer::DECODE),
            ("ADD", &POD[..], &chained, answer::CONFIG),
            ("ADD", &POD[..], &old, answer::VERSION),
            ("DEL", &POD[..], &homeless, answer::CONFIG),
            ("GC", &[], CONF, answer::CONFIG),
        ] {
            let refusal = read(verb, variables, conf).unwrap_err();
            assert_eq!(refusal.code, code, "{verb} {conf}: {}", refusal.message);
        }
        assert!(
            read(
                "DEL",
                &POD[..2],
                &CONF.replace("\"name\"", "\"prevResult\": {}, \"name\"")
            )
            .is_ok()
        );
    }
}
