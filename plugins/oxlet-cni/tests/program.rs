//! The program as a runtime runs it, before a network plugin and before none.

#![allow(
    clippy::unwrap_used,
    reason = "what fails in a shorthand fails the test that uses it"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A CNI plugin that keeps what it makes as files beside it, and fails where a file says so.
const PLUGIN: &str = r#"#!/bin/sh
home=$(dirname "$0")
cat >"$home/stdin.$CNI_COMMAND"
if [ -e "$home/fail.$CNI_COMMAND" ]; then
    echo '{"code": 111, "msg": "no", "details": "more"}'
    exit 1
fi
case $CNI_COMMAND in
ADD)
    echo "$CNI_ARGS" >"$home/made.$CNI_CONTAINERID"
    echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.2/24"}]}'
    ;;
DEL) rm -f "$home/made.$CNI_CONTAINERID" ;;
esac
"#;

/// A folder with a network plugin's configuration.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("conf")).unwrap();
    let list = json!({ "cniVersion": "1.1.0", "name": "inner", "plugins": [{ "type": "plugin", "capabilities": { "mac": true } }] });
    fs::write(folder.path().join("conf/10.conflist"), list.to_string()).unwrap();
    fs::write(folder.path().join("plugin"), PLUGIN).unwrap();
    fs::set_permissions(
        folder.path().join("plugin"),
        PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    folder
}

async fn serve(folder: &Path) -> sdk::testing::Plugin {
    let configuration = json!({ "confDir": folder.join("conf"), "binDirs": [folder] });
    let info = network_cni::info("0");
    sdk::testing::start(folder, info, configuration, network_cni::build)
        .await
        .unwrap()
}

/// A namespace of one test.
struct Netns(String);

impl Netns {
    fn new(name: &str) -> Self {
        let name = format!("cniprog-{}-{name}", std::process::id());
        assert!(
            Command::new("ip")
                .args(["netns", "add", &name])
                .status()
                .unwrap()
                .success()
        );
        Self(name)
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let deleted = Command::new("ip")
            .args(["netns", "delete", &self.0])
            .status();
        deleted.map(drop).unwrap_or_default();
    }
}

/// Runs the program on a thread of its own: the network plugin is on this one.
async fn call(verb: &str, conf: Value, netns: &str) -> (bool, Value) {
    let (verb, netns) = (verb.to_owned(), netns.to_owned());
    let thread = std::thread::spawn(move || run(&verb, &conf, &netns));
    while !thread.is_finished() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let output = thread.join().unwrap();
    let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.success(), said)
}

fn run(verb: &str, conf: &Value, netns: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_oxlet-cni"))
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", "a")
        .env("CNI_IFNAME", "eth0")
        .env("CNI_NETNS", netns)
        .env(
            "CNI_ARGS",
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=a",
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // VERSION reads nothing.
    stdin
        .write_all(conf.to_string().as_bytes())
        .unwrap_or_default();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn conf(folder: &Path, version: &str) -> Value {
    json!({
        "cniVersion": version,
        "name": "outer",
        "type": "oxlet-cni",
        "socket": folder.join("plugin.sock"),
        "runtimeConfig": { "mac": "c2:b0:57:49:47:f1" },
        "timeoutSeconds": 5,
    })
}

#[tokio::test]
async fn a_pod_is_attached_checked_and_detached() {
    let folder = folder();
    let _plugin = serve(folder.path()).await;
    let netns = Netns::new("whole");
    let conf = || conf(folder.path(), "0.4.0");
    assert_eq!(call("STATUS", conf(), "").await, (true, Value::Null));
    let (done, result) = call("ADD", conf(), &netns.path()).await;
    assert!(done, "{result}");
    assert_eq!(result["cniVersion"], "0.4.0");
    assert_eq!(
        result["ips"],
        json!([{ "version": "4", "address": "10.9.0.2/24" }])
    );
    let arguments = fs::read_to_string(folder.path().join("made.a")).unwrap();
    assert!(
        arguments.contains("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;"),
        "{arguments}"
    );
    let stdin: Value =
        serde_json::from_slice(&fs::read(folder.path().join("stdin.ADD")).unwrap()).unwrap();
    assert_eq!(
        (&stdin["name"], &stdin["cniVersion"]),
        (&json!("inner"), &json!("1.1.0"))
    );
    assert_eq!(
        stdin["runtimeConfig"],
        json!({ "mac": "c2:b0:57:49:47:f1" })
    );
    assert_eq!(
        call("CHECK", conf(), &netns.path()).await,
        (true, Value::Null)
    );
    let mut collect = conf();
    collect["cni.dev/valid-attachments"] = json!([{ "containerID": "a", "ifname": "eth0" }]);
    assert_eq!(call("GC", collect, "").await, (true, Value::Null));
    assert!(folder.path().join("made.a").exists());
    assert_eq!(
        call("DEL", conf(), &netns.path()).await,
        (true, Value::Null)
    );
    assert!(!folder.path().join("made.a").exists());
    // Again, with the namespace gone.
    drop(netns);
    assert_eq!(call("DEL", conf(), "").await, (true, Value::Null));
}

#[tokio::test]
async fn an_error_of_the_chain_keeps_its_code() {
    let folder = folder();
    let _plugin = serve(folder.path()).await;
    let netns = Netns::new("code");
    fs::write(folder.path().join("fail.ADD"), "").unwrap();
    let (done, said) = call("ADD", conf(folder.path(), "1.0.0"), &netns.path()).await;
    assert!(!done);
    assert_eq!(
        (&said["code"], &said["details"]),
        (&json!(111), &json!("more"))
    );
    let message = "network \"inner\": plugin \"plugin\" failed at ADD: no: more";
    assert_eq!(said["msg"], message);
    fs::write(folder.path().join("fail.STATUS"), "").unwrap();
    let (done, said) = call("STATUS", conf(folder.path(), "1.1.0"), "").await;
    assert_eq!((done, &said["code"]), (false, &json!(50)));
}

#[tokio::test]
async fn versions_are_told_without_a_plugin() {
    let (done, said) = call("VERSION", Value::Null, "").await;
    assert!(done);
    assert_eq!(
        said["supportedVersions"],
        json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
    );
}

#[tokio::test]
async fn a_delete_waits_for_a_plugin_that_is_away_and_never_lies() {
    let folder = folder();
    let mut short = conf(folder.path(), "1.0.0");
    short["timeoutSeconds"] = json!(1);
    let (done, said) = call("DEL", short, "").await;
    assert!(!done);
    let message = said["msg"].as_str().unwrap();
    assert!(
        message.starts_with("no network plugin answers at "),
        "{message}"
    );

    let mut long = conf(folder.path(), "1.0.0");
    long["timeoutSeconds"] = json!(60);
    let waiting = tokio::spawn(call("DEL", long, ""));
    tokio::time::timeout(Duration::from_millis(300), std::future::pending::<()>())
        .await
        .unwrap_err();
    assert!(!waiting.is_finished());
    let _plugin = serve(folder.path()).await;
    assert_eq!(waiting.await.unwrap(), (true, Value::Null));
}
