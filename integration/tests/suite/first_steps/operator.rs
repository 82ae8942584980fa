//! What the operator looks at a whole node with: `oxctl top` and `oxctl diagnose`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use integration::agent::program;
use integration::http;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::super::node_rig::*;

on_each_runtime! {
    top_shows_the_agent_its_plugins_and_the_pods,
    no_secret_of_the_node_is_in_an_archive_of_it,
}

async fn top_shows_the_agent_its_plugins_and_the_pods(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let node = &node_rig.node;
    node.drop_manifest("web.yaml", &server("web")).unwrap();
    let pod = node_rig.until_running("web").await;
    let shown = node.oxctl(&["top", "-o", "json"]).await.unwrap();
    let view: Value = serde_json::from_str(&shown).unwrap();
    let processes = view["processes"].as_array().unwrap();
    let agent = &processes[0];
    assert_eq!(agent["pid"].as_u64(), node.pid().map(u64::from), "{agent}");
    let plugin = node.plugin().await.unwrap();
    let runtime = processes.iter().find(|row| row["name"] == "runtime");
    let runtime = runtime.unwrap_or_else(|| panic!("no runtime: {shown}"));
    assert_eq!(runtime["pid"], plugin["pid"]);
    for process in [agent, runtime] {
        assert!(process["rss_bytes"].as_u64() > Some(1 << 20), "{process}");
        assert!(process["threads"].as_u64() > Some(0), "{process}");
        assert!(process["nano_cores"].is_u64(), "{process}");
    }
    let row = &view["pods"][0];
    assert_eq!(row["uid"], uid(&pod));
    assert!(row["working_set_bytes"].is_u64(), "{row}");
    assert!(
        row["nano_cores"].is_u64(),
        "there were two measurements: {row}"
    );
    let summary = http::get(node.read_only_port(), "/stats/summary").await;
    let summary: Value = serde_json::from_str(&summary.unwrap().text()).unwrap();
    assert_eq!(summary["pods"][0]["podRef"]["uid"], row["uid"]);
    assert_eq!(summary["node"]["nodeName"], view["node"]["name"]);

    let shown = node
        .oxctl(&["top", "--once", "--sort=memory"])
        .await
        .unwrap();
    assert!(!shown.contains('\x1b'), "a pipe is no terminal: {shown:?}");
    let words = |start: &str| -> Vec<String> {
        let line = shown.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no {start}: {shown}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(
        words("oxlet")[..3],
        [
            "oxlet".to_owned(),
            "agent".to_owned(),
            agent["pid"].to_string()
        ]
    );
    let row = words("default");
    assert_eq!(row[1], "web-node");
    assert!(row[2].ends_with('m') && row[3].ends_with("Mi"), "{row:?}");
}

/// Reads a terminal until it has shown a text; returns what it has shown.
async fn until_shown(screen: &mut tokio::fs::File, text: &str) -> String {
    let mut seen = String::new();
    let reading = async {
        let mut bytes = [0; 4096];
        while !seen.contains(text) {
            let read = screen.read(&mut bytes).await.unwrap();
            seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    };
    let read = tokio::time::timeout(CONVERGENCE_TIMEOUT, reading).await;
    assert!(read.is_ok(), "{text:?} is not in {seen:?}");
    seen
}

#[tokio::test]
async fn top_draws_again_in_a_terminal_also_while_the_agent_is_away() {
    let mut node_rig = TestRuntime::Fake.start().await.unwrap();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let person = openpt(flags).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let name = name.to_str().unwrap();
    let end = fs::File::options()
        .read(true)
        .write(true)
        .open(name)
        .unwrap();
    let size = Winsize {
        ws_row: 12,
        ws_col: 50,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&person, size).unwrap();
    let mut top = tokio::process::Command::new(program("oxctl").unwrap());
    top.arg("--socket").arg(node_rig.node.admin_socket());
    top.args(["top", "--interval=1"])
        .stdout(end)
        .kill_on_drop(true);
    let mut top = top.spawn().unwrap();
    let mut screen = tokio::fs::File::from_std(fs::File::from(person));
    let first = until_shown(&mut screen, "\x1b[J").await;
    assert!(first.starts_with("\x1b[2J\x1b[H"), "{first:?}");
    assert!(first.contains("oxlet"), "{first:?}");
    for line in first.split("\x1b[K\r\n") {
        assert!(line.len() <= 50 + "\x1b[2J\x1b[H".len(), "{line:?}");
    }
    let next = until_shown(&mut screen, "\x1b[J").await;
    assert!(next.starts_with("\x1b[H"), "over the first one: {next:?}");
    node_rig.node.kill9().unwrap();
    until_shown(&mut screen, "no agent answers").await;
    node_rig.node.begin().await.unwrap();
    until_shown(&mut screen, "\x1b[HNODE").await;
    assert_eq!(top.try_wait().unwrap(), None, "it goes on");
    top.kill().await.unwrap();
}

/// Each secret below contains this, and nothing else does.
const PLANTED: &str = "planted-";

/// Secrets of this pod: variables, an annotation, volumes, credentials of its image. It writes some of them into its log.
const SECRETIVE: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"containers":[{"env":[{"value":"planted-annotation"}]}]}}'
spec:
  terminationGracePeriodSeconds: 1
  imagePullSecrets: [{name: pull}]
  volumes: [{name: words, secret: {secretName: words}}]
  containers:
  - name: app
    image: localhost/oxlet/busybox:1
    command:
    - sh
    - -c
    - |
      echo "connected with $DB_PASSWORD and $FROM_SECRET"
      cat /words/word
      echo 'GET / Authorization: Bearer planted-header'
      echo '-----BEGIN PRIVATE KEY-----'
      echo 'planted-key'
      echo '-----END PRIVATE KEY-----'
      echo the last line
      trap 'exit 0' TERM; while true; do sleep 1; done
    env:
    - {name: DB_PASSWORD, value: planted-variable}
    - {name: MODE, value: planted-plain}
    - name: FROM_SECRET
      valueFrom: {secretKeyRef: {name: words, key: word}}
    volumeMounts: [{name: words, mountPath: /words}]
