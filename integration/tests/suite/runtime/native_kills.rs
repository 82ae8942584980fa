//! Pods come, end and go on the native runtime while monitors, plugins and the agent are killed: none is lost, no container
//! runs twice, no exit code is invented, and nothing is left over.
//!
//! `OXLET_NATIVE_KILLS=1000` makes it a campaign of so many kills, with as many pods as a node has in earnest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use integration::agent::{Node, Runtime};
use integration::chaos::Chaos;
use integration::images::{BUSYBOX_IMAGE, Image};
use integration::wait_until;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::native::left;
use crate::suite::node_rig::{assert_nothing_twice, containers, is_running, phase};

const KILLS_WANTED: &str = "OXLET_NATIVE_KILLS";
const KILLS: usize = 24;
const PODS: usize = 9;
/// The pods of a campaign.
const MANY_PODS: usize = 60;
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// Within this time of the last kill comes the next one.
const PERIOD: Duration = Duration::from_millis(400);
/// A monitor three times as often as the others: there are as many as pods.
const VICTIMS: [&str; 6] = [
    "monitor", "monitor", "monitor", "runtime", "network", "agent",
];
/// The code with which every container ends by itself.
const CODE: i32 = 7;
/// Those of containers whose end nobody saw, and of those that were killed.
const OTHER_CODES: [i32; 2] = [255, 137];

/// A node with a bridge of its own.
struct Campaign {
    node: Node,
    bridge: String,
    addresses: std::path::PathBuf,
    marks: std::path::PathBuf,
    /// How many pods each place has had.
    turns: BTreeMap<usize, usize>,
    _dir: tempfile::TempDir,
}

impl Campaign {
    async fn start() -> Campaign {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("busybox.tar");
        let image = Image::busybox(BUSYBOX_IMAGE).build().unwrap();
        image.save(&archive).unwrap();
        let (networks, marks) = (dir.path().join("networks"), dir.path().join("marks"));
        fs::create_dir(&networks).unwrap();
        fs::create_dir(&marks).unwrap();
        let bridge = format!("oxk{}", std::process::id());
        let addresses = dir.path().join("addresses");
        let conflist = json!({
            "cniVersion": "1.0.0",
            "name": bridge,
            "plugins": [{
                "type": "bridge",
                "bridge": bridge,
                "isGateway": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": addresses,
                    "ranges": [[{ "subnet": "10.213.0.0/24" }]],
                },
            }, { "type": "portmap", "capabilities": { "portMappings": true } }],
        });
        fs::write(networks.join("10-bridge.conflist"), conflist.to_string()).unwrap();
        let node = Node::builder()
            .runtime(Runtime::Native(json!({ "import": [archive] })))
            .network_by(
                "network-native",
                &json!({ "confDir": networks, "binDirs": ["/usr/lib/cni"] }),
            )
            .with_patience()
            .start()
            .await
            .unwrap();
        Campaign {
            node,
            bridge,
            addresses,
            marks,
            turns: BTreeMap::new(),
            _dir: dir,
        }
    }

    /// Puts the next pod in a place, and takes away the one that is there.
    fn turn(&mut self, place: usize) {
        let turn = self.turns.entry(place).or_default();
        if *turn > 0 {
            let file = format!("{}.yaml", name(place, *turn));
            self.node.remove_manifest(&file).unwrap();
        }
        *turn += 1;
        let name = name(place, *turn);
        let text = manifest(&name, place, &self.marks);
        self.node
            .drop_manifest(&format!("{name}.yaml"), &text)
            .unwrap();
    }

    fn names(&self) -> Vec<String> {
        let names = self.turns.iter().map(|(place, turn)| name(*place, *turn));
        names.collect()
    }

    /// Kills something; what isn't there at this moment is none.
    async fn kill(&mut self, chaos: &mut Chaos) -> (&'static str, usize) {
        let one = |chaos: &mut Chaos, length: usize| {
            let bound = u64::try_from(length).unwrap();
            usize::try_from(chaos.below(bound)).unwrap()
        };
        let victim = VICTIMS[one(chaos, VICTIMS.len())];
        let killed = match victim {
            "monitor" => {
                let monitors = monitors(&self.node.root());
                match monitors.len() {
                    0 => false,
                    length => kill(monitors[one(chaos, length)], Signal::SIGKILL).is_ok(),
                }
            }
            "agent" => {
                self.node.kill9().unwrap();
                self.node.begin().await.unwrap();
                true
            }
            plugin => self.node.kill_plugin_named(plugin),
        };
        (victim, usize::from(killed))
    }

    /// Everything that there is of pods: mounts, folders, monitors, cgroups, addresses, interfaces.
    fn left(&self) -> Vec<String> {
        let mut left = left(&self.node);
        let own = self.node.root().join("oxlet/plugins/network");
        for folder in ["results", "unfinished"] {
            left.extend(names(&own.join(folder)));
        }
        let addresses = names(&self.addresses.join(&self.bridge));
        left.extend(addresses.into_iter().filter(|name| name.starts_with("10.")));
        let ports = Path::new("/sys/class/net").join(&self.bridge).join("brif");
        left.extend(names(&ports));
        left.extend(instances(&self.marks).into_keys());
        left
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        let delete = std::process::Command::new("ip")
            .args(["link", "delete", &self.bridge])
            .status();
        if !delete.is_ok_and(|status| status.success()) {
            eprintln!("bridge {} is left", self.bridge);
        }
    }
}

fn name(place: usize, turn: usize) -> String {
    format!("place-{place}-{turn}")
}

