//! Invariants of the servers on TCP: their answers, and that no client's bytes harm them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use kernel::testing::inbox;
use kernel::{Actor, Addr, ChildSpec, Intensity, Supervisor, mailbox, system};
use logic_api::types::PodUid;
use pods::pod_manager;
use serde_json::Value;
use state::status::{self, StatusManager};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use serving::server::HttpServer;

use super::healthz::NodeHealth;
use super::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(5);
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A pod manager that answers with these pods until the test ends.
pub(super) fn directory_of(pods: Vec<Arc<Pod>>) -> Addr<pod_manager::Msg> {
    let (addr, mut asked) = inbox(64);
    tokio::task::spawn_local(async move {
        while let Some(msg) = asked.next(Duration::from_secs(3600)).await {
            if let pod_manager::Msg::Query(pod_manager::PodQuery::All { reply }) = msg {
                reply.send(pods.clone());
            } else if let pod_manager::Msg::Query(pod_manager::PodQuery::Worker { reply, .. }) = msg
            {
                reply.send(pod_manager::PodLookup::Nobody);
            } else if let pod_manager::Msg::Query(pod_manager::PodQuery::Refused { reply }) = msg {
                let problems = vec!["spec.imge: unknown field".to_owned()];
                reply.send([("/m/bad.yaml".to_owned(), problems)].into());
            }
        }
    });
    addr
}

pub(super) fn pod(name: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.into());
    pod.metadata.namespace = Some("default".into());
    pod.metadata.uid = Some(format!("uid-{name}"));
    let container = Container {
        name: "c".into(),
        ..Container::default()
    };
    pod.spec = Some(PodSpec {
        containers: vec![container],
        ..PodSpec::default()
    });
    pod.status = Some(PodStatus {
        phase: Some("Pending".into()),
        ..PodStatus::default()
    });
    Arc::new(pod)
}

/// A status manager with a status for the pod of this name.
pub(super) async fn statuses_of(
    root: &Supervisor,
    name: &str,
    pod_manager: &Addr<pod_manager::Msg>,
) -> Addr<status::Msg> {
    let (addr, port) = mailbox(8);
    let told = kernel::Recipient::new(pod_manager.clone(), |status::PodResync| {
        pod_manager::Msg::Resync
    });
    root.spawn(ChildSpec::permanent("status"), port, move || {
        StatusManager::new(told.clone())
    });
    let status = PodStatus {
        phase: Some("Running".into()),
        ..PodStatus::default()
    };
    let uid = PodUid::from(format!("uid-{name}"));
    addr.tell(status::Msg::Changed {
        uid,
        status: Arc::new(status),
    })
    .unwrap();
    addr
}

fn spawn<A: Actor<Msg = Msg>>(root: &Supervisor, id: &str, make: impl FnMut() -> A + 'static) {
    let (_, port) = mailbox(MAILBOX);
    root.spawn(ChildSpec::permanent(id), port, make);
}

async fn snapshot(root: &Supervisor, id: &str) -> Value {
    let tree = root.tree().await;
    tree.find(&format!("test/{id}")).unwrap().snapshot.clone()
}