"#;

fn secret(name: &str, r#type: &str, fields: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": r#type, "stringData": fields,
        "metadata": { "name": name, "namespace": "default" },
    })
    .to_string()
}

/// Lines that containers' logs have, whatever the runtime runs of a script.
const LOGGED: &str = "2026-01-01T00:00:00.000000001Z stdout F the word is planted-of-a-volume
2026-01-01T00:00:00.000000002Z stdout F {\"password\":\"planted-in-json\",\"url\":\"https://me:planted-user@h.example/\"}
2026-01-01T00:00:00.000000003Z stdout F the last line
";

async fn no_secret_of_the_node_is_in_an_archive_of_it(on: TestRuntime) {
    let config = json!({
        "staticPodURL": "http://me:planted-user@127.0.0.1:1/pods?token=planted-query",
        "staticPodURLHeader": { "Authorization": ["Bearer planted-static-header"] },
        "httpCheckFrequency": "1s",
    });
    let folder = tempfile::tempdir().unwrap();
    let bootstrap = folder.path().join("bootstrap.conf");
    let kubeconfig = "users: [{name: me, user: {token: planted-bootstrap-token}}]\n";
    fs::write(&bootstrap, kubeconfig).unwrap();
    let docker =
        json!({ ".dockerconfigjson": "{\"auths\":{\"localhost\":{\"auth\":\"planted-pull\"}}}" });
    let started = on.start_with(|builder| {
        builder
            .config(&config)
            .flag(format!("--bootstrap-kubeconfig={}", bootstrap.display()))
            .flag("--v=5")
            .object(
                "words.yaml",
                &secret("words", "Opaque", &json!({ "word": "planted-of-a-volume" })),
            )
            .object(
                "pull.yaml",
                &secret("pull", "kubernetes.io/dockerconfigjson", &docker),
            )
            .manifest("web.yaml", SECRETIVE)
    });
    let Some(mut node_rig) = started.await else {
        return;
    };
    let pod = node_rig.until_running("web").await;
    let log = node_rig.logs_of(&pod).join("written");
    fs::create_dir_all(&log).unwrap();
    fs::write(log.join("0.log"), LOGGED).unwrap();

    let archive = folder.path().join("node.tar.gz");
    let path = archive.display().to_string();
    let said = node_rig
        .node
        .oxctl(&["diagnose", "-o", &path])
        .await
        .unwrap();
    assert!(said.starts_with(&path), "{said}");
    assert_eq!(fs::metadata(&archive).unwrap().mode() & 0o777, 0o600);
    let files = unpacked(&archive, &folder.path().join("first"));
    assert_no_secrets(&files, node_rig.node.dir());
    assert_whole(&files);
    let refused = node_rig.node.oxctl(&["diagnose", "-o", &path]).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("--force"), "{refused}");

    // Without an agent: the pod goes on.
    node_rig.node.terminate().await.unwrap();
    let config = format!(
        "--config={}",
        node_rig.node.dir().join("config.yaml").display()
    );
    let root = format!("--root-dir={}", node_rig.node.root().display());
    let mut orders = vec![
        "diagnose",
        "-o",
        &path,
        "--force",
        &config,
        &root,
        "--unit=no.service",
    ];
    // Simulated processes have no environment from which it could be known what the log must not have.
    if on == TestRuntime::Fake {
        orders.push("--no-container-logs");
    }
    node_rig.node.oxctl(&orders).await.unwrap();
    let files = unpacked(&archive, &folder.path().join("second"));
    assert_no_secrets(&files, node_rig.node.dir());
    let errors = &files["errors.txt"];
    assert!(errors.contains("agent: no agent answers"), "{errors}");
    for file in ["config.json", "mounts.txt", "machine/meminfo.txt"] {
        assert!(files.contains_key(file), "{file} of {:?}", files.keys());
    }
    let has_logs = files.keys().any(|file| file.ends_with("/written/0.log"));
    assert_eq!(has_logs, on != TestRuntime::Fake, "{errors}");
}

