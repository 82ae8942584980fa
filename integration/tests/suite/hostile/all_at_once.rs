//! A node on containerd under every attack at once: from the network, from pods' files, from names that nobody answers for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration::agent::Node;
use integration::cluster::Cluster;
use integration::containerd::Containerd;
use integration::tls;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, interval, sleep};

use super::serving::{Attacked, CONNECTIONS, flood, request, windowless_request};
use crate::suite::node_rig::CONVERGENCE_TIMEOUT;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";
/// In seconds; the agent renews its lease in a quarter of this.
const LEASE_DURATION: u64 = 12;
const RENEWAL: Duration = Duration::from_secs(LEASE_DURATION / 4);
const ATTACK: Duration = Duration::from_secs(12);
const PROBE_PERIOD: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_millis(200);
const INVENTED_A_SECOND: u64 = 20;

fn pod(name: &str, command: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "app",
                "image": "localhost/oxlet/busybox:1",
                "command": ["sh", "-c", command],
            }],
        },
    })
}

/// A pod whose probe comes to this port of the test.
fn healthy(port: u16) -> Value {
    let mut healthy = pod("healthy", "sleep 1000");
    healthy["spec"]["containers"][0]["livenessProbe"] = json!({
        "httpGet": { "host": "127.0.0.1", "port": port },
        "periodSeconds": 1,
        "timeoutSeconds": 5,
    });
    healthy
}

/// Its own files are as large as the machine, each time that it starts.
fn bloated(number: usize) -> Value {
    let command = "truncate -s 6G /etc/hosts; truncate -s 6G /dev/termination-log; exit 1";
    pod(&format!("bloated-{number}"), command)
}

/// Its hook asks for a host that nobody knows.
fn lost(number: usize) -> Value {
    let mut lost = pod(&format!("lost-{number}"), "sleep 1000");
    let host = format!("nobody-{number}.invalid");
    lost["spec"]["containers"][0]["lifecycle"] =
        json!({ "postStart": { "httpGet": { "host": host, "port": 80 } } });
    lost
}

/// Answers probes and notes when each came.
pub(super) async fn answer(listener: TcpListener, visits: Arc<Mutex<Vec<Instant>>>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        visits.lock().unwrap().push(Instant::now());
        // What is closed unread is reset.
        drop(stream.read(&mut [0; 1024]).await);
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        drop(stream.write_all(head).await);
    }
}

/// Notes when the lease was seen renewed.
async fn follow_lease(cluster: &Cluster, renewals: &Mutex<Vec<Instant>>) {
    let mut last = Value::Null;
    loop {
        let lease = cluster.server.get(LEASE).unwrap();
        if lease["spec"]["renewTime"] != last {
            last = lease["spec"]["renewTime"].clone();
            renewals.lock().unwrap().push(Instant::now());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn invent_tokens(port: u16) {
    let mut ticks = interval(Duration::from_millis(1000 / INVENTED_A_SECOND));
    let mut held = Vec::new();
    for number in 0.. {
        ticks.tick().await;
        if let Ok(mut stream) = tls::connect(port, None).await {
            let head = request(&format!("invented-{number}"));
            drop(stream.write_all(&head).await);
            held.push(stream);
        }
    }
}

/// From a pod's creation to its Running in the API: the median of three.
async fn start_time(cluster: &Cluster, name: &str) -> Duration {
    let mut took = Vec::new();
    for number in 0..3 {
        let name = format!("{name}-{number}");
        let began = Instant::now();
        cluster.apply(&pod(&name, "sleep 1000")).unwrap();
        let running = |pod: &Value| pod["status"]["phase"] == "Running";
        let waited = cluster.until_pod(&name, CONVERGENCE_TIMEOUT, running);
        waited.await.unwrap();
        took.push(began.elapsed());
    }
    took.sort();
    took[1]
}

pub(super) fn longest_gap(times: &[Instant]) -> Duration {
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap_or_default()
}

#[tokio::test]
async fn a_node_keeps_its_lease_its_probes_and_its_starts_under_every_attack_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let config = json!({ "cgroupRoot": rig.cgroup(), "nodeLeaseDurationSeconds": LEASE_DURATION });
    let attacked = Attacked::on(Node::builder().runtime(&rig).config(&config)).await;
    let (cluster, port) = (&attacked.cluster, attacked.port());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let probed = listener.local_addr().unwrap().port();
    let (visits, renewals) = (Arc::default(), Mutex::default());
    let answering = tokio::spawn(answer(listener, Arc::clone(&visits)));
    cluster.apply(&healthy(probed)).unwrap();
    let quiet = start_time(cluster, "quiet").await;

    for number in 0..4 {
        cluster.apply(&bloated(number)).unwrap();
        cluster.apply(&lost(number)).unwrap();
    }
    let mut windowless = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = tls::connect_http2(port).await.unwrap();
        drop(stream.write_all(&windowless_request()).await);
        windowless.push(stream);
    }
    visits.lock().unwrap().clear();
    let attacks = async {
        tokio::join!(flood(port, ATTACK), invent_tokens(port));
    };
    let measured = async {
        let started = start_time(cluster, "attacked").await;
        sleep(ATTACK).await;
        started
    };
    let started = tokio::select! {
        () = attacks => unreachable!("tokens are invented for ever"),
        () = follow_lease(cluster, &renewals) => unreachable!("the lease is followed for ever"),
        started = measured => started,
    };
    answering.abort();

    let visits = std::mem::take(&mut *visits.lock().unwrap());
    let gaps: Vec<Duration> = visits.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let late = gaps
        .iter()
        .filter(|gap| **gap > PROBE_PERIOD + LATE)
        .count();
    let (worst, lease) = (longest_gap(&visits), longest_gap(&renewals.lock().unwrap()));
    let memory = attacked.anonymous_memory();
    println!(
        "a pod starts after {started:?} (quiet {quiet:?}); of {} probes {late} late, the longest gap {worst:?}; \
         the lease at most {lease:?} old; {memory} MiB",
        gaps.len()
    );
    assert!(
        gaps.len() >= 10 && late * 10 <= gaps.len(),
        "{late} late: {gaps:?}"
    );
    assert!(lease < RENEWAL * 3 / 2, "{lease:?}");
    // The attackers and a debug build share the machine's cores.
    assert!(
        started < quiet * 2 + Duration::from_secs(1),
        "{started:?}, quiet {quiet:?}"
    );
    attacked.assert_serves("all at once").await;
    drop(windowless);
}
