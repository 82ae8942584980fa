//! Discovery and the version.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::endpoints::answer::{Response, json_response};
use crate::kinds::{self, Handling, Resource};

/// Returns the answer to a path of discovery; none if it is not one.
pub(crate) fn document(path: &str) -> Option<Response> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let value = match parts.as_slice() {
        ["version"] => version(),
        ["api"] => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        ["apis"] => {
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups().keys().map(|group| api_group(group)).collect::<Vec<Value>>()})
        }
        ["apis", group] if groups().contains_key(group) => {
            let mut document = api_group(group);
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            document
        }
        ["api", "v1"] => resources("", "v1"),
        ["apis", group, version]
            if groups()
                .get(group)
                .is_some_and(|versions| versions.contains(version)) =>
        {
            resources(group, version)
        }
        _ => return None,
    };
    Some(json_response(200, &value))
}

fn version() -> Value {
    json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "0000000000000000000000000000000000000000", "gitTreeState": "clean",
        "buildDate": "2026-04-22T00:00:00Z", "goVersion": "go1.26.0", "compiler": "gc", "platform": "linux/amd64"})
}

/// Returns the groups with names, and their versions.
fn groups() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut groups: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
    for resource in kinds::ALL
        .iter()
        .filter(|resource| !resource.group.is_empty())
    {
        let versions = groups.entry(resource.group).or_default();
        if !versions.contains(&resource.version) {
            versions.push(resource.version);
        }
    }
    groups
}

fn api_group(group: &str) -> Value {
    let groups = groups();
    let versions: Vec<Value> = groups
        .get(group)
        .into_iter()
        .flatten()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions[0]})
}

fn resources(group: &str, version: &str) -> Value {
    let mut all = Vec::new();
    for resource in kinds::ALL
        .iter()
        .filter(|resource| resource.group == group && resource.version == version)
    {
        all.push(one(resource));
        all.extend(
            resource
                .subresources
                .iter()
                .map(|subresource| sub(resource, subresource)),
        );
    }
    let group_version = if group.is_empty() {
        version.to_string()
    } else {
        format!("{group}/{version}")
    };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": all})
}

fn one(resource: &Resource) -> Value {
    let verbs: &[&str] = match resource.handling {
        Handling::Kept => &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ],
        Handling::Answered => &["create"],
        Handling::Measured => &["get", "list"],
    };
    let mut document = json!({"name": resource.plural, "singularName": resource.kind.to_lowercase(), "namespaced": resource.namespaced, "kind": resource.kind, "verbs": verbs});
    if !resource.short.is_empty() {
        document["shortNames"] = json!(resource.short);
    }
    if matches!(
        resource.plural,
        "pods"
            | "services"
            | "daemonsets"
            | "deployments"
            | "replicasets"
            | "statefulsets"
            | "jobs"
    ) && resource.handling == Handling::Kept
    {
        document["categories"] = json!(["all"]);
    }
    document
}

fn sub(resource: &Resource, subresource: &str) -> Value {
    let name = format!("{}/{subresource}", resource.plural);
    let (verbs, other): (&[&str], Option<(&str, &str, &str)>) = match subresource {
        "binding" => (&["create"], Some(("", "v1", "Binding"))),
        "eviction" => (&["create"], Some(("policy", "v1", "Eviction"))),
        "token" => (
            &["create"],
            Some(("authentication.k8s.io", "v1", "TokenRequest")),
        ),
        "log" => (&["get"], None),
        "exec" => (&["create", "get"], Some(("", "v1", "PodExecOptions"))),
        "attach" => (&["create", "get"], Some(("", "v1", "PodAttachOptions"))),
        "portforward" => (
            &["create", "get"],
            Some(("", "v1", "PodPortForwardOptions")),
        ),
        "proxy" if resource.plural == "nodes" => (
            &["create", "delete", "get", "patch", "update"],
            Some(("", "v1", "NodeProxyOptions")),
        ),
        "proxy" => (
            &["create", "delete", "get", "patch", "update"],
            Some(("", "v1", "PodProxyOptions")),
        ),
        "finalize" => (&["update"], None),
        _ => (&["get", "patch", "update"], None),
    };
    let mut document = json!({"name": name, "singularName": "", "namespaced": resource.namespaced, "kind": resource.kind, "verbs": verbs});
    if let Some((group, version, kind)) = other {
        document["kind"] = json!(kind);
        if !group.is_empty() || resource.group != group {
            document["group"] = json!(group);
            document["version"] = json!(version);
        }
    }
    document
}