/// Three kinds: what ends and is started again, what runs on, and what ends once and for all. Each start leaves a line.
fn manifest(name: &str, place: usize, marks: &Path) -> String {
    let (policy, script) = match place % 3 {
        0 => ("Always", format!("sleep 1; exit {CODE}")),
        1 => ("Always", "while true; do sleep 1000; done".to_owned()),
        _ => ("Never", format!("sleep 1; exit {CODE}")),
    };
    let marks = marks.display();
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: {policy}
  terminationGracePeriodSeconds: 1
  volumes: [{{name: marks, hostPath: {{path: {marks}}}}}]
  containers:
  - name: main
    image: {BUSYBOX_IMAGE}
    imagePullPolicy: Never
    volumeMounts: [{{name: marks, mountPath: {marks}}}]
    command: [sh, -c, "echo started >> {marks}/{name}; {script}", "{marks}/{name}"]
"#
    )
}

/// The monitors of a node.
fn monitors(root: &Path) -> Vec<Pid> {
    let root = root.display().to_string();
    let ours = |(_, line): &(i32, String)| line.contains("oxlet-monitor") && line.contains(&root);
    let pids = processes().into_iter().filter(ours);
    pids.map(|(pid, _)| Pid::from_raw(pid)).collect()
}

/// Every process with its command line.
fn processes() -> Vec<(i32, String)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).into_owned()))
    });
    processes.collect()
}

/// Whether it is the first process of its PID namespace, which a shell that is about to become another program isn't.
fn is_first(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| ids.split_whitespace().last() == Some("1"))
}

/// The instances of containers that live, by the path that is the last word of each.
fn instances(marks: &Path) -> BTreeMap<String, Vec<i32>> {
    let mut instances = BTreeMap::<String, Vec<i32>>::new();
    for (pid, line) in processes() {
        let words: Vec<_> = line.trim_end_matches('\0').split('\0').collect();
        if let [program, .., mark] = words[..]
            && program == "sh"
            && Path::new(mark).starts_with(marks)
            && is_first(pid)
        {
            instances.entry(mark.to_owned()).or_default().push(pid);
        }
    }
    instances
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// The ends that a pod's status tells.
fn ends(pod: &Pod) -> Vec<ContainerStateTerminated> {
    let states = containers(pod)
        .into_iter()
        .flat_map(|status| [status.state.clone(), status.last_state.clone()]);
    states
        .flatten()
        .filter_map(|state| state.terminated)
        .collect()
}

/// A code is the container's own, or says that nobody knows it.
fn assert_no_code_is_invented(pods: &[Pod]) {
    for end in pods.iter().flat_map(ends) {
        let known = end.exit_code == CODE && end.reason.as_deref() == Some("Error");
        assert!(
            known || OTHER_CODES.contains(&end.exit_code),
            "an end that was not: {end:?}"
        );
    }
}

fn has_arrived(pod: &Pod) -> bool {
    match phase(pod) {
        "Failed" => true,
        "Running" => containers(pod).into_iter().all(|status| {
            is_running(status) || status.last_state.is_some() || status.restart_count > 0
        }),
        _ => false,
    }
}

fn wanted() -> (usize, usize) {
    match std::env::var(KILLS_WANTED) {
        Ok(text) => (text.parse().unwrap(), MANY_PODS),
        Err(_) => (KILLS, PODS),
    }
}

#[tokio::test]
async fn kills_of_monitors_plugins_and_agent_lose_double_and_leave_nothing() {
    let (kills, places) = wanted();
    let mut campaign = Campaign::start().await;
    let mut chaos = Chaos::new(15);
    let mut killed = BTreeMap::<&str, usize>::new();
    for place in 0..places {
        campaign.turn(place);
    }
    for number in 0..kills {
        campaign.turn(number % places);
        chaos.moment(PERIOD).await;
        let (victim, count) = campaign.kill(&mut chaos).await;
        *killed.entry(victim).or_default() += count;
        for (mark, pids) in instances(&campaign.marks) {
            assert!(pids.len() == 1, "{mark} runs in {pids:?}");
        }
        if let Ok(pods) = campaign.node.pods().await {
            assert_no_code_is_invented(&pods);
        }
    }
    println!("{places} pods, {killed:?}");
    campaign
        .node
        .until_plugin_ready(CONVERGENCE_TIMEOUT)
        .await
        .unwrap();
    for name in campaign.names() {
        let until = campaign
            .node
            .until(&name, CONVERGENCE_TIMEOUT, "has arrived", has_arrived);
        until.await.unwrap();
    }
    let pods = campaign.node.pods().await.unwrap();
    assert_no_code_is_invented(&pods);
    assert_nothing_twice(&campaign.node.cri().await.unwrap()).await;
    // Those of earlier turns are ending, and an agent that never saw their manifests counts nothing of them.
    for name in campaign.names() {
        let pod = campaign.node.pod(&name).await.unwrap();
        assert_started_once_each(&campaign.marks, &name, &pod.expect("it has arrived"));
    }

    for name in campaign.names() {
        let file = format!("{name}.yaml");
        campaign.node.remove_manifest(&file).unwrap();
    }
    for name in campaign.names() {
        let gone = campaign.node.until_gone(&name, CONVERGENCE_TIMEOUT);
        gone.await.unwrap();
    }
    wait_until(CONVERGENCE_TIMEOUT, "nothing is left", async || {
        campaign.left().is_empty()
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {:#?}", campaign.left()));
}

/// No more starts than the status counts, and the pod that is never started again has at most one.
fn assert_started_once_each(marks: &Path, name: &str, pod: &Pod) {
    let starts = fs::read_to_string(marks.join(name)).unwrap_or_default();
    let starts = i32::try_from(starts.lines().count()).unwrap();
    let counted = containers(pod)
        .iter()
        .map(|status| status.restart_count + 1)
        .sum::<i32>();
    assert!(
        starts <= counted,
        "{name} was started {starts} times: {pod:?}"
    );
}