async fn address(root: &Supervisor, id: &str) -> SocketAddr {
    snapshot(root, id).await["address"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// The whole answer to a request in HTTP/1.0, which is never sent in chunks.
async fn ask(address: SocketAddr, line: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{line} HTTP/1.0\r\nhost: x\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn root() -> Supervisor {
    Supervisor::root("test", Intensity::UNLIMITED)
}

fn healthz(pod_manager: Addr<pod_manager::Msg>) -> Supervisor {
    let root = root();
    let health = NodeHealth::new(pod_manager, kernel::mailbox(1).0, root.clone());
    spawn(&root, "healthz", move || {
        HttpServer::new(ANY, health.clone())
    });
    root
}

#[test]
fn healthy_node_says_ok_in_upstreams_words() {
    let run = system::run(async {
        let root = healthz(directory_of(Vec::new()));
        let address = address(&root, "healthz").await;
        let all = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n";
        let without = "[+]ping excluded: ok\n[+]log ok\n[+]syncloop ok\n\
                       warn: some health checks cannot be excluded: no matches for \"\",\"any\",\"nope\"\nhealthz check passed\n";
        let cases = [
            ("GET /healthz", 200, "ok"),
            ("GET /healthz/", 404, "404 page not found\n"),
            ("GET /healthz?verbose", 200, all),
            (
                "GET /healthz?verbose=1&exclude=ping&exclude=nope&exclude=any&exclude",
                200,
                without,
            ),
            ("GET /healthz/ping", 200, "ok"),
            ("GET /healthz/log", 200, "ok"),
            ("GET /healthz/syncloop", 200, "ok"),
            ("GET /healthz/managers", 200, "ok"),
            ("GET /healthz/nope", 404, "404 page not found\n"),
            ("GET /healthzz", 404, "404 page not found\n"),
            ("GET /", 404, "404 page not found\n"),
            ("HEAD /healthz", 200, ""),
            ("POST /healthz", 200, "ok"),
        ];
        for (line, status, body) in cases {
            assert_eq!(
                ask(address, line).await,
                (status, body.to_owned()),
                "{line}"
            );
        }
        assert_eq!(snapshot(&root, "healthz").await["requests"], cases.len());
    });
    run.unwrap();
}

#[test]
fn silent_directory_is_the_failing_check() {
    kernel::testing::run_paused(|| async {
        let (pod_manager, _nobody_reads) = inbox(64);
        let root = healthz(pod_manager);
        let address = address(&root, "healthz").await;
        let (status, body) = ask(address, "GET /healthz").await;
        assert_eq!(status, 500);
        assert_eq!(
            body,
            "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"
        );
        let (status, body) = ask(address, "GET /healthz/syncloop").await;
        assert_eq!(
            (status, body.as_str()),
            (
                500,
                "internal server error: the pod manager does not answer: no answer in time\n"
            )
        );
        assert_eq!(ask(address, "GET /healthz/ping").await.0, 200);
    });
}

#[test]
fn garbage_and_impatient_clients_hurt_nobody() {
    let run = system::run(async {
        let root = healthz(directory_of(Vec::new()));
        let address = address(&root, "healthz").await;
        let long_head = format!(
            "GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n",
            "y".repeat(1 << 20)
        )
        .into_bytes();
        let many_headers =
            format!("GET /healthz HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5000)).into_bytes();
        let mut kept = Vec::new();
        for bytes in [
            &b"\0\xff\x16\x03\x01garbage\r\n\r\n"[..],
            b"",
            b"GET",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            &long_head,
            &many_headers,
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // The server may have closed the connection before it read everything.
            drop(stream.write_all(bytes).await);
            kept.push(stream);
            assert_eq!(ask(address, "GET /healthz").await, (200, "ok".to_owned()));
        }
        drop(kept);
        assert_eq!(root.tree().await.find("test/healthz").unwrap().restarts, 0);
    });
    run.unwrap();
}

#[test]
fn idle_clients_give_their_place_to_others() {
    kernel::testing::run_paused(|| async {
        let root = healthz(directory_of(Vec::new()));
        let address = address(&root, "healthz").await;
        let mut idle = Vec::new();
        for _ in 0..64 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        assert_eq!(ask(address, "GET /healthz").await, (200, "ok".to_owned()));
    });
}

#[test]
fn taken_port_is_named_and_tried_again() {
    let run = system::run(async {
        let taken = TcpListener::bind(ANY).await.unwrap();
        let address = taken.local_addr().unwrap();
        let root = root();
        let health = NodeHealth::new(directory_of(Vec::new()), kernel::mailbox(1).0, root.clone());
        spawn(&root, "healthz", move || {
            HttpServer::new(address, health.clone())
        });
        kernel::testing::pass(Duration::from_millis(300)).await;
        let exit = root
            .tree()
            .await
            .find("test/healthz")
            .unwrap()
            .last_exit
            .clone()
            .unwrap();
        assert!(
            exit.contains(&format!("cannot listen on {address}")),
            "{exit}"
        );
        drop(taken);
        let answered = async {
            while TcpStream::connect(address).await.is_err() {
                kernel::testing::pass(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, answered).await.unwrap();
        assert_eq!(ask(address, "GET /healthz").await.0, 200);
    });
    run.unwrap();
}
