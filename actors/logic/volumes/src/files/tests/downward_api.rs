//! The downward API.

use logic_api::testing::{PodBuilder, string_map};

use super::*;

fn field(path: &str, field: &str) -> Value {
    json!({"path": path, "fieldRef": {"fieldPath": field}})
}

fn volume(items: &[Value]) -> Value {
    json!({"name": "v", "downwardAPI": {"defaultMode": 0o644, "items": items}})
}

fn labelled() -> Rig {
    let mut rig = rig(&[]);
    rig.pod.metadata.labels = Some(string_map(&[("key1", "value1"), ("key2", "value2")]));
    rig.pod.metadata.annotations = Some(string_map(&[("a1", "value1"), ("a2", "multi\nline")]));
    rig
}

/// Upstream's TestDownwardAPI and TestCollectDataWithDownwardAPI (projected).
#[test]
fn facts_of_the_pod_become_files() {
    let rig = labelled();
    let labels = "key1=\"value1\"\nkey2=\"value2\"";
    let annotations = "a1=\"value1\"\na2=\"multi\\nline\"";
    let cases = [
        (field("labels", "metadata.labels"), "labels", labels),
        (
            field("annotations", "metadata.annotations"),
            "annotations",
            annotations,
        ),
        (field("name", "metadata.name"), "name", "p"),
        (
            field("namespace", "metadata.namespace"),
            "namespace",
            "default",
        ),
        (field("uid", "metadata.uid"), "uid", "p-uid"),
        (field("one", "metadata.labels['key2']"), "one", "value2"),
        (field("none", "metadata.annotations['b']"), "none", ""),
        (
            field("these/are/my/labels", "metadata.labels"),
            "these/are/my/labels",
            labels,
        ),
        (
            field("this//labels", "metadata.labels"),
            "this/labels",
            labels,
        ),
        (json!({"path": "empty"}), "empty", ""),
    ];
    for (item, path, text) in cases {
        let made = rig.made(volume(std::slice::from_ref(&item)));
        assert_eq!(made, expected(&[(path, text, 0o644)]), "{item}");
        let projected =
            json!({"name": "v", "projected": {"sources": [{"downwardAPI": {"items": [item]}}]}});
        assert_eq!(rig.made(projected), expected(&[(path, text, 0o644)]));
    }
    let both = [
        field("l", "metadata.labels"),
        field("a/b", "metadata.annotations"),
    ];
    assert_eq!(
        rig.made(volume(&both)),
        expected(&[("l", labels, 0o644), ("a/b", annotations, 0o644)])
    );
}

/// Upstream's TestDownwardAPI: test_default_mode and test_item_mode.
#[test]
fn an_items_mode_goes_over_the_default() {
    let mut item = field("name", "metadata.name");
    item["mode"] = 0o400.into();
    assert_eq!(
        labelled().made(volume(&[item])),
        expected(&[("name", "p", 0o400)])
    );
}

/// Upstream's TestDownwardAPI: test_write_twice_with_update.
#[test]
fn a_changed_label_changes_the_file() {
    let mut rig = labelled();
    let volume = volume(&[field("labels", "metadata.labels")]);
    let before = rig.make(volume.clone()).unwrap();
    assert_eq!(rig.make(volume.clone()).unwrap(), before);
    let more = string_map(&[("key3", "value3")]);
    rig.pod.metadata.labels.get_or_insert_default().extend(more);
    let after = rig.make(volume).unwrap();
    assert_ne!(after, before);
    assert!(shown(&after.set)[0].1.ends_with("key3=\"value3\""));
}

#[test]
fn amounts_are_those_of_the_named_container_or_what_the_node_gives() {
    let mut rig = labelled();
    rig.pod = rig.pod.app_with("sized", |container| {
        let resources =
            json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1500m", "memory": "64Mi"}});
        container.resources = Some(serde_json::from_value(resources).unwrap());
    });
    rig.pod = rig.pod.app("free").init("first").spec_with(|spec| {
        let resources = json!({"limits": {"memory": "1Gi"}});
        spec.resources = Some(serde_json::from_value(resources).unwrap());
    });
    let cases = [
        ("sized", "limits.cpu", "1m", "1500"),
        ("sized", "limits.cpu", "", "2"),
        ("sized", "requests.cpu", "100m", "5"),
        ("sized", "limits.memory", "1Mi", "64"),
        ("free", "limits.memory", "1Gi", "15"),
        ("free", "limits.cpu", "", "12"),
        ("free", "requests.cpu", "", "0"),
        ("first", "limits.cpu", "", "12"),
    ];
    for (container, resource, divisor, text) in cases {
        let mut selector = json!({"containerName": container, "resource": resource});
        if !divisor.is_empty() {
            selector["divisor"] = divisor.into();
        }
        let item = json!({"path": "f", "resourceFieldRef": selector});
        assert_eq!(
            rig.made(volume(std::slice::from_ref(&item))),
            expected(&[("f", text, 0o644)]),
            "{item}"
        );
    }
}

#[test]
fn what_is_no_fact_is_refused_for_good() {
    let amount = |container: &str, resource: &str| json!({"path": "f", "resourceFieldRef": {"containerName": container, "resource": resource}});
    let cases = [
        (
            field("f", "status.podIP"),
            "unsupported fieldPath: status.podIP",
        ),
        (
            field("f", "spec.nodeName"),
            "unsupported fieldPath: spec.nodeName",
        ),
        (
            field("f", "metadata.name['a']"),
            "fieldPath \"metadata.name['a']\" does not support subscript",
        ),
        (amount("nobody", "limits.cpu"), "container nobody not found"),
        (
            amount("c", "limits.gpu"),
            "unsupported container resource : limits.gpu",
        ),
    ];
    let mut rig = labelled();
    rig.pod = rig.pod.app("c");
    for (item, text) in &cases {
        let refused = rig.refused(volume(std::slice::from_ref(item)));
        assert_eq!(refused, ((*text).to_owned(), RetryWhen::Never));
    }
    let (all, _) = rig.refused(volume(&[cases[0].0.clone(), cases[1].0.clone()]));
    assert_eq!(all, format!("[{}, {}]", cases[0].1, cases[1].1));
}
