//! The fuzz targets: each parses bytes as the agent would, and uses the result.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use config::{CgroupVersion, HostFacts, StandaloneFacts};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kernel::checkpoint::{self, CheckpointFile, Schema};
use logic_api::backoff::{BackoffPolicy, BackoffTable};
use logic_api::linux::UserNamespace;
use logic_api::manifest::{ManifestSource, UnknownFields, parse, static_pod};
use logic_api::objects::StaticObjects;
use logic_api::pod::PodView;
use logic_api::text::env_file::EnvFiles;
use logic_api::types::{ContainerId, PodUid, RuntimePod};
use logic_placement::ContainerPlacement;
use logic_pods::container::{ContainerInput, PreparedSubpaths, container_config};
use logic_pods::network::dns::ResolverConfig;
use logic_pods::pod_actions::{PodActionPolicy, PodObservation, compute_pod_actions};
use logic_pods::resize::ResizeState;
use logic_pods::runtime::runtime_class::HandlerFeatures;
use logic_pods::sandbox::{SandboxInput, namespaces, sandbox_config};
use logic_pods::security::ImageUser;
use logic_pods::status::{StatusInput, StatusStage, pod_status};
use logic_resources::node::policy::NodePolicy;
use logic_volumes::MountedVolumes;
use serde_json::Value;
use state::checkpoints::PodRecord;

use super::corpus::{
    CDI, CNI_RESULT, CONFIG, CONFLIST, DROP_IN, FLAGS, MANIFESTS, PLUGINS, SeedCorpus,
};

const RECORDS: Schema = Schema {
    kind: 1,
    version: 1,
};

const HOSTS_TOML: &str = r#"server = "https://registry.test"
ca = "ca.pem"
[host."http://mirror.test:5000/v2/cache"]
  capabilities = ["pull", "resolve"]
  override_path = true
  skip_verify = false
  dial_timeout = "1m30s"
  client = [["c.pem", "k.pem"], ["both.pem"]]
  [host."http://mirror.test:5000/v2/cache".header]
    x-key = ["one", "two"]
"#;
const IMAGE_NAME: &str = "127.0.0.1:5000/a/b:c";
const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A parser to be fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Its name on the command line.
    pub name: &'static str,
    corpus: fn(&Path) -> Result<SeedCorpus>,
    read: fn(&Path, &[u8]),
}

impl FuzzTarget {
    pub(super) fn corpus(&self, folder: &Path) -> Result<SeedCorpus> {
        (self.corpus)(folder)
    }

    /// Reads one input; files that it needs go into the folder.
    pub(super) fn read(&self, folder: &Path, input: &[u8]) {
        (self.read)(folder, input);
    }
}

/// Returns every target.
pub fn all() -> Vec<FuzzTarget> {
    vec![
        FuzzTarget {
            name: "manifests",
            corpus: manifests,
            read: manifest,
        },
        FuzzTarget {
            name: "config",
            corpus: configs,
            read: |folder, input| load(folder, "config.yaml", input),
        },
        FuzzTarget {
            name: "drop-ins",
            corpus: |_| Ok(text(DROP_IN)),
            read: |folder, input| load(folder, "drop-ins/50.conf", input),
        },
        FuzzTarget {
            name: "plugins",
            corpus: |_| Ok(text(PLUGINS)),
            read: |folder, input| load(folder, "plugins.yaml", input),
        },
        FuzzTarget {
            name: "flags",
            corpus: |_| Ok(text(FLAGS)),
            read: flags,
        },
        FuzzTarget {
            name: "checkpoints",
            corpus: checkpoints,
            read: checkpoint,
        },
        FuzzTarget {
            name: "conflists",
            corpus: conflists,
            read: |_, input| conflist(input),
        },
        FuzzTarget {
            name: "image-documents",
            corpus: |_| Ok(image_documents()),
            read: |_, input| images::fuzzing::document(input),
        },
        FuzzTarget {
            name: "layers",
            corpus: |_| layers(),
            read: images::fuzzing::layer,
        },
        FuzzTarget {
            name: "registry-answers",
            corpus: |_| Ok(registry_answers()),
            read: |_, input| images::fuzzing::answer(input),
        },
        FuzzTarget {
            name: "registry-hosts",
            corpus: |_| Ok(text(HOSTS_TOML)),
            read: images::fuzzing::hosts,
        },
        FuzzTarget {
            name: "cdi",
            corpus: |_| Ok(text(CDI)),
            read: runtime_native::fuzzing::cdi,
        },
        FuzzTarget {
            name: "monitor-frames",
            corpus: |_| monitor_frames(),
            read: |_, input| read_frames(input),
        },
        FuzzTarget {
            name: "runtime-records",
            corpus: |_| Ok(runtime_records()),
            read: |_, input| runtime_native::fuzzing::records(input),
        },
    ]
}

