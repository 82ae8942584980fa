//! The class of service that a pod's requests and limits earn.

use std::collections::BTreeMap;

use serde_json::Value;

pub(super) fn class(spec: &Value) -> &'static str {
    if spec["resources"].is_object()
        && (given(&spec["resources"], "requests").next().is_some()
            || given(&spec["resources"], "limits").next().is_some())
    {
        return of(std::iter::once(&spec["resources"]));
    }
    let lists = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| spec[list].as_array().into_iter().flatten());
    of(lists.map(|container| &container["resources"]))
}

fn of<'a>(all: impl Iterator<Item = &'a Value>) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for resources in all {
        let requests: BTreeMap<&str, &Value> = given(resources, "requests").collect();
        let limits: BTreeMap<&str, &Value> = given(resources, "limits").collect();
        any |= !requests.is_empty() || !limits.is_empty();
        guaranteed &= limits.len() == 2
            && requests
                .iter()
                .all(|(name, request)| limits.get(name) == Some(request));
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn given<'a>(resources: &'a Value, part: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let fields = resources
        .get(part)
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    fields
        .filter(|(name, value)| {
            matches!(name.as_str(), "cpu" | "memory") && **value != "0" && **value != 0
        })
        .map(|(name, value)| (name.as_str(), value))
}
