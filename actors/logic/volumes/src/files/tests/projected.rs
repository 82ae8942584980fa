//! Several sources in one directory.

use logic_api::testing::PodBuilder;

use super::*;

fn two() -> Vec<Value> {
    vec![
        config_map("m", json!({"data": {"one": "map", "both": "map"}})),
        object(
            "v1",
            "Secret",
            "s",
            json!({"stringData": {"two": "secret", "both": "secret"}}),
        ),
    ]
}

fn volume(mode: i32, sources: Value) -> Value {
    json!({"name": "v", "projected": {"defaultMode": mode, "sources": sources}})
}

/// Upstream's TestCollectDataWithSecret and TestCollectDataWithConfigMap.
#[test]
fn sources_lie_beside_each_other_and_the_later_goes_over_the_earlier() {
    let rig = rig(&two());
    let map = json!({"configMap": {"name": "m"}});
    let secret = json!({"secret": {"name": "s"}});
    let both = volume(0o644, json!([map, secret]));
    let files = [
        ("one", "map", 0o644),
        ("two", "secret", 0o644),
        ("both", "secret", 0o644),
    ];
    assert_eq!(rig.made(both), expected(&files));
    let other = rig.made(volume(0o400, json!([secret, map])));
    let files = [
        ("one", "map", 0o400),
        ("two", "secret", 0o400),
        ("both", "map", 0o400),
    ];
    assert_eq!(other, expected(&files));
    let items = json!([{"configMap": {"name": "m", "items": [{"key": "one", "path": "a/b", "mode": 0o440}]}}]);
    assert_eq!(
        rig.made(volume(0o644, items)),
        expected(&[("a/b", "map", 0o440)])
    );
}

/// Upstream's TestPluginOptional and TestPluginOptionalKeys of projected.
#[test]
fn optional_sources_and_keys_may_be_missing() {
    let rig = rig(&two());
    let sources = json!([
        {"secret": {"name": "none", "optional": true}},
        {"configMap": {"name": "none", "optional": true}},
        {"secret": {"name": "s", "optional": true, "items": [{"key": "two", "path": "two"}, {"key": "missing", "path": "m"}]}},
    ]);
    let made = rig.make(volume(0o644, sources)).unwrap();
    assert_eq!(shown(&made.set), expected(&[("two", "secret", 0o644)]));
    let names: Vec<_> = made
        .uses
        .iter()
        .map(|used| (used.kind, used.name.as_str()))
        .collect();
    assert_eq!(
        names,
        [("ConfigMap", "none"), ("Secret", "none"), ("Secret", "s")]
    );
}

/// Upstream's TestInvalidPathProjected.
#[test]
fn all_that_is_wrong_is_told_at_once_and_each_once() {
    let rig = rig(&two());
    let missing =
        json!({"secret": {"name": "s", "items": [{"key": "missing", "path": "missing"}]}});
    let key = "references non-existent secret key: missing";
    let one = rig.refused(volume(0o644, json!([missing])));
    assert_eq!(one, (key.to_owned(), RetryWhen::Changed));
    let sources =
        json!([missing, {"configMap": {"name": "no"}}, missing, {"configMap": {"name": "m"}}]);
    let (message, _) = rig.refused(volume(0o644, sources));
    assert_eq!(message, format!("[{key}, configmap \"no\" not found]"));
}

#[test]
fn a_source_that_can_never_be_given_outweighs_one_that_may_come() {
    let sources = json!([{"configMap": {"name": "no"}}, {"downwardAPI": {"items": [{"path": "f", "fieldRef": {"fieldPath": "x"}}]}}]);
    let (_, until) = rig(&[]).refused(volume(0o644, sources));
    assert_eq!(until, RetryWhen::Never);
}

/// Upstream's TestFsUserFrom.
#[test]
fn a_file_is_owned_by_the_one_user_that_all_containers_run_as() {
    let bundle = json!([{"clusterTrustBundle": {"name": "b", "path": "f", "optional": true}}]);
    let owner = |of_pod: Option<i64>, init: Option<i64>, apps: &[Option<i64>]| {
        let security = |user: Option<i64>| {
            user.map(|user| serde_json::from_value(json!({"runAsUser": user})).unwrap())
        };
        let mut rig = rig(&[]);
        rig.pod = rig.pod.init("i").spec_with(|spec| {
            let of_pod = of_pod.map(|user| json!({"runAsUser": user}));
            spec.security_context = of_pod.map(|given| serde_json::from_value(given).unwrap());
            for first in spec.init_containers.iter_mut().flatten() {
                first.security_context = security(init);
            }
        });
        for (index, user) in apps.iter().enumerate() {
            let name = format!("c{index}");
            rig.pod = rig
                .pod
                .app_with(&name, |c| c.security_context = security(*user));
        }
        rig.make(volume(0o644, bundle.clone())).unwrap().set.files["f"].clone()
    };
    let cases = [
        (None, None, vec![None], None),
        (Some(1000), None, vec![None, None], Some(1000)),
        (None, Some(1000), vec![Some(1000), Some(1000)], Some(1000)),
        (None, Some(999), vec![Some(1000)], None),
        (None, Some(1000), vec![Some(1000), None], None),
        (Some(999), Some(1000), vec![Some(1000)], Some(1000)),
        (Some(999), Some(1000), vec![Some(1000), None], None),
        (None, Some(0), vec![Some(0)], Some(0)),
        (Some(-1), None, vec![None], None),
    ];
    for (of_pod, init, apps, expected) in cases {
        let file = owner(of_pod, init, &apps);
        assert_eq!(file.owner, expected, "{of_pod:?} {init:?} {apps:?}");
        let private = expected.is_some();
        assert_eq!(file.mode, if private { 0o600 } else { 0o644 });
    }
}
