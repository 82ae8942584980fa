//! Invariants of the admin socket.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::Duration;

use clients::runtime::RuntimeClient;
use jiff::Timestamp;
use kernel::testing::{Inbox, inbox};
use kernel::{ChildSpec, Intensity, Strategy, error_chain, mailbox, system};
use plugin_host::{LaunchMethod, ServiceKind};
use pods::runtime::handover::{PodConsent, SwapPlan};
use resources::stats::{self, SummaryProvider};
use serde_json::{Value, json};
use state::events::{EventBroadcaster, EventType, InvolvedObject, Recorder};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::*;
use crate::endpoints::MAILBOX;
use crate::endpoints::healthz::NodeHealth;
use crate::endpoints::node_api;
use crate::endpoints::tests::{directory_of, pod, statuses_of};
use crate::settings::AgentSettings;
use crate::settings::testing::load;

struct Rig {
    folder: TempDir,
    root: Supervisor,
    recorder: Recorder,
    host: Inbox<plugin::Msg>,
    swaps: Inbox<handover::Msg>,
}

impl Rig {
    async fn start(faults: FaultInjection) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (events, port) = mailbox(64);
        root.spawn(
            ChildSpec::permanent("events"),
            port,
            EventBroadcaster::default,
        );
        let pod_manager = directory_of(vec![pod("a"), pod("b")]);
        let (host, orders) = inbox(8);
        let (handover, swaps) = inbox(8);
        let declared = |path: &str| {
            Declaration::new(
                "runtime",
                ServiceKind::Runtime,
                LaunchMethod::External {
                    endpoint: path.into(),
                },
            )
        };
        let plugins = Plugins {
            group: root.supervisor("plugins", Strategy::OneForOne, Intensity::UNLIMITED),
            hosts: [("runtime".to_owned(), host)].into(),
            choices: [
                ("containerd".to_owned(), declared("/c")),
                ("fake".to_owned(), declared("/f")),
            ]
            .into(),
        };
        let statuses = statuses_of(&root, "a", &pod_manager).await;
        let recorder = Recorder::new(events.clone());
        let line = plugin_host::PluginClient::new("runtime");
        let runtime = RuntimeClient::new(line, Duration::from_millis(50));
        let checkpoints = ContainerCheckpoints::new(runtime.clone(), folder.path());
        let peers = AdminPeers {
            root: root.clone(),
            plugins,
            handover,
            pod_manager,
            images: inbox(4).0,
            runtime: runtime.clone(),
            volumes: inbox(4).0,
            statuses,
            events,
            assignments: Assignments::default(),
            claims: watch::channel(Arc::default()).1,
            checkpoints,
            faults,
        };
        let policy = AgentSettings::new(Box::new(load("--node-ip=127.0.0.1"))).serving;
        let api = api_of(&peers, runtime);
        let rig = Rig {
            folder,
            root,
            recorder,
            host: orders,
            swaps,
        };
        let (_, port) = mailbox(MAILBOX);
        let path = rig.socket();
        rig.root
            .spawn(ChildSpec::permanent("admin"), port, move || {
                Admin::new(path.clone(), peers.clone(), (api.clone(), &policy))
            });
        // Answers after the start.
        rig.root.tree().await;
        rig
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("oxlet/admin.sock")
    }

    async fn ask(&self, line: &str) -> (u16, Value) {
        ask(&self.socket(), line).await
    }

    fn record(&self, message: &str) {
        self.recorder.record(
            Timestamp::UNIX_EPOCH,
            EventType::Normal,
            InvolvedObject::default(),
            "Tested",
            message.into(),
        );
    }
}

