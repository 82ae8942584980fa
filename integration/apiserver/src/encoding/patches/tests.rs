//! Patches, by tables: what stands, what is patched, what comes of it.

use serde_json::{Value, json};

use super::{PatchType, apply};

fn table(kind: PatchType, rows: &[(&str, Value, Value, Value)]) {
    for (law, object, patch, wanted) in rows {
        let found = apply(kind, object, &serde_json::to_vec(patch).unwrap())
            .unwrap_or_else(|failure| panic!("{law}: {failure}"));
        assert_eq!(&found, wanted, "{law}");
    }
}

/// Rows of upstream's TestCustomStrategicMergePatch, TestStrategicMergePatch and TestUpdatePodStatus, in our types.
#[test]
fn strategic_patches_merge_lists_by_their_keys() {
    let rows = [
        (
            "a condition is changed in place",
            json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True", "reason": "x"}]}}),
            json!({"status": {"conditions": [{"type": "B", "status": "False", "reason": null}]}}),
            json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}]}}),
        ),
        (
            "what is new stands in front where nobody says otherwise",
            json!({"status": {"conditions": [{"type": "A"}, {"type": "B"}]}}),
            json!({"status": {"conditions": [{"type": "C"}]}}),
            json!({"status": {"conditions": [{"type": "C"}, {"type": "A"}, {"type": "B"}]}}),
        ),
        (
            "the order of the elements is the patch's where it says one",
            json!({"status": {"conditions": [{"type": "A"}, {"type": "B"}]}}),
            json!({"status": {"$setElementOrder/conditions": [{"type": "A"}, {"type": "C"}, {"type": "B"}], "conditions": [{"type": "C", "status": "True"}]}}),
            json!({"status": {"conditions": [{"type": "A"}, {"type": "C", "status": "True"}, {"type": "B"}]}}),
        ),
        (
            "what the server alone knows keeps its place before and behind",
            json!({"status": {"conditions": [{"type": "S"}, {"type": "A"}, {"type": "B"}, {"type": "T"}]}}),
            json!({"status": {"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}], "conditions": [{"type": "A", "status": "True"}]}}),
            json!({"status": {"conditions": [{"type": "S"}, {"type": "B"}, {"type": "A", "status": "True"}, {"type": "T"}]}}),
        ),
        (
            "an element is deleted by its key",
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
            json!({"spec": {"containers": [{"name": "b"}]}}),
        ),
        (
            "a list is replaced when told so",
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"name": "c"}, {"$patch": "replace"}]}}),
            json!({"spec": {"containers": [{"name": "c"}]}}),
        ),
        (
            "an object is replaced when told so",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"c": "3", "$patch": "replace"}}}),
            json!({"metadata": {"labels": {"c": "3"}}}),
        ),
    ];
    table(PatchType::Strategic, &rows);
}

/// More rows of the same.
#[test]
fn strategic_patches_know_how_each_list_is_marked() {
    let rows = [
        (
            "lists without a key are replaced as a whole",
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
            json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
            json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
        ),
        (
            "only the named keys of a volume are kept",
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}, "other": 1}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}),
        ),
        (
            "plain values are a set, deleted by a directive",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b", "c"]}}),
            json!({"metadata": {"finalizers": ["b", "c"]}}),
        ),
        (
            "environment and ports of containers, ports of a container by their number",
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}], "ports": [{"containerPort": 80, "name": "w"}]}]}}),
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}], "ports": [{"containerPort": 80, "name": "z"}]}]}}),
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}], "ports": [{"containerPort": 80, "name": "z"}]}]}}),
        ),
        (
            "ports of a service by their port",
            json!({"kind": "Service", "spec": {"ports": [{"port": 80, "name": "w"}]}}),
            json!({"spec": {"ports": [{"port": 80, "name": "z"}]}}),
            json!({"kind": "Service", "spec": {"ports": [{"port": 80, "name": "z"}]}}),
        ),
        (
            "addresses by type, owners by uid",
            json!({"status": {"addresses": [{"type": "Hostname", "address": "a"}]}, "metadata": {"ownerReferences": [{"uid": "1", "name": "x"}]}}),
            json!({"status": {"addresses": [{"type": "Hostname", "address": "b"}]}, "metadata": {"ownerReferences": [{"uid": "1", "$patch": "delete"}]}}),
            json!({"status": {"addresses": [{"type": "Hostname", "address": "b"}]}, "metadata": {"ownerReferences": []}}),
        ),
        (
            "what is new comes without nulls and directives",
            json!({}),
            json!({"status": {"a": {"b": null, "c": 1}, "list": [{"$patch": "delete", "name": "x"}, {"name": "y"}]}}),
            json!({"status": {"a": {"c": 1}, "list": [{"name": "y"}]}}),
        ),
    ];
    table(PatchType::Strategic, &rows);
}