fn conflists(_: &Path) -> Result<SeedCorpus> {
    let trees = [CONFLIST, CNI_RESULT].map(serde_json::from_str);
    Ok(SeedCorpus {
        texts: vec![CONFLIST.as_bytes().to_vec(), CNI_RESULT.as_bytes().to_vec()],
        trees: trees.into_iter().collect::<Result<_, _>>()?,
    })
}

/// A network's file, and what a CNI plugin prints: each as it is written again is read as the same. Fractions, which
/// CNI has none of, are read one unit of their last place off.
fn conflist(input: &[u8]) {
    use network_cni::{CniResult, Form, Network, Version};
    let has_fractions = serde_json::from_slice(input).is_ok_and(|tree| has_fractions(&tree));
    for form in [Form::List, Form::Single] {
        if let Ok(network) = network_cni::parse(input, form)
            && !network.plugins.is_empty()
        {
            let again = network_cni::parse(&network.to_json(), Form::List);
            let only_inlined = Network {
                only_inlined: true,
                ..network
            };
            assert!(has_fractions || again.as_ref() == Ok(&only_inlined));
        }
    }
    if let Ok(result) = CniResult::parse(input, Version::NEWEST) {
        let written = result.to_value(Version::NEWEST).to_string();
        let again = CniResult::parse(written.as_bytes(), Version::NEWEST);
        assert!(has_fractions || again.as_ref() == Ok(&result));
    }
}

fn has_fractions(tree: &serde_json::Value) -> bool {
    match tree {
        serde_json::Value::Number(number) => number.is_f64(),
        serde_json::Value::Array(entries) => entries.iter().any(has_fractions),
        serde_json::Value::Object(fields) => fields.values().any(has_fractions),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::String(_) => {
            false
        }
    }
}

fn image_documents() -> SeedCorpus {
    SeedCorpus {
        texts: vec![IMAGE_NAME.as_bytes().to_vec()],
        trees: vec![
            serde_json::json!({"schemaVersion": 2, "manifests": [{"digest": DIGEST, "size": 1,
                "platform": {"os": "linux", "architecture": "arm", "variant": "v7"}}]}),
            serde_json::json!({"schemaVersion": 2, "config": {"digest": DIGEST, "size": 1},
                "layers": [{"mediaType": "x", "digest": DIGEST, "size": 1}]}),
            serde_json::json!({"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers",
                "diff_ids": [DIGEST]}, "config": {"User": "0", "Env": ["A=b"], "Cmd": null, "Volumes": {"/v": {}}}}),
        ],
    }
}

fn registry_answers() -> SeedCorpus {
    let texts = [
        "realm=\"https://auth.test/token\",service=\"s\",scope=\"repository:a/b:pull repository:c:pull,push\"",
        "https://storage.test/blob?x=1",
        "/v2/other",
        "120",
    ];
    SeedCorpus {
        texts: texts.map(|text| text.as_bytes().to_vec()).to_vec(),
        trees: vec![
            serde_json::json!({"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down", "detail": {"limit": 1}}]}),
            serde_json::json!({"error": "invalid_grant", "error_description": "no"}),
        ],
    }
}