/// The files of an archive by their names below its one folder.
fn unpacked(archive: &Path, into: &Path) -> BTreeMap<String, String> {
    fs::create_dir(into).unwrap();
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(into)
        .status();
    assert!(tar.unwrap().success());
    let tops: Vec<_> = fs::read_dir(into).unwrap().collect();
    assert_eq!(tops.len(), 1, "{tops:?}");
    let mut files = BTreeMap::new();
    let top = tops.into_iter().next().unwrap().unwrap().path();
    collect(&top, &top, &mut files);
    files
}

fn collect(top: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(top, &path, files);
            continue;
        }
        let name = path.strip_prefix(top).unwrap().display().to_string();
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        files.insert(name, text);
    }
}

/// Neither what this test has planted nor a private key of the node's own.
fn assert_no_secrets(files: &BTreeMap<String, String>, node: &Path) {
    let mut keys = BTreeMap::new();
    let folder = node.join("pki");
    collect(&folder, &folder, &mut keys);
    let is_key = |text: &&String| text.contains("PRIVATE KEY-----");
    let lines = keys.values().filter(is_key).flat_map(|text| {
        let private = text.split("PRIVATE KEY-----").nth(1).unwrap();
        private.lines().filter(|line| line.len() > 30)
    });
    let lines: Vec<&str> = lines.collect();
    assert!(!lines.is_empty(), "the node has a key");
    for (name, text) in files {
        for secret in lines.iter().chain(&[PLANTED]) {
            let found = text.lines().find(|line| line.contains(secret));
            assert_eq!(found, None, "{secret} in {name}");
        }
    }
}

/// Every part of a node that runs.
fn assert_whole(files: &BTreeMap<String, String>) {
    let parts = [
        "about.json",
        "version.txt",
        "tree.txt",
        "tree.json",
        "plugins.txt",
        "pods.txt",
        "events.txt",
        "volumes.txt",
        "top.txt",
        "config.json",
        "metrics/agent.txt",
        "metrics/resource.txt",
        "mounts.txt",
        "machine/kernel.txt",
        "agent/status.txt",
        "logs/agent.log",
        "errors.txt",
    ];
    for part in parts {
        assert!(
            files.contains_key(part),
            "{part} of {:?}: {}",
            files.keys(),
            files["errors.txt"]
        );
    }
    let config: Value = serde_json::from_str(&files["config.json"]).unwrap();
    assert_eq!(
        config["kubeletconfig"]["httpCheckFrequency"], "1s",
        "the rest is there"
    );
    let why = files
        .iter()
        .find(|(name, _)| name.starts_with("why/default_web-node_"));
    assert!(why.unwrap().1.contains("web-node"));
    let logs = files
        .iter()
        .filter(|(name, _)| name.starts_with("logs/pods/default_web-node_"));
    let logs: BTreeMap<_, _> = logs.collect();
    assert_eq!(logs.len(), 2, "{:?}", logs.keys());
    for (name, text) in logs {
        assert!(text.contains("the last line"), "{name}: {text}");
    }
    assert!(
        files.keys().any(|name| name.starts_with("cgroups/")),
        "{}",
        files["errors.txt"]
    );
}
