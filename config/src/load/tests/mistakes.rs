//! What is wrong is named with its file and field.

use super::*;

#[test]
fn unknown_and_repeated_fields_are_refused_with_file_and_field_by_who_wants_strictness() {
    let rig = rig();
    let unknown = "{maxPod: 5, logging: {colour: red}, registerWithTaints: [{key: a, effekt: b}]}";
    let file = rig.config("unknown.yaml", unknown);
    let text = rig.refused(&format!("--strict-decoding --config={file}"));
    for part in [
        &*file,
        "logging.colour, maxPod, registerWithTaints[0].effekt",
        "expected",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let file = rig.config("twice.yaml", "{maxPods: 1, maxPods: 2}");
    let text = rig.refused(&format!("--strict-decoding --config={file}"));
    for part in [&*file, "stands twice", "maxPods"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Upstream's lenient decoder: of a key that stands twice the last value counts.
#[test]
fn unknown_and_repeated_fields_are_passed_over_and_named_with_their_file() {
    let rig = rig();
    let file = rig.config("typo.yaml", "{maxPod: 5, maxPods: 1, maxPods: 2}");
    let drop_ins = rig.at("drop-ins");
    fs::create_dir(&drop_ins).unwrap();
    let drop_in = rig.config("drop-ins/50.conf", "{podPidsLimits: 7, podPidsLimit: 9}");
    let node = rig.run(&format!("--config={file} --config-dir={drop_ins}"));
    assert_eq!((node.kubelet.max_pods, node.kubelet.pod_pids_limit), (2, 9));
    let [unknown, twice, dropped] = node.unknown_fields.as_slice() else {
        panic!("{:#?}", node.unknown_fields);
    };
    assert!(
        twice.starts_with(&file) && twice.contains("maxPods"),
        "{twice}"
    );
    assert!(
        unknown.starts_with(&file) && unknown.contains("maxPod:"),
        "{unknown}"
    );
    assert!(
        dropped.starts_with(&drop_in) && dropped.contains("podPidsLimits"),
        "{dropped}"
    );
}

/// Each bad file: its name, its text where the test writes it, and what the error says; upstream's TestLoad among them.
const BAD_FILES: &[(&str, Option<&str>, &str)] = &[
    ("missing", None, "it does not exist"),
    ("folder", None, "it is a directory; expected a regular file"),
    ("dangling", None, "it is a link to nothing"),
    ("fifo", None, "it is a FIFO; expected a regular file"),
    ("binary", None, "it is not UTF-8 text"),
    ("empty", Some(""), "it is empty"),
    (
        "list",
        Some("[]"),
        "it holds a list; expected a mapping of fields",
    ),
    ("broken", Some("a: ["), "it is not YAML or JSON"),
    ("star", Some("*"), "it is not YAML or JSON"),
    ("json", Some("{*"), "it is not YAML or JSON"),
    (
        "missing-kind",
        Some("{\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\"}"),
        "field kind: expected \"KubeletConfiguration\", found nothing",
    ),
    (
        "missing-version",
        Some("{\"kind\":\"KubeletConfiguration\"}"),
        "field apiVersion: expected \"kubelet.config.k8s.io/v1beta1\", found nothing",
    ),
    (
        "other-version",
        Some("{\"kind\":\"KubeletConfiguration\",\"apiVersion\":\"bogusversion\"}"),
        "field apiVersion: expected \"kubelet.config.k8s.io/v1beta1\", found \"bogusversion\"",
    ),
    (
        "no-kind",
        Some("maxPods: 1"),
        "field apiVersion: expected \"kubelet.config.k8s.io/v1beta1\", found nothing",
    ),
    (
        "pod",
        Some("apiVersion: v1\nkind: Pod\n"),
        "field apiVersion: expected \"kubelet.config.k8s.io/v1beta1\", found \"v1\"",
    ),
    (
        "kind",
        Some("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Kubelet\n"),
        "field kind: expected \"KubeletConfiguration\"",
    ),
    (
        "type",
        Some("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: a\n"),
        "field maxPods: invalid type: string \"a\", expected i32",
    ),
];

#[test]
fn a_bad_file_is_named_with_what_is_wrong() {
    let rig = rig();
    fs::create_dir(rig.at("folder")).unwrap();
    symlink(rig.at("nowhere"), rig.at("dangling")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(rig.at("fifo"))
            .status()
            .unwrap()
            .success()
    );
    fs::write(rig.at("binary"), [0xff]).unwrap();
    for (name, text, why) in BAD_FILES {
        let path = text.map_or_else(|| rig.at(name), |text| rig.file(name, text));
        let error = rig.refused(&format!("--config={path}"));
        assert!(
            error.contains(&path) && error.contains(why),
            "{name}: {error}"
        );
        // The same as a drop-in.
        if text.is_some() && *name != "empty" {
            fs::create_dir_all(rig.at("d")).unwrap();
            fs::copy(&path, rig.at("d/1.conf")).unwrap();
            let error = rig.refused(&format!("--config-dir={}", rig.at("d")));
            assert!(
                error.contains("d/1.conf") && error.contains(why),
                "{name}: {error}"
            );
        }
    }
    assert!(
        rig.refused(&format!("--config-dir={}", rig.at("nothing")))
            .contains("cannot walk the drop-ins")
    );
}

#[test]
fn a_drop_ins_mistakes_are_its_own() {
    let rig = rig();
    rig.config("d/10.conf", "maxPods: 5");
    rig.config("d/20.conf", "maxPods: many");
    rig.config("d/30.conf", "maxPods: 5");
    assert!(
        rig.refused(&format!("--config-dir={}", rig.at("d")))
            .contains("d/20.conf")
    );
    rig.config("d/20.conf", "{maxPods: 5, maxPods: 6}");
    assert!(
        rig.refused(&format!("--config-dir={}", rig.at("d")))
            .contains("duplicate")
    );
}

#[test]
fn unknown_gates_are_refused_wherever_they_stand() {
    let rig = rig();
    let file = rig.config("k.yaml", "featureGates: {Nonsense: true}");
    rig.config("d/1.conf", "featureGates: {Nonsense: true}");
    for line in [
        "--feature-gates=Nonsense=true".to_owned(),
        format!("--config={file}"),
        format!("--config-dir={}", rig.at("d")),
    ] {
        assert!(
            rig.refused(&line)
                .contains("unrecognized feature gate: Nonsense"),
            "{line}"
        );
    }
}

#[test]
fn validation_sees_what_flags_say() {
    let rig = rig();
    assert!(
        rig.refused("--max-pods=-1")
            .contains("maxPods (--max-pods) is -1")
    );
    assert!(
        rig.refused("--register-node=false --sync-frequency=0s")
            .contains("syncFrequency")
    );
    assert!(
        rig.refused("--node-labels=kubernetes.io/x=y")
            .contains("unknown 'kubernetes.io' or 'k8s.io' labels")
    );
}

#[test]
fn a_node_needs_a_name_and_sound_addresses() {
    let mut rig = rig();
    assert_eq!(rig.run("").node_name, "host-1");
    rig.host.hostname = String::new();
    assert!(rig.refused("").contains("the node has no name"));
    rig.host.hostname = "a".to_owned();
    assert_eq!(rig.run("--node-ip=10.0.0.1,fd00::1").node_ips.len(), 2);
    assert!(
        rig.run("--node-ip=10.0.0.1,nonsense")
            .warnings
            .iter()
            .any(|warning| warning.contains("nonsense"))
    );
    for line in [
        "--node-ip=10.0.0.1,10.0.0.2",
        "--node-ip=::,10.0.0.1",
        "--node-ip=10.0.0.1,fd00::1,fd00::2",
    ] {
        assert!(rig.refused(line).contains("bad --node-ip"), "{line}");
    }
}