/// A call of each shape, and answers.
fn monitor_frames() -> Result<SeedCorpus> {
    let handler = serde_json::json!({"program": "/bin/runc", "root": "/r"});
    let call =
        |request: Value| serde_json::json!({"version": monitor::VERSION, "request": request});
    let trees = vec![
        call(serde_json::json!("Status")),
        call(
            serde_json::json!({"Create": {"container": "c", "handler": handler, "bundle": "/b", "stdin": "Once"}}),
        ),
        call(
            serde_json::json!({"Exec": {"container": "c", "process": {"args": ["sh"]}, "timeout_ms": 1}}),
        ),
        call(
            serde_json::json!({"Update": {"container": "c", "resources": {"memory": {"limit": 1}}}}),
        ),
        serde_json::json!({"Pod": {"version": 1, "program": "0", "pid": 1, "containers": []}}),
        serde_json::json!({"Refused": {"kind": "Full", "message": "m"}}),
    ];
    let mut wire = Vec::new();
    for tree in &trees {
        monitor::Frame::message(tree)?.encode(&mut wire);
    }
    monitor::Frame::Input(b"input".to_vec()).encode(&mut wire);
    Ok(SeedCorpus {
        texts: vec![wire],
        trees,
    })
}

/// What comes on a monitor's socket, from either side: frames are taken off as they were written.
fn read_frames(input: &[u8]) {
    let mut bytes = input.to_vec();
    let mut written = Vec::new();
    while let Ok(Some(frame)) = monitor::Frame::take(&mut bytes) {
        frame.encode(&mut written);
        read_message(&frame);
    }
    assert!(input.starts_with(&written));
    // Without a frame around it, so that mutations of the text reach the message.
    read_message(&monitor::Frame::Message(input.to_vec()));
}

fn read_message(frame: &monitor::Frame) {
    if let Ok(call) = frame.read::<monitor::Call>() {
        let again = monitor::Frame::message(&call).and_then(|frame| frame.read::<monitor::Call>());
        assert!(again.is_ok(), "{again:?}");
    }
    drop(frame.read::<monitor::Reply>());
    drop(frame.read::<monitor::StreamControl>());
}

fn runtime_records() -> SeedCorpus {
    SeedCorpus {
        texts: Vec::new(),
        trees: vec![
            serde_json::json!({"id": "a", "name": "n", "phase": "Ready", "config": "CgEA", "handler": "",
                "created": 1, "boot": "b", "addresses": ["10.0.0.1"], "attached": true}),
            serde_json::json!({"id": "a", "sandbox": "s", "name": "n", "config": "", "image": "i", "image_ref": "r",
                "phase": {"Exited": {"code": 1, "reason": "Error", "message": "", "finished": 2}}, "log": "/l",
                "created": 1, "boot": "b", "stop_signal": 15}),
        ],
    }
}

fn layers() -> Result<SeedCorpus> {
    let mut tar = tar::Builder::new(Vec::new());
    for (kind, name, link) in [
        (tar::EntryType::Directory, "d/", ""),
        (tar::EntryType::Regular, "d/f", ""),
        (tar::EntryType::Link, "d/g", "d/f"),
        (tar::EntryType::Symlink, "s", "../../guard"),
        (tar::EntryType::Regular, "s/x", ""),
        (tar::EntryType::Fifo, "p", ""),
        (tar::EntryType::Regular, "d/.wh..wh..opq", ""),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o644);
        header.set_path(name)?;
        if !link.is_empty() {
            header.set_link_name(link)?;
        }
        header.set_cksum();
        tar.append(&header, std::io::empty())?;
    }
    Ok(SeedCorpus {
        texts: vec![tar.into_inner()?],
        trees: Vec::new(),
    })
}

fn text(text: &str) -> SeedCorpus {
    SeedCorpus {
        texts: vec![text.as_bytes().to_vec()],
        trees: Vec::new(),
    }
}

