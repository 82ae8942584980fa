//! The real process, killed at random moments under load: nothing that was answered is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::*;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::rig::{RuntimeClient, container_config, create, run, sandbox_config};

/// The answers that a caller got.
#[derive(Debug, Default)]
struct ProcessReport {
    sandboxes: BTreeMap<String, String>,
    /// Container ids, and the code that each of those that were started ends with.
    containers: BTreeMap<String, Option<i32>>,
    /// What a removal was asked for: it may be there or not.
    doubtful: BTreeSet<String>,
    removed: BTreeSet<String>,
}

struct PluginProcess(Child);

impl PluginProcess {
    fn start(home: &Path) -> PluginProcess {
        let child = Command::new(env!("CARGO_BIN_EXE_runtime-fake"))
            .args([
                "--socket",
                "cri.sock",
                "--dir",
                "state",
                "--configuration",
                "configuration.json",
            ])
            .current_dir(home)
            .stderr(Stdio::null())
            .spawn();
        PluginProcess(child.unwrap())
    }

    async fn client(&mut self, home: &Path) -> RuntimeClient {
        let channel = sdk::testing::connect(&home.join("cri.sock"));
        let mut runtime = RuntimeServiceClient::new(channel);
        let up = async { while runtime.version(VersionRequest::default()).await.is_err() {} };
        tokio::time::timeout(Duration::from_secs(60), up)
            .await
            .expect("the process serves");
        assert!(self.0.try_wait().unwrap().is_none());
        runtime
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn home(configuration: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("configuration.json"), configuration).unwrap();
    home
}

/// Makes pods until the process is gone, and notes every answer.
async fn load(
    mut runtime: RuntimeClient,
    worker: String,
    told: Arc<Mutex<ProcessReport>>,
    answers: UnboundedSender<()>,
) -> Result<(), tonic::Status> {
    let note = |what: &dyn Fn(&mut ProcessReport)| {
        what(&mut told.lock().unwrap());
        // The test listens only until it kills.
        answers.send(()).unwrap_or_default();
    };
    for n in 0.. {
        let name = format!("{worker}-{n}");
        let sandbox = run(&mut runtime, sandbox_config(&name)).await?;
        note(&|told| told.sandboxes.extend([(sandbox.clone(), name.clone())]));
        let code = n % 7;
        let config = container_config("c", &format!("exit {code}"));
        let id = create(&mut runtime, &sandbox, config).await?;
        note(&|told| told.containers.extend([(id.clone(), None)]));
        let start = StartContainerRequest {
            container_id: id.clone(),
        };
        runtime.start_container(start).await?;
        note(&|told| told.containers.extend([(id.clone(), Some(code))]));
        if n % 3 == 0 {
            told.lock()
                .unwrap()
                .doubtful
                .extend([sandbox.clone(), id.clone()]);
            let remove = RemovePodSandboxRequest {
                pod_sandbox_id: sandbox.clone(),
            };
            runtime.remove_pod_sandbox(remove).await?;
            note(&|told| told.removed.extend([sandbox.clone(), id.clone()]));
        }
    }
    Ok(())
}

async fn compare(runtime: &mut RuntimeClient, told: &ProcessReport) {
    let sandboxes = runtime
        .list_pod_sandbox(ListPodSandboxRequest::default())
        .await
        .unwrap()
        .into_inner()
        .items;
    let there: BTreeMap<_, _> = sandboxes
        .into_iter()
        .map(|item| (item.id, item.metadata.unwrap().name))
        .collect();
    for (id, name) in told
        .sandboxes
        .iter()
        .filter(|(id, _)| !told.doubtful.contains(*id))
    {
        assert_eq!(
            there.get(id),
            Some(name),
            "a sandbox that was answered is lost"
        );
    }
    let containers = runtime
        .list_containers(ListContainersRequest::default())
        .await
        .unwrap()
        .into_inner()
        .containers;
    let ids: BTreeSet<_> = containers
        .into_iter()
        .map(|container| container.id)
        .collect();
    assert!(
        told.removed
            .iter()
            .all(|id| !ids.contains(id) && !there.contains_key(id)),
        "what was removed is back"
    );
    for (id, code) in told
        .containers
        .iter()
        .filter(|(id, _)| !told.doubtful.contains(*id))
    {
        let request = ContainerStatusRequest {
            container_id: id.clone(),
            verbose: false,
        };
        let status = runtime
            .container_status(request)
            .await
            .unwrap()
            .into_inner()
            .status
            .unwrap();
        if let Some(code) = code {
            assert_eq!(
                (status.state(), status.exit_code),
                (ContainerState::ContainerExited, *code)
            );
        }
    }
}

#[tokio::test]
async fn nothing_that_was_answered_is_lost_by_a_kill() {
    let home = home("{}");
    let told = Arc::new(Mutex::new(ProcessReport::default()));
    for round in 0..12u64 {
        let mut process = PluginProcess::start(home.path());
        let mut runtime = process.client(home.path()).await;
        let known = std::mem::take(&mut *told.lock().unwrap());
        compare(&mut runtime, &known).await;
        *told.lock().unwrap() = known;
        let (answers, mut heard) = unbounded_channel();
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (runtime, told) = (runtime.clone(), told.clone());
                tokio::spawn(load(
                    runtime,
                    format!("r{round}w{worker}"),
                    told,
                    answers.clone(),
                ))
            })
            .collect();
        // Any moment will do while others are under way, as long as the rounds choose different ones.
        for _ in 0..20 + round * 37 % 180 {
            heard.recv().await.unwrap();
        }
        process.kill();
        for worker in workers {
            worker.await.unwrap().unwrap_err();
        }
    }
    assert!(
        told.lock().unwrap().containers.len() > 100,
        "the load was no load"
    );
}

