//! One seed repeats a run: the node is simulated as a whole, and what happens is compared line by line.
//!
//! Inside, on one thread and one paused clock: every area that `spawn` spawns (objects, state, volumes, pods, sources of
//! static pods, resources, cluster) with the agent's own wiring and settings; runtime-fake behind gRPC and the double of
//! the API server behind HTTP/2, both through pipes in memory; a storage plugin that keeps its mounts in memory. The seed
//! decides each draw of `kernel::chance`, the double's ids, and the schedule of pods and faults.
//!
//! Outside: plugin processes and their hosts, the servers (`endpoints`), certificates and TLS, probes over the network, the
//! real storage plugins, cgroups, and logind. The machine's own figures (memory, kernel) are read once and
//! the same in both runs.
//!
//! `OXLET_SEED` runs another seed, `OXLET_TRACE` names a file that gets each line as it comes.

mod requests;
mod schedule;
mod simulated_cluster;
mod trace;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use kernel::testing::{pass, run_seeded};
use serde_json::Value;

use self::schedule::{PodKind, STEPS, Schedule};
use self::simulated_cluster::SimulatedCluster;
use self::trace::difference;

/// So long pods come and go, and faults happen.
const FAULTS: Duration = Duration::from_mins(7);
/// So long the node has to come to rest, for ten minutes in all.
const REST: Duration = Duration::from_mins(3);

/// The seed of the run that is repeated: 7, or `OXLET_SEED`.
fn seed() -> u64 {
    std::env::var("OXLET_SEED").map_or(7, |seed| seed.parse().unwrap())
}

/// Runs a node, and checks that it comes to rest; the trace.
fn run(folder: &Path, seed: u64, faults: Duration) -> Vec<String> {
    std::fs::create_dir(folder).unwrap();
    let lines = run_seeded(seed, || async {
        let mut cluster = SimulatedCluster::start(folder, seed).await;
        let mut schedule = Schedule::new(&cluster);
        schedule.run(&mut cluster, faults).await;
        pass(REST).await;
        assert_rest(&cluster, &schedule).await;
        for pod in pods(&cluster) {
            cluster.trace.add("rest", &pod.to_string());
        }
        cluster.end().await
    });
    std::fs::remove_dir_all(folder).unwrap();
    lines
}

fn pods(cluster: &SimulatedCluster) -> Vec<Value> {
    cluster.api.list("/api/v1/namespaces/default/pods").unwrap()
}

/// Every pod that should run does, and no other is there, for the API server as for the runtime.
async fn assert_rest(cluster: &SimulatedCluster, schedule: &Schedule) {
    let pods = pods(cluster);
    let text = |pod: &Value, field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
    let found: BTreeSet<String> = pods.iter().map(|pod| text(pod, "name")).collect();
    let wanted: BTreeSet<String> = schedule.wanted.keys().cloned().collect();
    assert_eq!(found, wanted, "{:?}", schedule.steps);
    let uids: BTreeSet<String> = pods.iter().map(|pod| text(pod, "uid")).collect();
    let in_runtime = cluster.runtime.pods().await.unwrap();
    let in_runtime: BTreeSet<String> = in_runtime.keys().map(ToString::to_string).collect();
    assert!(in_runtime.is_subset(&uids), "{in_runtime:?}, {uids:?}");
    for pod in &pods {
        let kind = schedule.wanted[&text(pod, "name")];
        let status = &pod["status"];
        assert_eq!(status["phase"], kind.phase(), "{kind:?}: {pod:#}");
        let containers = status["containerStatuses"].as_array().unwrap();
        let ready = containers
            .iter()
            .all(|container| container["ready"] == true);
        assert!(ready || kind == PodKind::Job, "{kind:?}: {pod:#}");
    }
}

fn count(trace: &[String], part: &str) -> usize {
    trace.iter().filter(|line| line.contains(part)).count()
}

#[test]
fn a_seed_repeats_ten_minutes_of_the_node_to_the_line_and_another_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("node");
    let seed = seed();
    let first = run(&folder, seed, FAULTS);
    let again = run(&folder, seed, FAULTS);
    if let Some(difference) = difference(&first, &again) {
        panic!("seed {seed} does not repeat itself: {difference}");
    }
    let other = run(&folder, seed + 1, Duration::from_secs(30));
    let common = other.len() / 2;
    assert_ne!(first[..common], other[..common]);
    assert!(first.len() > 8_000, "{} lines", first.len());
    for (step, _) in STEPS {
        let made = format!(" schedule {step:?}");
        assert!(count(&first, &made) > 0, "{step:?} was not made");
    }
    for (part, least) in [
        (" cri RunPodSandbox ", 20),
        (" cri StartContainer ", 20),
        (": a scripted fault", 5),
        ("/status?", 50),
        (" answer 50", 1),
    ] {
        let found = count(&first, part);
        assert!(found >= least, "{part}: {found}");
    }
}