/// The API of a node whose runtime does not answer.
fn api_of(peers: &AdminPeers, runtime: RuntimeClient) -> Rc<NodeApi> {
    let (root, pod_manager) = (&peers.root, &peers.pod_manager);
    let config = load("--node-ip=127.0.0.1");
    let mut kubelet = config.kubelet.clone();
    let header = (
        "Authorization".to_owned(),
        vec!["Bearer planted".to_owned()],
    );
    kubelet.static_pod_url_header.0.extend([header]);
    let settings = AgentSettings::new(Box::new(config));
    let summaries = SummaryProvider::new(stats::Peers {
        root: root.clone(),
        runtime: runtime.clone(),
        pod_manager: pod_manager.clone(),
        volumes: inbox(4).0,
        rules: settings.rules(),
        groups: settings.system_groups(),
        source: settings.stats_source(),
    });
    Rc::new(NodeApi(node_api::NodeApiPeers {
        runtime,
        pod_manager: pod_manager.clone(),
        statuses: peers.statuses.clone(),
        health: NodeHealth::new(pod_manager.clone(), mailbox(1).0, root.clone()),
        checkpoints: peers.checkpoints.clone(),
        console: Console::new(peers.clone()),
        summaries,
        constant: Rc::new(node_api::AgentDescription {
            config: node_api::configz(&kubelet),
            flags: node_api::flags(&settings.config.flags),
            version: settings.config.version.clone(),
            started: kernel::wall(),
        }),
    }))
}

async fn ask(socket: &Path, line: &str) -> (u16, Value) {
    let (code, body) = asked(socket, line).await;
    (code, serde_json::from_str(&body).unwrap())
}

async fn asked(socket: &Path, line: &str) -> (u16, String) {
    let (head, body) = exchange(socket, &format!("{line} HTTP/1.0\r\n\r\n")).await;
    (head[9..12].parse().unwrap(), body)
}

/// Sends a request in HTTP/1.0; returns the answer's head and body.
async fn exchange(socket: &Path, request: &str) -> (String, String) {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn rig(faults: FaultInjection, test: impl AsyncFnOnce(Rig)) {
    system::run(async move { test(Rig::start(faults).await).await }).unwrap();
}

#[test]
fn socket_is_for_its_owner_alone() {
    rig(FaultInjection::Forbidden, async |rig| {
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&rig.socket()), 0o600);
        assert_eq!(mode(rig.socket().parent().unwrap()), 0o700);
        rig.root.shutdown().await;
        assert!(!rig.socket().exists());
    });
}

#[test]
fn every_question_has_an_answer() {
    rig(FaultInjection::Forbidden, async |rig| {
        rig.record("one");
        let (status, version) = rig.ask("GET /version").await;
        assert_eq!(
            (status, &version["version"]),
            (200, &env!("CARGO_PKG_VERSION").into())
        );
        let (_, tree) = rig.ask("GET /tree").await;
        let tree: kernel::TreeNode = serde_json::from_value(tree).unwrap();
        assert!(tree.find("test/admin").is_some() && tree.find("test/plugins").is_some());
        assert_eq!(rig.ask("GET /plugins").await, (200, json!([])));
        let (_, pods) = rig.ask("GET /pods").await;
        let pods: Vec<PodRow> = serde_json::from_value(pods).unwrap();
        let shown: Vec<_> = pods
            .iter()
            .map(|row| (row.name.as_str(), row.phase.as_str(), row.containers))
            .collect();
        let expected = [
            ("a", "Running", 1),
            ("b", "Pending", 1),
            ("/m/bad.yaml", "", 0),
        ];
        assert_eq!(shown, expected);
        assert_eq!(pods[2].status, "InvalidManifest");
        let (_, events) = rig.ask("GET /events").await;
        assert_eq!(events[0]["message"], "one");
    });
}

#[test]
fn a_manifest_that_does_not_run_is_explained_by_its_path_or_its_name() {
    rig(FaultInjection::Forbidden, async |rig| {
        for name in ["%2Fm%2Fbad.yaml", "bad.yaml"] {
            let (status, why) = rig.ask(&format!("GET /why/{name}")).await;
            assert_eq!(
                (status, &why["pod"]),
                (200, &"/m/bad.yaml".into()),
                "{name}"
            );
            let line = &why["lines"][0]["why"];
            assert_eq!(line["reason"], "InvalidManifest");
            assert_eq!(line["message"], "spec.imge: unknown field");
        }
        let (status, error) = rig.ask("GET /why/bad").await;
        assert_eq!(status, 404);
        assert!(
            error.to_string().contains("do not run: /m/bad.yaml"),
            "{error}"
        );
    });
}