#[tokio::test]
async fn a_scripted_exit_ends_the_process_after_its_effect() {
    let home = home(
        r#"{"faults": [{"call": "RunPodSandbox", "nth": 2, "exit": true, "after_effect": true}]}"#,
    );
    let mut process = PluginProcess::start(home.path());
    let mut runtime = process.client(home.path()).await;
    run(&mut runtime, sandbox_config("a")).await.unwrap();
    run(&mut runtime, sandbox_config("b")).await.unwrap_err();
    assert_eq!(process.0.wait().unwrap().code(), Some(70));

    let mut process = PluginProcess::start(home.path());
    let mut runtime = process.client(home.path()).await;
    let again = run(&mut runtime, sandbox_config("b")).await.unwrap_err();
    assert_eq!(again.code(), tonic::Code::AlreadyExists);
    process.kill();
}

/// Returns the private memory of a process in KiB, and the clock ticks that it has used.
fn usage(process: &PluginProcess) -> (u64, u64) {
    let proc =
        |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", process.0.id())).unwrap();
    let status = proc("status");
    let memory = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    let stat = proc("stat");
    let ticks = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .skip(11)
        .take(2);
    (
        memory.trim().trim_end_matches(" kB").parse().unwrap(),
        ticks.map(|tick| tick.parse::<u64>().unwrap()).sum(),
    )
}

/// Begins a container that lives for a second; what is returned ends with it.
async fn second(runtime: &mut RuntimeClient) -> impl Future<Output = ()> {
    let sandbox = run(runtime, sandbox_config("second")).await.unwrap();
    let container_id = create(runtime, &sandbox, container_config("c", "sleep 1"))
        .await
        .unwrap();
    let events = runtime.get_container_events(GetEventsRequest {}).await;
    let mut events = events.unwrap().into_inner();
    let start = StartContainerRequest {
        container_id: container_id.clone(),
    };
    runtime.start_container(start).await.unwrap();
    async move {
        let mut ended = false;
        while !ended {
            let event = events.message().await.unwrap().unwrap();
            ended = event.container_id == container_id
                && event.container_event_type() == ContainerEventType::ContainerStoppedEvent;
        }
    }
}

#[tokio::test]
async fn a_thousand_idle_pods_take_little_memory_and_no_processor() {
    let home = home("{}");
    let mut process = PluginProcess::start(home.path());
    let mut runtime = process.client(home.path()).await;
    let (before, _) = usage(&process);
    for n in 0..1_000 {
        let sandbox = run(&mut runtime, sandbox_config(&format!("p{n}")))
            .await
            .unwrap();
        let mut config = container_config("c", "while true; do sleep 1; done");
        // About as much as a kubelet says of a container.
        for key in 0..10 {
            config.annotations.insert(
                format!("io.kubernetes.example/{key}"),
                "some value of usual length".into(),
            );
            config.envs.push(KeyValue {
                key: format!("KUBERNETES_SERVICE_{key}"),
                value: b"10.96.0.1".to_vec(),
            });
        }
        let container_id = create(&mut runtime, &sandbox, config).await.unwrap();
        runtime
            .start_container(StartContainerRequest { container_id })
            .await
            .unwrap();
    }
    let second = second(&mut runtime).await;
    let (after, busy) = usage(&process);
    let each = (after - before) as f64 / 1_000.0;
    assert!(each < 5.0, "{each} KiB a pod");
    tokio::time::timeout(Duration::from_secs(60), second)
        .await
        .expect("a second passes");
    let (_, later) = usage(&process);
    assert!(later - busy <= 1, "{} ticks while idle", later - busy);
    println!("{each} KiB a pod, {busy} ticks to make them");
    process.kill();
}
