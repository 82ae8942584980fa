//! Against the double of the API server, on the machine's clock: what it makes of our patches.

use std::sync::Arc;
use std::time::Duration;

use api_client::plain;
use apiserver::{Server, ServerOptions};
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use kernel::Addr;
use logic_pods::status::status_patch::equal;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::{Msg, StatusClient};
use super::rig::{keeper, status, with_container, with_message, with_ready};

const PODS: &str = "/api/v1/namespaces/default/pods";
const WEB: &str = "/api/v1/namespaces/default/pods/web";
const SOON: Duration = Duration::from_secs(20);

struct StatusFixture {
    server: Server,
    keeper: Addr<Msg>,
    uid: String,
}

fn play<F: Future>(act: impl FnOnce(StatusFixture) -> F) {
    kernel::system::run(async {
        let options = ServerOptions {
            service_accounts: false,
            ..ServerOptions::default()
        };
        let server = Server::start(options).await.unwrap();
        let client = plain(server.url().parse().unwrap());
        let (_root, keeper, _asked) = keeper(|pods| StatusClient::new(&client, pods));
        let made = server.post(PODS, &spec()).unwrap();
        let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        let stage = StatusFixture {
            server,
            keeper,
            uid,
        };
        stage.watch();
        act(stage).await;
    })
    .unwrap();
}

fn spec() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "main", "image": "localhost/main:1" }] },
    })
}

impl StatusFixture {
    fn watch(&self) {
        let list = self.server.list(PODS).unwrap();
        let pods = list
            .into_iter()
            .map(|pod| Arc::new(serde_json::from_value(pod).unwrap()));
        let pods = pods.collect();
        self.keeper.tell(Msg::Pods { pods }).unwrap();
    }

    fn say(&self, told: &PodStatus) {
        let (uid, status) = (self.uid.as_str().into(), Arc::new(told.clone()));
        self.keeper.tell(Msg::Changed { uid, status }).unwrap();
    }

    /// Waits until the API shows the agent's status.
    async fn shows(&self, told: &PodStatus) {
        let same = |pod: Option<&Value>| {
            let pod: Pod = serde_json::from_value(pod.unwrap().clone()).unwrap();
            let qos_class = pod.status.as_ref().unwrap().qos_class.clone();
            let told = PodStatus {
                qos_class,
                ..told.clone()
            };
            equal(pod.status.as_ref().unwrap(), &told)
        };
        let shown = self.server.wait(WEB, SOON, same).await;
        assert!(shown.is_some(), "{told:?} {:?}", self.server.get(WEB));
    }

    fn writes(&self) -> usize {
        let heard = self.server.requests();
        heard.iter().filter(|heard| heard.method == "PATCH").count()
    }
}

fn with_addresses(told: PodStatus, ips: &[&str]) -> PodStatus {
    let pod_ips = ips.iter().map(|ip| PodIP {
        ip: (*ip).to_owned(),
    });
    PodStatus {
        host_ip: Some("192.0.2.1".into()),
        host_ips: Some(vec![HostIP {
            ip: "192.0.2.1".into(),
        }]),
        pod_ip: ips.first().map(|ip| (*ip).to_owned()),
        pod_ips: Some(pod_ips.collect()),
        qos_class: Some("BestEffort".into()),
        ..told
    }
}

#[test]
fn whatever_changes_the_api_shows_what_we_say() {
    play(|stage| async move {
        let running = || {
            with_container(
                status("Running"),
                json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }),
            )
        };
        let ended = || {
            with_container(
                with_message("Failed", "out"),
                json!({ "terminated": { "exitCode": 1 } }),
            )
        };
        let life = [
            with_ready(status("Pending"), "False"),
            with_ready(with_addresses(running(), &["10.0.0.1"]), "False"),
            with_ready(with_addresses(running(), &["10.0.0.1"]), "True"),
            with_ready(with_addresses(running(), &["10.0.0.2", "fd00::2"]), "True"),
            with_ready(with_addresses(running(), &["fd00::2", "10.0.0.2"]), "True"),
            with_ready(with_addresses(ended(), &["10.0.0.2"]), "False"),
        ];
        for told in &life {
            stage.say(told);
            stage.shows(told).await;
            stage.watch();
        }
        assert_eq!(stage.writes(), life.len());
    });
}

#[test]
fn what_others_add_meanwhile_stays() {
    play(|stage| async move {
        let theirs = json!({ "status": { "conditions": [{ "type": "example.com/gate", "status": "True" }] } });
        stage
            .server
            .patch(&format!("{WEB}/status"), &theirs)
            .unwrap();
        // The status manager has not got it.
        let told = with_ready(with_addresses(status("Running"), &["10.0.0.1"]), "True");
        stage.say(&told);
        stage.shows(&told).await;
        let pod = stage.server.get(WEB).unwrap();
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        assert!(
            conditions.iter().any(|c| c["type"] == "example.com/gate"),
            "{conditions:?}"
        );
    });
}

#[test]
fn a_deleted_pod_is_gone_when_its_worker_has_ended() {
    play(|stage| async move {
        stage.say(&status("Running"));
        stage.shows(&status("Running")).await;
        stage.server.delete(WEB).unwrap();
        stage.watch();
        stage.say(&status("Succeeded"));
        stage.shows(&status("Succeeded")).await;
        let uid = stage.uid.as_str().into();
        stage.keeper.tell(Msg::Forget { uid }).unwrap();
        let gone = stage.server.wait(WEB, SOON, |pod| pod.is_none()).await;
        assert!(gone.is_some());
    });
}

#[test]
fn what_happened_during_an_outage_is_told_after_it() {
    play(|stage| async move {
        stage.server.stop();
        let deaf = TcpListener::bind(stage.server.address()).await.unwrap();
        stage.say(&status("Running"));
        stage.say(&status("Succeeded"));
        let asked = tokio::time::timeout(SOON, deaf.accept()).await;
        drop((asked.unwrap().unwrap(), deaf));
        stage.server.resume().unwrap();
        stage.shows(&status("Succeeded")).await;
    });
}
