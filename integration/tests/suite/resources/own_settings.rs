//! Settings that act on the agent's own process and on the machine below it, where the machine is another: mounts, networks and
//! streams of the agent's own.

use std::fs;
use std::io::{self, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use integration::agent::Node;
use integration::{tls, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::crypto::ring::kx_group::{SECP256R1, X25519};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use serde_json::json;
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A debug build on a busy machine.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// What a pipe holds, in bytes.
const PIPE_CAPACITY: usize = 65_536;

/// The agent's command line in a namespace of its own, after a script with these arguments.
fn within(namespace: &str, script: &str, arguments: &[&str], node: &Node) -> Command {
    let mut command = Command::new("unshare");
    command
        .args([namespace, "sh", "-ec", script, "sh"])
        .args(arguments)
        .args(node.command())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Ends the agent, and with it its plugins.
async fn end(mut agent: Child) {
    let pid = i32::try_from(agent.id().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    let ended = timeout(CONVERGENCE_TIMEOUT, agent.wait()).await;
    assert!(ended.expect("the agent ends").unwrap().success());
}

#[tokio::test]
async fn a_machine_that_is_not_what_the_settings_demand_stops_the_start() {
    let cases = [
        (
            json!({ "failSwapOn": true }),
            "/proc/swaps",
            "Filename Type Size Used Priority\n/swap file 2097148 0 -2\n",
            "running with swap on is not supported",
        ),
        (
            json!({ "protectKernelDefaults": true }),
            "/proc/sys/kernel/panic",
            "7\n",
            "invalid kernel flag: kernel/panic, expected value: 10, actual value: 7",
        ),
    ];
    for (setting, file, text, refusal) in cases {
        let node = Node::builder().config(&setting).prepare().unwrap();
        let other = node.dir().join("other");
        fs::write(&other, text).unwrap();
        let script = "mount --bind \"$1\" \"$2\"; shift 2; exec \"$@\"";
        let places = [other.to_str().unwrap(), file];
        let mut agent = within("--mount", script, &places, &node);
        let output = timeout(CONVERGENCE_TIMEOUT, agent.stderr(Stdio::piped()).output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("{setting}: the agent runs"))
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{log}");
        let refusal = format!("cannot run with these settings: {refusal}");
        assert!(log.contains(&refusal), "{log}");
    }
}

/// Whether an actor of the node keeps rules of iptables.
async fn has_rules_actor(node: &Node) -> bool {
    let tree = node.admin("/tree").await.unwrap();
    tree.to_string().contains("\"iptables\"")
}

#[tokio::test]
async fn rules_of_iptables_are_made_on_a_node_that_is_to_have_them() {
    let setting = json!({ "makeIPTablesUtilChains": true });
    let node = Node::builder().config(&setting).prepare().unwrap();
    let log = fs::File::create(node.dir().join("oxlet.log")).unwrap();
    let script = "ip link set lo up; exec \"$@\"";
    let agent = within("--net", script, &[], &node)
        .stderr(log)
        .spawn()
        .unwrap();
    let network = format!("--net=/proc/{}/ns/net", agent.id().unwrap());
    let rules = async |program: &str, table: &str| {
        let mut rules = Command::new("nsenter");
        rules.args([&network, program, "-w", "-t", table, "-S"]);
        String::from_utf8(rules.output().await.unwrap().stdout).unwrap()
    };
    let wanted = [
        ("iptables", "mangle", "-N KUBE-IPTABLES-HINT"),
        ("iptables", "filter", "-A INPUT -j KUBE-FIREWALL"),
        ("ip6tables", "mangle", "-N KUBE-IPTABLES-HINT"),
        ("ip6tables", "filter", "-N KUBE-KUBELET-CANARY"),
    ];
    for (program, table, rule) in wanted {
        let what = format!("{program} has {rule}");
        let is_there = async || rules(program, table).await.lines().any(|line| line == rule);
        wait_until(CONVERGENCE_TIMEOUT, &what, is_there)
            .await
            .unwrap();
    }
    assert!(has_rules_actor(&node).await);
    end(agent).await;
}

#[tokio::test]
async fn only_a_curve_of_the_configuration_opens_a_connection_and_the_oom_score_is_the_configured_one()
 {
    let setting = json!({ "tlsCurvePreferences": [23], "oomScoreAdj": 321 });
    let node = Node::builder().config(&setting).start().await.unwrap();
    let connect = async |curve: &'static dyn SupportedKxGroup| {
        let provider = CryptoProvider {
            kx_groups: vec![curve],
            ..ring::default_provider()
        };
        let client = tls::any_server_of(provider, None).unwrap();
        tls::connect_with(node.https_port(), client).await
    };
    connect(SECP256R1).await.unwrap();
    let refused = format!("{:#}", connect(X25519).await.unwrap_err());
    assert!(refused.contains("HandshakeFailure"), "{refused}");

    let score = format!("/proc/{}/oom_score_adj", node.pid().unwrap());
    wait_until(CONVERGENCE_TIMEOUT, "the score is set", async || {
        fs::read_to_string(&score).unwrap().trim() == "321"
    })
    .await
    .unwrap();
    assert!(!has_rules_actor(&node).await, "no rule is asked for");
}

#[tokio::test]
async fn a_setting_without_effect_is_said_once_in_the_log_and_the_others_are_not() {
    let setting = json!({ "hairpinMode": "none", "maxPods": 50 });
    let node = Node::builder().config(&setting).start().await.unwrap();
    let log = node.log();
    let said = log.lines().filter(|line| line.contains("has no effect"));
    let said: Vec<&str> = said.collect();
    let [line] = said.as_slice() else {
        panic!("{said:?}");
    };
    assert!(
        line.contains("hairpinMode has no effect: the kubelet only checks it"),
        "{line}"
    );
}

#[tokio::test]
async fn a_pod_manager_that_hangs_costs_the_notifications_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let heard = async |within| {
        let mut text = [0; 1024];
        let length = timeout(within, manager.recv(&mut text))
            .await
            .ok()?
            .unwrap();
        Some(String::from_utf8_lossy(&text[..length]).into_owned())
    };
    let node = Node::builder()
        .environment("NOTIFY_SOCKET", socket.to_str().unwrap())
        .environment("WATCHDOG_USEC", "1100000")
        .with_faults();
    let node = node.start().await.unwrap();
    let first = heard(CONVERGENCE_TIMEOUT).await.unwrap();
    assert!(first.contains("WATCHDOG=1"), "{first}");
    let hang = "/faults?path=oxlet/pods/pod-manager&fault=hang";
    node.order(hang).await.unwrap();
    let told = timeout(CONVERGENCE_TIMEOUT, async {
        loop {
            let told = heard(CONVERGENCE_TIMEOUT).await.unwrap_or_default();
            if told.contains("STATUS=not healthy") {
                break told;
            }
        }
    });
    let told = told.await.expect("the state is told");
    let why = "STATUS=not healthy: syncloop: the pod manager does not answer";
    assert!(told.starts_with(why), "{told}");
    // Two of the watchdog's timeouts; the supervisor starts what hangs again after half a minute.
    assert_eq!(heard(Duration::from_millis(2200)).await, None);
}

#[tokio::test]
async fn a_stream_that_takes_no_line_of_the_log_holds_up_nothing() {
    let setting = json!({ "logging": { "verbosity": 5 } });
    let node = Node::builder().config(&setting).prepare().unwrap();
    let (mut reader, mut writer) = io::pipe().unwrap();
    writer.write_all(&[b'\n'; PIPE_CAPACITY]).unwrap();
    let (program, arguments) = node.command().split_first().unwrap();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(writer)
        .kill_on_drop(true);
    let agent = command.spawn().unwrap();
    // It holds the pipe's end that is written to.
    drop(command);
    let healthy = async || node.is_healthy().await;
    wait_until(CONVERGENCE_TIMEOUT, "the agent is healthy", healthy)
        .await
        .unwrap();
    reader.read_exact(&mut [0; PIPE_CAPACITY]).unwrap();
    end(agent).await;
    let mut log = String::new();
    reader.read_to_string(&mut log).unwrap();
    let lost = log.find("\"lines of the log are lost: the stream did not take them\" lines=");
    let last = log.find("\"ending; pods live on\"");
    assert!(lost.is_some() && lost < last, "{log}");
}