fn manifests(_: &Path) -> Result<SeedCorpus> {
    let mut corpus = SeedCorpus::default();
    for text in MANIFESTS {
        corpus.texts.push(text.as_bytes().to_vec());
        for pod in parse(text.as_bytes(), UnknownFields::Refuse)?.pods {
            corpus.trees.push(serde_json::to_value(pod?.pod)?);
        }
    }
    Ok(corpus)
}

/// All the way that a manifest goes: read, defaulted, checked, planned, made into what the runtime is asked for, shown.
fn manifest(_: &Path, input: &[u8]) {
    let Ok(parsed) = parse(input, UnknownFields::Warn) else {
        return;
    };
    let source = ManifestSource::File("/etc/kubernetes/manifests/fuzz.yaml".to_owned());
    for pod in parsed.pods.into_iter().flatten() {
        if let Ok(pod) = static_pod(pod.pod, &source, &"node".into(), Timestamp::UNIX_EPOCH) {
            run_through(&pod);
        }
    }
}

fn run_through(pod: &Pod) {
    let (runtime, exits, backoffs) = (
        RuntimePod::default(),
        BTreeMap::new(),
        BackoffTable::default(),
    );
    let observed = PodObservation {
        runtime: &runtime,
        exits: &exits,
        backoffs: &backoffs,
        log_counts: &BTreeMap::new(),
        health: &BTreeMap::new(),
        actuated: &BTreeMap::new(),
        replaced: &BTreeSet::new(),
    };
    let plan = compute_pod_actions(
        Timestamp::UNIX_EPOCH,
        pod,
        &observed,
        &PodActionPolicy::default(),
    );
    let node = NodePolicy::default();
    let ips = ["10.0.0.1".to_owned()];
    let (objects, resolver) = (StaticObjects::default(), ResolverConfig::default());
    let _sandbox = sandbox_config(&SandboxInput {
        pod,
        attempt: 0,
        node: &node,
        objects: &objects,
        resolver: &resolver,
        users: UserNamespace::Node,
        cgroup_parent: "",
    });
    containers_of(pod, &node, &objects, &ips);
    let status = pod_status(&StatusInput {
        now: Timestamp::UNIX_EPOCH,
        pod,
        runtime: &runtime,
        runtime_name: "fake",
        handler: HandlerFeatures::default(),
        waiting: &plan.waiting,
        previous: None,
        host_ips: &ips,
        stage: StatusStage::Syncing,
        failure: None,
        health: &BTreeMap::new(),
        replaced: &BTreeSet::new(),
        resize: &ResizeState::default(),
        last_words: &BTreeMap::new(),
    });
    let _shown = serde_json::to_vec(&status);
}

fn containers_of(pod: &Pod, node: &NodePolicy, objects: &StaticObjects, ips: &[String]) {
    for (kind, container) in pod.all_containers() {
        let _container = container_config(&ContainerInput {
            pod,
            container,
            kind,
            restart_count: 0,
            image: "image",
            image_user: &ImageUser::Unset,
            pod_ips: ips,
            node,
            objects,
            env_files: &EnvFiles::default(),
            image_volumes: &BTreeMap::new(),
            volumes: &MountedVolumes::default(),
            subpaths: &PreparedSubpaths::new(),
            features: HandlerFeatures::default(),
            hosts_file: None,
            namespaces: &namespaces(pod),
            target: None,
            placement: &ContainerPlacement::default(),
            claim_devices: &[],
            plugin_devices: None,
        });
        let _hash = logic_api::pod::hash::container_hash(container);
    }
}

fn configs(folder: &Path) -> Result<SeedCorpus> {
    let complete = config::parse_configuration(&folder.join("config.yaml"), CONFIG)?;
    let trees = vec![
        serde_json::to_value(complete)?,
        serde_json::to_value(with_kind())?,
    ];
    Ok(SeedCorpus {
        trees,
        ..text(CONFIG)
    })
}

fn with_kind() -> Value {
    serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "evictionHard": { "memory.available": "1Gi" },
        "kubeReserved": { "cpu": "1" },
        "crashLoopBackOff": { "maxContainerRestartPeriod": "1s" },
    })
}

