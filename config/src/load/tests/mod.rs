//! Precedence, whole command lines, and every kind of bad file.

mod alone;
mod kubeadm;
mod mistakes;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use kernel::error_chain;
use serde_json::Value;
use tempfile::TempDir;

use super::layers::to_fields;
use super::*;
use crate::kubelet_configuration::{API_VERSION, KIND};

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// A directory with files in it, and a command line about them.
struct Rig {
    folder: TempDir,
    host: HostFacts,
}

fn rig() -> Rig {
    let host = HostFacts {
        hostname: "Host-1\n".to_owned(),
        cgroup: CgroupVersion::V2,
        program_folder: "/opt/oxlet".into(),
        standalone: StandaloneFacts::default(),
    };
    Rig {
        folder: tempfile::tempdir().unwrap(),
        host,
    }
}

impl Rig {
    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a KubeletConfiguration; the body is in block or in flow style.
    fn config(&self, name: &str, body: &str) -> String {
        match body.strip_prefix('{') {
            Some(body) => self.file(
                name,
                &format!("{{apiVersion: {API_VERSION}, kind: {KIND}, {body}"),
            ),
            None => self.file(name, &format!("{HEAD}{body}")),
        }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.at(name);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn load(&self, line: &str) -> Result<Invocation, ConfigError> {
        load(line.split_whitespace().map(OsString::from), &self.host)
    }

    fn run(&self, line: &str) -> NodeConfig {
        match self.load(line) {
            Ok(Invocation::Run(config)) => *config,
            Ok(Invocation::Print(text)) => panic!("{line}: printed {text}"),
            Err(error) => panic!("{line}: {}", error_chain(&error)),
        }
    }

    fn refused(&self, line: &str) -> String {
        match self.load(line) {
            Ok(outcome) => panic!("{line}: {outcome:?}"),
            Err(error) => error_chain(&error),
        }
    }
}

#[test]
fn the_node_tests_command_line_starts_the_agent() {
    let rig = rig();
    // test/e2e_node/services/kubelet.go writes every field, those at their default as well.
    let mut full = defaults::legacy(&FeatureGates::default());
    full.static_pod_path = "/tmp/static-pods123".to_owned();
    full.cgroup_root = "/".to_owned();
    full.resolver_config = String::new();
    full.serialize_image_pulls = false;
    full.pod_cidr = "10.100.0.0/24".to_owned();
    full.feature_gates.insert("EventedPLEG".to_owned(), true);
    let mut fields = to_fields(&full);
    fields.insert("apiVersion".to_owned(), API_VERSION.into());
    fields.insert("kind".to_owned(), KIND.into());
    let config = rig.file("kubelet-config", &Value::Object(fields).to_string());
    let kubeconfig = rig.file("kubeconfig", "apiVersion: v1\nkind: Config\n");
    fs::create_dir(rig.at("kubelet.conf.d")).unwrap();
    let drop_ins = rig.at("kubelet.conf.d");

    let node = rig.run(&format!(
        "--kubeconfig {kubeconfig} --root-dir /var/lib/kubelet --v 4 --feature-gates EventedPLEG=true \
         --config-dir {drop_ins} --hostname-override n1 \
         --container-runtime-endpoint unix:///run/containerd/containerd.sock --config {config} \
         --cgroup-driver=systemd --cgroups-per-qos=true --cgroup-root=/ \
         --runtime-cgroups=/system.slice/containerd.service --kernel-memcg-notification=true --fail-swap-on=false"
    ));
    assert_eq!(node.kubelet.resolver_config, "");
    assert_eq!(node.kubelet.read_only_port, 10255);
    assert_eq!(node.kubelet.logging.verbosity, 4);
    assert!(!node.kubelet.fail_swap_on && !node.kubelet.serialize_image_pulls);
    assert!(node.gates.enabled("EventedPLEG"));
}

#[test]
fn flags_beat_drop_ins_beat_the_file_beats_defaults() {
    let rig = rig();
    let file = rig.config(
        "kubelet.yaml",
        "{maxPods: 10, podsPerCore: 10, eventBurst: 10}",
    );
    rig.config("d/10.conf", "{maxPods: 20, podsPerCore: 20}");
    let drop_ins = rig.at("d");
    let numbers = |line: String| {
        let kubelet = rig.run(&line).kubelet;
        (
            kubelet.max_pods,
            kubelet.pods_per_core,
            kubelet.event_burst,
            kubelet.kube_api_burst,
        )
    };
    assert_eq!(numbers(String::new()), (110, 0, 100, 100));
    assert_eq!(numbers(format!("--config={file}")), (10, 10, 10, 100));
    assert_eq!(
        numbers(format!("--config={file} --config-dir={drop_ins}")),
        (20, 20, 10, 100)
    );
    assert_eq!(
        numbers(format!(
            "--config={file} --config-dir={drop_ins} --max-pods=30"
        )),
        (30, 20, 10, 100)
    );
    assert_eq!(
        numbers(format!(
            "--config-dir={drop_ins} --max-pods=30 --event-burst=7"
        )),
        (30, 20, 7, 100)
    );
}

#[test]
fn feature_gates_of_all_layers_add_up_and_flags_win() {
    let rig = rig();
    let file = rig.config(
        "kubelet.yaml",
        "featureGates: {EventedPLEG: true, MemoryQoS: true}",
    );
    rig.config("d/1.conf", "featureGates: {EnvFiles: false}");
    let config = rig.run(&format!(
        "--config={file} --config-dir={} --feature-gates=MemoryQoS=false,HostnameOverride=false,SELinuxMount=true",
        rig.at("d")
    ));
    let unheeded = "featureGates.EnvFiles, featureGates.HostnameOverride";
    let warning = format!("valid, but not honoured yet by this version: {unheeded}");
    assert!(config.warnings.contains(&warning), "{:?}", config.warnings);
    let gates = config.gates;
    for (name, on) in [
        ("EventedPLEG", true),
        ("MemoryQoS", false),
        ("EnvFiles", false),
        ("SELinuxMount", true),
    ] {
        assert_eq!(gates.enabled(name), on, "{name}");
    }
}

#[test]
fn a_flag_replaces_a_files_list_and_map() {
    let rig = rig();
    let file = rig.config(
        "kubelet.yaml",
        "{clusterDNS: [10.0.0.1], evictionHard: {memory.available: 1Gi}}",
    );
    let kubelet = rig
        .run(&format!(
            "--config={file} --cluster-dns=10.0.0.2 --eviction-hard=pid.available<10"
        ))
        .kubelet;
    assert_eq!(kubelet.cluster_dns, ["10.0.0.2"]);
    assert_eq!(
        kubelet
            .eviction_hard
            .unwrap()
            .into_keys()
            .collect::<Vec<_>>(),
        ["pid.available"]
    );
}

#[test]
fn drop_ins_merge_in_lexical_order_below_folders_too() {
    let rig = rig();
    rig.config(
        "d/20.conf",
        "{maxPods: 20, staticPodURLHeader: {b: [x]}, enforceNodeAllocatable: []}",
    );
    rig.config(
        "d/10.conf",
        "{maxPods: 10, podsPerCore: 5, clusterDNS: [a, b], staticPodURLHeader: {a: [z]}}",
    );
    rig.config(
        "d/15/99.conf",
        "{maxPods: 15, eventBurst: 15, podsPerCore: null}",
    );
    rig.file("d/30.yaml", "not read: [");
    rig.file("d/40.conf~", "nor this");
    let kubelet = rig.run(&format!("--config-dir={}", rig.at("d"))).kubelet;
    assert_eq!(
        (kubelet.max_pods, kubelet.event_burst, kubelet.pods_per_core),
        (20, 15, 0)
    );
    assert_eq!(kubelet.cluster_dns, ["a", "b"]);
    assert_eq!(
        kubelet
            .static_pod_url_header
            .0
            .into_keys()
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert!(kubelet.enforce_node_allocatable.is_empty());
}

#[test]
fn defaults_are_filled_in_before_drop_ins_as_upstream_does() {
    let rig = rig();
    let file = rig.config("kubelet.yaml", "");
    rig.config("d/1.conf", "{maxParallelImagePulls: 5}");
    let line = format!("--config={file} --config-dir={}", rig.at("d"));
    assert!(rig.refused(&line).contains("unless serializeImagePulls"));
    rig.config(
        "d/1.conf",
        "{maxParallelImagePulls: 5, serializeImagePulls: null}",
    );
    assert!(!rig.run(&line).kubelet.serialize_image_pulls);
}

#[test]
fn eviction_thresholds_default_only_with_a_file_and_whole() {
    let rig = rig();
    let hard = |body: Option<&str>| {
        let line = body
            .map(|body| format!("--config={}", rig.config("k.yaml", body)))
            .unwrap_or_default();
        rig.run(&line).kubelet.eviction_hard.map(|hard| hard.len())
    };
    assert_eq!(hard(None), None);
    assert_eq!(hard(Some("")), Some(5));
    assert_eq!(hard(Some("evictionHard: {}")), Some(0));
    assert_eq!(hard(Some("evictionHard: {memory.available: 1Gi}")), Some(1));
    assert_eq!(
        hard(Some(
            "{evictionHard: {memory.available: 1Gi}, mergeDefaultEvictionSettings: true}"
        )),
        Some(5)
    );
}

#[test]
fn relative_paths_are_relative_to_the_file() {
    let rig = rig();
    let file = rig.config(
        "sub/kubelet.yaml",
        "{staticPodPath: ../pods, podLogsDir: ./logs, resolvConf: '', tlsCertFile: /abs}",
    );
    let kubelet = rig.run(&format!("--config={file}")).kubelet;
    assert_eq!(kubelet.static_pod_path, rig.at("pods"));
    assert_eq!(kubelet.pod_logs_dir, rig.at("sub/logs"));
    assert_eq!(
        (
            kubelet.resolver_config.as_str(),
            kubelet.tls_cert_file.as_str()
        ),
        ("", "/abs")
    );
}

/// Upstream's TestKubeletConfigurationPathFields names the fields, its TestResolveRelativePaths the cases.
#[test]
fn every_field_that_is_a_path_is_relative_to_the_file() {
    const FIELDS: [&str; 7] = [
        "staticPodPath",
        "authentication.x509.clientCAFile",
        "tlsCertFile",
        "tlsPrivateKeyFile",
        "resolvConf",
        "volumePluginDir",
        "podLogsDir",
    ];
    let rig = rig();
    let read = |given: &str| -> Vec<String> {
        let mut fields = serde_json::Map::new();
        for field in FIELDS {
            crate::document::put(&mut fields, field, given.into());
        }
        let text = Value::Object(fields).to_string();
        let file = rig.config("sub/kubelet.yaml", &text);
        let kubelet = rig.run(&format!("--config={file}")).kubelet;
        let fields = Value::Object(to_fields(&kubelet));
        let at = |field: &str| {
            fields
                .pointer(&format!("/{}", field.replace('.', "/")))
                .cloned()
        };
        let texts = FIELDS.map(|field| at(field).unwrap().as_str().unwrap().to_owned());
        texts.into()
    };
    assert_eq!(
        read("relative/path"),
        [(); 7].map(|()| rig.at("sub/relative/path"))
    );
    assert_eq!(
        read("/absolute/path"),
        [(); 7].map(|()| "/absolute/path".to_owned())
    );
}

/// Upstream's TestLoad: "default from yaml", "default from json".
#[test]
fn a_file_that_sets_nothing_leaves_the_defaults_in_either_format() {
    let rig = rig();
    let yaml = rig.file("a.yaml", HEAD);
    let json = format!("{{\"kind\":\"{KIND}\",\"apiVersion\":\"{API_VERSION}\"}}");
    let json = rig.file("a.json", &json);
    let mut defaults =
        defaults::complete(serde_json::Map::new(), &FeatureGates::default()).unwrap();
    let found = rig.run(&format!("--config={yaml}")).kubelet;
    defaults.eviction_hard.clone_from(&found.eviction_hard);
    assert_eq!(found, defaults);
    assert_eq!(rig.run(&format!("--config={json}")).kubelet, defaults);
}

#[test]
fn the_plugin_file_beats_the_endpoint() {
    let rig = rig();
    let file = rig.file("plugins.yaml", "apiVersion: oxlet.dev/v1alpha1\nkind: PluginConfiguration\nruntime: f\nplugins: [{name: f, kind: runtime, command: runtime-fake}]\n");
    assert_eq!(rig.run(&format!("--plugins={file}")).plugins.runtime, "f");
    let node = rig.run(&format!(
        "--plugins={file} --container-runtime-endpoint=unix:///a.sock"
    ));
    assert!(
        node.warnings
            .iter()
            .any(|warning| warning.contains("containerRuntimeEndpoint is not used"))
    );
    assert!(
        rig.refused("--plugins=/nowhere.yaml")
            .contains("/nowhere.yaml")
    );
}

#[test]
fn help_and_version_are_answers() {
    let rig = rig();
    let printed = |line: &str| match rig.load(line) {
        Ok(Invocation::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    };
    assert!(printed("--help").contains("--kubeconfig"));
    assert!(printed("--version").starts_with("Kubernetes v1.36."));
    assert!(printed("--version=raw").contains("Minor:\"36\""));
    assert!(rig.run("--version=false").version.starts_with("v1.36."));
    assert_eq!(rig.run("--version=v1.36.7").version, "v1.36.7");
}

#[test]
fn the_shipped_configuration_starts_without_a_warning() {
    let mut rig = rig();
    rig.host.cgroup = CgroupVersion::V1;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for (file, cgroup_v1) in [
        ("kubelet.yaml", ""),
        ("service/config.yaml", "--fail-cgroupv1=false"),
    ] {
        let node = rig.run(&format!(
            "--config {} {cgroup_v1} --plugins {}",
            path(file),
            path("plugins.yaml")
        ));
        assert_eq!(node.warnings, Vec::<String>::new(), "{file}");
    }
}

#[test]
fn a_setting_without_effect_is_a_warning_at_the_start() {
    let rig = rig();
    let file = rig.config(
        "kubelet.yaml",
        "{volumePluginDir: /flex, contentType: application/json}",
    );
    let node = rig.run(&format!("--config={file} --housekeeping-interval=1s"));
    let named: Vec<_> = node
        .warnings
        .iter()
        .filter_map(|warning| warning.split_once(" has no effect: "))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        named,
        ["contentType", "volumePluginDir", "--housekeeping-interval"]
    );
}

#[test]
fn the_host_can_be_looked_at() {
    let host = HostFacts::detect();
    assert!(!host.hostname.is_empty() && host.program_folder.is_absolute());
}

proptest::proptest! {
    #[test]
    fn no_document_panics(body in "[a-zA-Z{}\\[\\]:, \n\"'0-9-]{0,120}", field in "[a-zA-Z]{0,10}") {
        let rig = rig();
        let file = rig.config("k.yaml", &body);
        let other = rig.config("o.yaml", &format!("{field}: {body}\nmaxPods: {body}\n"));
        for path in [file, other] {
            if let Err(error) = rig.load(&format!("--config={path}")) {
                proptest::prop_assert!(error_chain(&error).contains(&path) || matches!(error, ConfigError::Invalid(_) | ConfigError::Gates(_)));
            }
        }
    }
}
