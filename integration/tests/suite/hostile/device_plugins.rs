//! A device plugin that is killed and hung all the time while pods with its devices come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use integration::chaos::Chaos;
use integration::doubles::device_plugin::SamplePlugin;
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use crate::suite::node_rig::*;

const RESOURCE: &str = "example.com/sample";
const DEVICES: usize = 12;
/// Kills and hangs of the plugin.
const FAULTS: usize = 200;
/// From fault to fault.
const PERIOD: Duration = Duration::from_millis(140);
/// A plugin hangs for at most so long.
const HANG: Duration = Duration::from_millis(100);
/// Pods that run from the first fault to the last, with one device each.
const KEEPERS: [&str; 3] = ["keeper-0", "keeper-1", "keeper-2"];
/// Pods that come and go, each under a name of its own.
const SLOTS: usize = 5;

/// A pod of small containers: an init container with one device, and an app with so many.
fn wanting(name: &str, devices: usize) -> String {
    let wants = |count: usize| format!("resources: {{limits: {{{RESOURCE}: '{count}'}}}}");
    let pod = server(name).replace(
        "    command:",
        &format!("    {}\n    command:", wants(devices)),
    );
    let init = format!(
        "  initContainers:
  - name: init
    image: localhost/oxlet/busybox:1
    command: [sh, -c, exit 0]
    {}
  containers:",
        wants(1)
    );
    pod.replace("  containers:", &init)
}

/// The plugin, whatever has become of its process.
struct Plugin {
    root: PathBuf,
    process: SamplePlugin,
}

impl Plugin {
    fn start(root: PathBuf) -> Self {
        let process = Self::process(&root);
        Plugin { root, process }
    }

    fn process(root: &std::path::Path) -> SamplePlugin {
        let ids: Vec<String> = (0..DEVICES).map(|number| format!("d{number:02}")).collect();
        SamplePlugin::start(root, &ids).unwrap()
    }

    /// Kills the process, hangs it for a while, or hangs it and kills it then.
    async fn fail(&mut self, chaos: &mut Chaos) {
        let fault = chaos.below(3);
        if fault > 0 {
            self.process.hang().unwrap();
            chaos.moment(HANG).await;
        }
        match fault {
            1 => self.process.resume().unwrap(),
            _ => self.process = Self::process(&self.root),
        }
    }
}

/// Who has which device: pods by device, and how many devices are free.
async fn holders(rig: &NodeRig) -> (BTreeMap<String, BTreeSet<String>>, usize) {
    let rows = rig.node.admin("/devices").await.unwrap();
    let (mut held, mut free) = (BTreeMap::<String, BTreeSet<String>>::new(), 0);
    for row in rows.as_array().unwrap() {
        let text = |field: &str| row[field].as_str().unwrap().to_owned();
        match text("holder").split_once(' ') {
            Some((pod, _)) => drop(held.entry(text("id")).or_default().insert(pod.to_owned())),
            None => free += usize::from(row["health"] == "Healthy"),
        }
    }
    (held, free)
}

async fn assert_given_once(rig: &NodeRig) {
    let (held, _) = holders(rig).await;
    for (device, pods) in held {
        assert_eq!(pods.len(), 1, "{device} is given to {pods:?}");
    }
}

async fn until_free(rig: &NodeRig, count: usize) {
    let what = format!("{count} devices are free");
    let are_free = async || holders(rig).await.1 == count;
    wait_until(CONVERGENCE_TIMEOUT, &what, are_free)
        .await
        .unwrap();
}

/// What came of the pods that came and went.
#[derive(Debug, Default)]
struct Churn {
    /// By slot: the pod that is there.
    slots: [Option<String>; SLOTS],
    came: usize,
    ran: BTreeSet<String>,
}

impl Churn {
    /// Has one pod go, or another one come in its place.
    fn turn(&mut self, rig: &NodeRig, chaos: &mut Chaos) {
        let slot = usize::try_from(chaos.below(SLOTS as u64)).unwrap();
        match self.slots[slot].take() {
            Some(gone) => rig.node.remove_manifest(&gone).unwrap(),
            None => {
                let name = format!("churn-{}", self.came);
                let devices = 1 + usize::try_from(chaos.below(3)).unwrap();
                let manifest = wanting(&name, devices);
                rig.node.drop_manifest(&name, &manifest).unwrap();
                self.came += 1;
                self.slots[slot] = Some(name);
            }
        }
    }

    /// No container of any pod has been started twice.
    fn look(&mut self, pods: &[Pod]) {
        for pod in pods {
            let again = containers(pod)
                .into_iter()
                .find(|own| own.restart_count > 0);
            assert_eq!(again, None, "{:?}", pod.metadata.name);
            let ran = pod.metadata.name.clone().filter(|_| is_ready(pod));
            self.ran.extend(ran);
        }
    }

    fn end(&mut self, rig: &NodeRig) -> Vec<String> {
        let left: Vec<String> = self.slots.iter_mut().filter_map(Option::take).collect();
        for name in &left {
            rig.node.remove_manifest(name).unwrap();
        }
        left
    }
}

fn kept(pods: &[Pod]) -> BTreeMap<(String, String), (String, i32)> {
    let mut all = identities(pods);
    all.retain(|(pod, _), _| pod.starts_with("keeper-"));
    all
}

#[tokio::test]
async fn a_plugin_killed_and_hung_two_hundred_times_gives_no_device_twice_and_loses_none() {
    let Some(rig) = TestRuntime::Fake.start().await else {
        return;
    };
    let mut plugin = Plugin::start(rig.node.root());
    until_free(&rig, DEVICES).await;
    for name in KEEPERS {
        rig.node.drop_manifest(name, &wanting(name, 1)).unwrap();
        rig.until_running(name).await;
    }
    let before = kept(&rig.node.pods().await.unwrap());

    let (mut chaos, mut churn) = (Chaos::new(16), Churn::default());
    let began = Instant::now();
    for _ in 0..FAULTS {
        let next = Instant::now() + PERIOD;
        churn.turn(&rig, &mut chaos);
        chaos.moment(HANG).await;
        plugin.fail(&mut chaos).await;
        assert_given_once(&rig).await;
        churn.look(&rig.node.pods().await.unwrap());
        tokio::time::sleep_until(next).await;
    }
    println!(
        "{FAULTS} faults in {:?}: {} pods came, {} of them ran",
        began.elapsed(),
        churn.came,
        churn.ran.len()
    );
    assert!(churn.ran.len() > 20, "{churn:?}");

    for name in churn.end(&rig) {
        rig.until_gone(&name).await;
    }
    until_free(&rig, DEVICES - KEEPERS.len()).await;
    let all = wanting("all", DEVICES - KEEPERS.len());
    rig.node.drop_manifest("all", &all).unwrap();
    rig.until_running("all").await;
    let (held, free) = holders(&rig).await;
    assert_eq!((held.len(), free), (DEVICES, 0));
    assert_given_once(&rig).await;
    let pods = rig.node.pods().await.unwrap();
    churn.look(&pods);
    assert_eq!(kept(&pods), before, "who ran from the start runs as ever");
}