/// The whole way of the agent's start, with one of its files replaced.
fn load(folder: &Path, replaced: &str, input: &[u8]) {
    let whole = [
        ("config.yaml", CONFIG),
        ("drop-ins/50.conf", DROP_IN),
        ("plugins.yaml", PLUGINS),
    ];
    drop(fs::create_dir_all(folder.join("drop-ins")));
    for (name, text) in whole {
        let content = if name == replaced {
            input
        } else {
            text.as_bytes()
        };
        drop(fs::write(folder.join(name), content));
    }
    let flag = |name: &str, file: &str| {
        OsString::from(format!("--{name}={}", folder.join(file).display()))
    };
    let arguments = [
        flag("config", "config.yaml"),
        flag("config-dir", "drop-ins"),
        flag("plugins", "plugins.yaml"),
    ];
    run(arguments.into());
}

/// A line an argument.
fn flags(_: &Path, input: &[u8]) {
    let lines = input.split(|byte| *byte == b'\n');
    run(lines
        .map(|line| OsString::from_vec(line.to_vec()))
        .collect());
}

fn run(arguments: Vec<OsString>) {
    let host = HostFacts {
        hostname: "node".to_owned(),
        cgroup: CgroupVersion::V2,
        program_folder: "/usr/bin".into(),
        standalone: StandaloneFacts::default(),
    };
    if let Err(error) = config::load(arguments, &host) {
        let _shown = format!("{:#}", anyhow::Error::new(error));
    }
}

fn checkpoints(folder: &Path) -> Result<SeedCorpus> {
    let mut corpus = SeedCorpus::default();
    for pods in [0, 1, 20] {
        let path = folder.join(format!("{pods}.checkpoint"));
        CheckpointFile::new(path.clone(), RECORDS).save(&records(pods))?;
        let file = fs::read(&path)?;
        let read: BTreeMap<PodUid, PodRecord> = checkpoint::parse(RECORDS, &file)?;
        ensure!(
            read.len() == pods,
            "a checkpoint of {pods} records has {}",
            read.len()
        );
        // Behind its header as well: the sum would hide the content from most mutations.
        corpus
            .texts
            .push(file.get(20..).context("a header is longer")?.to_vec());
        corpus.texts.push(file);
    }
    Ok(corpus)
}

fn records(pods: usize) -> BTreeMap<PodUid, PodRecord> {
    let record = |nth: usize| {
        let mut record = PodRecord {
            started: Some(Timestamp::UNIX_EPOCH),
            ..PodRecord::default()
        };
        let now = Timestamp::UNIX_EPOCH + Duration::from_secs(60);
        let _first = record
            .backoffs
            .next("container", now, now, &BackoffPolicy::default());
        let _none = record
            .exits
            .insert(ContainerId::from(format!("id-{nth}")), now);
        (PodUid::from(format!("uid-{nth}")), record)
    };
    (0..pods).map(record).collect()
}

fn checkpoint(_: &Path, input: &[u8]) {
    let file = checkpoint::parse::<BTreeMap<PodUid, PodRecord>>(RECORDS, input);
    let content = checkpoint::decode::<BTreeMap<PodUid, PodRecord>>(input);
    for flaw in file.err().into_iter().chain(content.err()) {
        let _shown = flaw.to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig::random::Random;

    use crate::fuzz::mutate::input;

    #[test]
    fn every_target_withstands_broken_inputs() {
        for target in all() {
            let folder = tempfile::tempdir().unwrap();
            let corpus = target.corpus(folder.path()).unwrap();
            let mut random = Random::new(1);
            for text in &corpus.texts {
                target.read(folder.path(), text);
            }
            for _ in 0..80 {
                target.read(folder.path(), &input(&mut random, &corpus));
            }
        }
    }

    #[test]
    fn the_corpus_of_the_configuration_is_valid() {
        let parsed = config::parse_configuration(Path::new("/c.yaml"), CONFIG);
        assert!(parsed.is_ok(), "{parsed:?}");
    }
}