#[test]
fn processes_are_told_of_where_the_runtime_says_nothing_of_pods() {
    rig(FaultInjection::Forbidden, async |rig| {
        let (status, view) = rig.ask("GET /top?age=1").await;
        assert_eq!(status, 200);
        let view: TopView = serde_json::from_value(view).unwrap();
        let agent = &view.processes[0];
        assert_eq!(
            (agent.kind.as_str(), agent.pid),
            ("agent", Some(std::process::id()))
        );
        assert!(agent.rss_bytes > Some(0) && agent.threads > Some(0) && agent.began > Some(0));
        assert!(view.pods.is_empty());
        assert!(view.missing[0].starts_with("pods: the runtime"), "{view:?}");
        assert_eq!(rig.ask("GET /top?age=0").await.0, 400);
    });
}

#[test]
fn configuration_is_told_without_its_headers_values() {
    rig(FaultInjection::Forbidden, async |rig| {
        let (status, config) = rig.ask("GET /config").await;
        assert_eq!(status, 200);
        assert!(config["kubeletconfig"]["staticPodURLHeader"]["Authorization"].is_array());
        assert!(config["flags"].is_object());
        assert!(!config.to_string().contains("planted"), "{config:#}");
    });
}

#[test]
fn metrics_are_text() {
    rig(FaultInjection::Forbidden, async |rig| {
        let (status, text) = asked(&rig.socket(), "GET /metrics/agent").await;
        assert_eq!(status, 200);
        assert!(text.contains("# HELP"), "{text}");
        assert_eq!(rig.ask("GET /metrics/nothing").await.0, 404);
    });
}

#[test]
fn refusals_are_sentences_with_the_right_code() {
    rig(FaultInjection::Forbidden, async |rig| {
        let cases = [
            (
                "GET /nothing",
                404,
                "there is nothing at /nothing, expected one of /tree",
            ),
            ("GET /", 404, "there is nothing at /"),
            ("POST /tree", 405, "expected GET for this path"),
            (
                "GET /plugins/runtime/restart",
                405,
                "expected POST for this path",
            ),
            (
                "GET /events?follow=maybe",
                400,
                "query parameter follow: found \"maybe\", expected true or false",
            ),
            (
                "GET /why/nobody",
                404,
                "there is no pod nobody on this node",
            ),
            (
                "GET /why/default/no%62ody",
                404,
                "there is no pod default/nobody on this node",
            ),
            (
                "POST /plugins/nope/restart",
                404,
                "there is no plugin nope, expected one of runtime",
            ),
            (
                "POST /plugins/runtime/swap",
                400,
                "query parameter to: found \"\", expected the name of a declared plugin",
            ),
            (
                "POST /plugins/runtime/swap?to=nope",
                404,
                "there is no plugin nope, expected one of containerd, fake",
            ),
            ("GET /checkpoint/a/c", 405, "expected POST for this path"),
            (
                "POST /checkpoint/a/c?timeout=1&timeout=soon",
                400,
                "query parameter timeout: found \"soon\", expected a number of seconds",
            ),
            (
                "POST /checkpoint/nobody/c",
                404,
                "there is no pod nobody on this node",
            ),
            (
                "POST /checkpoint/default/a/nobody",
                404,
                "container nobody does not exist",
            ),
            (
                "POST /checkpoint/uid-a/c?timeout=1",
                500,
                "the runtime made no checkpoint of container c: ListPodSandbox: no answer from the runtime",
            ),
            (
                "POST /faults?path=test/events&fault=panic",
                403,
                "started with OXLET_FAULT_INJECTION=1",
            ),
        ];
        for (line, status, words) in cases {
            let (found, body) = rig.ask(line).await;
            let sentence = body["error"].as_str().unwrap_or_default();
            assert!(
                found == status && sentence.contains(words),
                "{line}: {found} {body}"
            );
        }
    });
}

