//! What the source sends to its subscribers.

mod api;
mod gates;
mod outage;

use std::sync::Arc;
use std::time::Duration;

use api_client::ApiClient;
use k8s_openapi::api::core::v1::Pod;
use kernel::testing::{Inbox, inbox};
use kernel::{Addr, ChildSpec, Intensity, Recipient, Supervisor};
use logic_pods::api::mirrors::StaticPodSet;
use serde_json::{Value, json};

use super::{ApiPods, KnownStaticPods, MAILBOX, Msg, PodSubscribers};

const NODE: &str = "worker-1";
const SOON: Duration = Duration::from_secs(5);
/// Of 20 ms each.
const ATTEMPTS: usize = 3_000;

/// A set as one of the neighbours gets it.
#[derive(Debug, strum::IntoStaticStr)]
pub(super) enum Set {
    Told(Vec<Arc<Pod>>),
}

/// The source and its neighbours.
struct PodsRig {
    pods: Addr<Msg>,
    directory: Inbox<Set>,
    remembered: Inbox<Set>,
    objects: Inbox<Set>,
    alone: Inbox<Set>,
    statuses: Inbox<Set>,
    supervisor: Supervisor,
}

fn neighbour() -> (Recipient<Vec<Arc<Pod>>>, Inbox<Set>) {
    let (addr, inbox) = inbox(64);
    (Recipient::new(addr, Set::Told), inbox)
}

fn begin(client: ApiClient, remembered: &[Arc<Pod>]) -> PodsRig {
    let (to_directory, directory) = neighbour();
    let (to_remembered, of_checkpoint) = neighbour();
    let (to_objects, objects) = neighbour();
    let (to_alone, alone) = neighbour();
    let (to_statuses, statuses) = neighbour();
    let told = PodSubscribers {
        directory: to_directory,
        remembered: to_remembered,
        objects: to_objects,
        alone: to_alone,
        statuses: to_statuses,
        kept: KnownStaticPods::default(),
    };
    let (pods, port) = kernel::mailbox(MAILBOX);
    let supervisor = Supervisor::root("test", Intensity::UNLIMITED);
    let remembered = remembered.to_vec();
    supervisor.spawn(ChildSpec::permanent("pods"), port, move || {
        ApiPods::new(
            client.clone(),
            NODE.into(),
            remembered.clone(),
            told.clone(),
        )
    });
    PodsRig {
        pods,
        directory,
        remembered: of_checkpoint,
        objects,
        alone,
        statuses,
        supervisor,
    }
}

impl PodsRig {
    /// Lets every pod that is known begin.
    fn supply(&self, pods: &[Arc<Pod>]) {
        use logic_api::pod::PodView;
        let uids = pods.iter().map(|pod| pod.uid()).collect();
        self.pods.tell(Msg::Supplied { uids }).unwrap();
    }

    /// The next set that the pod manager gets; whatever waits is supplied.
    async fn run(&mut self) -> Vec<Arc<Pod>> {
        for _ in 0..ATTEMPTS {
            if let Some(Set::Told(pods)) = self.objects.drain().pop() {
                self.supply(&pods);
            }
            if let Some(pods) = next(&mut self.directory, Duration::from_millis(20)).await {
                return pods;
            }
        }
        panic!("the directory hears nothing");
    }

    fn nothing_for_the_directory(&mut self) -> bool {
        self.directory.drain().is_empty()
    }
}

async fn next(inbox: &mut Inbox<Set>, within: Duration) -> Option<Vec<Arc<Pod>>> {
    inbox.next(within).await.map(|Set::Told(pods)| pods)
}

/// Waits for a set that is as wanted.
async fn until(inbox: &mut Inbox<Set>, wanted: impl Fn(&[Arc<Pod>]) -> bool) -> Vec<Arc<Pod>> {
    loop {
        let pods = next(inbox, SOON).await.expect("it is told in time");
        if wanted(&pods) {
            return pods;
        }
    }
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter()
        .filter_map(|pod| pod.metadata.name.as_deref())
        .collect()
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "localhost/a:1"}]},
    })
}

/// A pod as the API keeps it.
fn kept(name: &str, version: u64) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["uid"] = format!("{name}-uid").into();
    pod["metadata"]["resourceVersion"] = version.to_string().into();
    pod
}

/// These static pods, none of which ends.
fn wanted(pods: Vec<Arc<Pod>>) -> Msg {
    Msg::Static(StaticPodSet {
        pods,
        ..StaticPodSet::default()
    })
}

fn typed(pod: Value) -> Pod {
    serde_json::from_value(pod).unwrap()
}