#[test]
fn strategic_patches_without_their_key_are_refused() {
    let object = json!({"status": {"conditions": [{"type": "A"}]}});
    let patch =
        serde_json::to_vec(&json!({"status": {"conditions": [{"status": "True"}]}})).unwrap();
    assert_eq!(
        apply(PatchType::Strategic, &object, &patch)
            .unwrap_err()
            .code,
        500
    );
    assert_eq!(
        apply(PatchType::Strategic, &object, b"[1]")
            .unwrap_err()
            .code,
        400
    );
    assert_eq!(
        apply(PatchType::Strategic, &object, b"{").unwrap_err().code,
        400
    );
}

/// The examples of RFC 7386.
#[test]
fn merge_patches_replace_lists_and_null_removes() {
    let rows = [
        (
            "change",
            json!({"a": "b"}),
            json!({"a": "c"}),
            json!({"a": "c"}),
        ),
        (
            "add",
            json!({"a": "b"}),
            json!({"b": "c"}),
            json!({"a": "b", "b": "c"}),
        ),
        (
            "remove",
            json!({"a": "b", "b": "c"}),
            json!({"a": null}),
            json!({"b": "c"}),
        ),
        (
            "lists as a whole",
            json!({"a": [1, 2]}),
            json!({"a": [3]}),
            json!({"a": [3]}),
        ),
        (
            "deep",
            json!({"a": {"b": "c"}}),
            json!({"a": {"b": "d", "c": null}}),
            json!({"a": {"b": "d"}}),
        ),
        (
            "nulls of what is new are nothing",
            json!({}),
            json!({"a": {"bb": {"ccc": null}}}),
            json!({"a": {"bb": {}}}),
        ),
    ];
    table(PatchType::Merge, &rows);
}

/// The examples of RFC 6902.
#[test]
fn json_patches_do_their_steps_in_order() {
    let rows = [
        (
            "add a member",
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux"}]),
            json!({"foo": "bar", "baz": "qux"}),
        ),
        (
            "add an element",
            json!({"foo": ["bar", "baz"]}),
            json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
            json!({"foo": ["bar", "qux", "baz"]}),
        ),
        (
            "add at the end",
            json!({"foo": [1]}),
            json!([{"op": "add", "path": "/foo/-", "value": 2}]),
            json!({"foo": [1, 2]}),
        ),
        (
            "remove",
            json!({"foo": ["bar", "qux"], "x": 1}),
            json!([{"op": "remove", "path": "/foo/1"}, {"op": "remove", "path": "/x"}]),
            json!({"foo": ["bar"]}),
        ),
        (
            "escapes",
            json!({"a/b": 1, "c~d": 2}),
            json!([{"op": "replace", "path": "/a~1b", "value": 3}, {"op": "remove", "path": "/c~0d"}]),
            json!({"a/b": 3}),
        ),
        (
            "move and copy",
            json!({"a": 1}),
            json!([{"op": "copy", "from": "/a", "path": "/b"}, {"op": "move", "from": "/a", "path": "/c"}]),
            json!({"b": 1, "c": 1}),
        ),
        (
            "test",
            json!({"a": 1}),
            json!([{"op": "test", "path": "/a", "value": 1}]),
            json!({"a": 1}),
        ),
    ];
    table(PatchType::Json, &rows);
    for patch in [
        json!([{"op": "remove", "path": "/none"}]),
        json!([{"op": "test", "path": "/a", "value": 2}]),
        json!([{"op": "add", "path": "/list/7", "value": 2}]),
        json!([{"op": "replace", "path": "/none/x", "value": 2}]),
    ] {
        let failure = apply(
            PatchType::Json,
            &json!({"a": 1, "list": []}),
            &serde_json::to_vec(&patch).unwrap(),
        )
        .unwrap_err();
        assert_eq!(failure.code, 422, "{patch}");
    }
}

#[test]
fn unknown_kinds_of_patches_are_refused() {
    assert_eq!(PatchType::parse("application/json").unwrap_err().code, 415);
    assert_eq!(
        PatchType::parse("application/strategic-merge-patch+json; charset=utf-8").unwrap(),
        PatchType::Strategic
    );
}