#[test]
fn images_of_a_runtime_that_does_not_answer_are_refused_in_a_sentence() {
    rig(FaultInjection::Forbidden, async |rig| {
        let (status, body) = rig.ask("GET /images/present").await;
        let sentence = body["error"].as_str().unwrap_or_default();
        let words = "it cannot be told now: ListImages: no answer from the runtime";
        assert!(status == 503 && sentence.contains(words), "{status} {body}");
    });
}

#[test]
fn restarts_are_handed_to_the_host_and_swaps_to_the_hand_over() {
    rig(FaultInjection::Forbidden, async |mut rig| {
        let socket = rig.socket();
        let soon = Duration::from_secs(5);
        let host = async {
            match rig.host.next(soon).await {
                Some(plugin::Msg::Restart { reply }) => reply.send(Ok(7)),
                other => panic!("{other:?}"),
            }
            match rig.swaps.next(soon).await {
                Some(handover::Msg::Plan { to, reply }) => {
                    assert_eq!(to, "fake");
                    let pods = Vec::new();
                    reply.send(Ok(SwapPlan {
                        from: "containerd".into(),
                        to,
                        is_handover: true,
                        pods,
                    }));
                }
                other => panic!("{other:?}"),
            }
            for expected in [PodConsent::LeavePods, PodConsent::EndPods] {
                match rig.swaps.next(soon).await {
                    Some(handover::Msg::Swap { to, consent, reply }) => {
                        assert_eq!((to.as_str(), consent), ("fake", expected));
                        let why = plugin::HostError::NotReady {
                            plugin: "runtime".into(),
                            why: "it is a test".into(),
                        };
                        reply.send(Err(why.into()));
                    }
                    other => panic!("{other:?}"),
                }
            }
        };
        let operator = async {
            let done = ask(&socket, "POST /plugins/runtime/restart").await;
            assert_eq!(done, (200, json!({ "plugin": "runtime", "generation": 7 })));
            let (status, plan) = ask(&socket, "GET /plugins/runtime/swap?to=fake").await;
            assert_eq!((status, &plan["is_handover"]), (200, &json!(true)));
            for consent in ["", "&endPods=true"] {
                let line = format!("POST /plugins/runtime/swap?to=fake{consent}");
                let (status, refused) = ask(&socket, &line).await;
                assert_eq!(status, 502);
                let why = refused["error"].as_str().unwrap();
                assert!(why.contains("did not get ready: it is a test"), "{why}");
            }
        };
        tokio::join!(host, operator);
    });
}

#[test]
fn events_are_followed_as_lines_until_the_asker_leaves() {
    rig(FaultInjection::Forbidden, async |rig| {
        rig.record("before");
        let mut stream = UnixStream::connect(rig.socket()).await.unwrap();
        stream
            .write_all(b"GET /events?follow=true HTTP/1.0\r\n\r\n")
            .await
            .unwrap();
        let mut lines = BufReader::new(stream).lines();
        while !lines.next_line().await.unwrap().unwrap().is_empty() {}
        for message in ["one", "two"] {
            rig.record(message);
            let event: Value =
                serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
            assert_eq!(event["message"], message);
        }
        assert_eq!(
            rig.ask("GET /version").await.0,
            200,
            "others are answered meanwhile"
        );
    });
}

#[test]
fn faults_reach_the_actor_where_they_are_allowed() {
    rig(FaultInjection::Allowed, async |rig| {
        assert_eq!(
            rig.ask("POST /faults?path=test/nobody&fault=panic").await.0,
            404
        );
        assert_eq!(
            rig.ask("POST /faults?path=test/events&fault=explode")
                .await
                .0,
            400
        );
        assert_eq!(
            rig.ask("POST /faults?path=test/events&fault=panic").await.0,
            200
        );
        rig.record("the message that finds it broken, or its successor");
        assert_eq!(rig.ask("GET /events").await.0, 200);
        assert_eq!(
            rig.root.tree().await.find("test/events").unwrap().restarts,
            1
        );
    });
}

#[test]
fn page_shows_what_oxctl_shows_and_runs_no_script_but_its_own() {
    rig(FaultInjection::Forbidden, async |rig| {
        let get = async |path: &str| {
            exchange(&rig.socket(), &format!("GET {path} HTTP/1.0\r\n\r\n")).await
        };
        for (path, kind) in [
            ("/console/", "text/html"),
            ("/console/page.css", "text/css"),
            ("/console/page.js", "text/javascript"),
        ] {
            let (head, body) = get(path).await;
            assert!(head.starts_with("HTTP/1.0 200"), "{path}: {head}");
            assert!(head.contains(&format!("content-type: {kind}")), "{head}");
            assert_eq!(head.matches("content-type: ").count(), 1, "{head}");
            assert!(
                head.contains("default-src 'none'; script-src 'self'"),
                "{head}"
            );
            for outside in ["http:", "https:", "innerHTML", "eval("] {
                assert!(!body.contains(outside), "{path} has {outside}");
            }
        }
        for view in ["version", "events"] {
            let (plain, shown) = (
                get(&format!("/{view}")).await,
                get(&format!("/console/{view}")).await,
            );
            assert!(shown.0.starts_with("HTTP/1.0 200"), "{view}: {}", shown.0);
            assert_eq!(plain.1, shown.1, "{view}");
        }
        let (status, refused) = rig.ask("GET /console/nope").await;
        assert_eq!(status, 404);
        let sentence = refused["error"].as_str().unwrap();
        assert!(
            sentence.starts_with("there is nothing at /console/nope"),
            "{sentence}"
        );
        assert_eq!(rig.ask("POST /console/").await.0, 405);
        let (_, log) = get("/containerLogs/default/a/nope").await;
        assert_eq!(
            log, r#"container "nope" not found in pod "a""#,
            "upstream's words"
        );
    });
}

/// `ssh -L 8080:/run/oxlet/admin.sock` makes the socket an address that any page may have a browser call.
#[test]
fn foreign_pages_read_nothing_and_change_nothing_through_a_forwarded_socket() {
    rig(FaultInjection::Allowed, async |rig| {
        let ask = async |line: &str, header: &str| {
            let request = format!("{line} HTTP/1.0\r\n{header}\r\n\r\n");
            let (head, body) = exchange(&rig.socket(), &request).await;
            (head[9..12].to_owned(), body)
        };
        for host in [
            "localhost:8080",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::1]",
            "oxlet",
        ] {
            let (status, _) = ask("GET /version", &format!("Host: {host}")).await;
            assert_eq!(status, "200", "{host}");
        }
        for host in ["evil.example:8080", "10.0.0.1", "localhost.evil.example"] {
            let (status, body) = ask("GET /version", &format!("Host: {host}")).await;
            assert_eq!(status, "403", "{host}");
            assert!(body.contains("expected localhost"), "{body}");
        }
        let break_it = "POST /faults?path=test/events&fault=panic";
        let (status, body) = ask(break_it, "Host: localhost:8080\r\nOrigin: null").await;
        assert_eq!(status, "403");
        assert!(body.contains("change nothing"), "{body}");
        assert_eq!(
            rig.root.tree().await.find("test/events").unwrap().restarts,
            0
        );
    });
}

#[test]
fn broken_admin_server_gets_its_own_socket_back() {
    rig(FaultInjection::Allowed, async |rig| {
        assert_eq!(
            rig.ask("POST /faults?path=test/admin&fault=panic").await.0,
            200
        );
        // The next message of the actor is the request for its snapshot, on which it panics.
        rig.root.tree().await;
        rig.root.tree().await;
        assert_eq!(rig.ask("GET /version").await.0, 200);
    });
}

async fn binds(path: &Path) -> Result<tokio::net::UnixListener, listen::ListenError> {
    listen::unix(path).await
}

#[test]
fn socket_of_a_dead_agent_is_replaced_and_anything_else_is_left_alone() {
    let run = system::run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = binds(&path).await.unwrap();
        // A socket that the agent itself left is no other agent's.
        drop(binds(&path).await.unwrap());
        drop(listener);
        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        symlink(&file, folder.path().join("link")).unwrap();
        for name in ["file", "link"] {
            let error = binds(&folder.path().join(name)).await.unwrap_err();
            assert!(
                error_chain(&error).contains("expected a socket or nothing"),
                "{error}"
            );
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    });
    run.unwrap();
}
