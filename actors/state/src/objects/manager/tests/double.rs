//! The same against the double of the API server, over real connections.

use api_client::{ApiClient, RequestLane, plain};
use apiserver::{Server, ServerOptions};
use k8s_openapi::api::core::v1::ConfigMap;
use kernel::system;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(20);

async fn until(shelf: &ObjectStore, is_so: impl Fn(&ObjectStore) -> bool) {
    let mut changes = shelf.changes();
    let come = async {
        while !is_so(shelf) {
            changes.next().await;
        }
    };
    let came = tokio::time::timeout(TIMEOUT, come).await;
    assert!(came.is_ok(), "it did not come true");
}

fn value(shelf: &ObjectStore) -> Option<String> {
    let map = shelf.config_map("apps", "settings")?;
    map.data.as_ref()?.get("k").cloned()
}

fn keeper(client: &ApiClient) -> (Addr<Msg>, Supervisor, ObjectStore) {
    let root = Supervisor::root("test", Intensity::UNLIMITED);
    let (supply, shelf) = ObjectStore::new(StaticObjects::default());
    let peers = Peers::new(client.kube(RequestLane::Work), supply, None, Vec::new());
    let rules = SupplyRules {
        node_name: "worker-1".into(),
        detection: ChangeDetection::Watch,
        period: MINUTE,
        asking: IssuancePolicy::Never,
        supplied: BTreeSet::new(),
    };
    let (keeper, port) = mailbox(MAILBOX);
    root.spawn(ChildSpec::permanent("keeper"), port, move || {
        ObjectManager::new(peers.clone(), rules.clone())
    });
    (keeper, root, shelf)
}

#[test]
fn an_object_is_followed_through_an_outage() {
    system::run(async {
        let server = Server::start(ServerOptions::default()).await.unwrap();
        let client = plain(server.url().parse().unwrap());
        let maps: Api<ConfigMap> = Api::namespaced(client.kube(RequestLane::Heartbeat), "apps");
        let mut object = map("one");
        object["metadata"] = json!({"name": "settings", "namespace": "apps"});
        let object: ConfigMap = serde_json::from_value(object).unwrap();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "apps"}});
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> =
            Api::all(client.kube(RequestLane::Heartbeat));
        let namespace = serde_json::from_value(namespace).unwrap();
        drop(namespaces.create(&PostParams::default(), &namespace).await);

        let (keeper, _root, shelf) = keeper(&client);
        let pods = vec![mapped("a", &["settings"])];
        keeper.tell(Msg::Pods { pods }).unwrap();
        maps.create(&PostParams::default(), &object).await.unwrap();
        until(&shelf, |shelf| value(shelf).as_deref() == Some("one")).await;

        server.stop();
        server.resume().unwrap();
        let patch = Patch::Merge(json!({"data": {"k": "two"}}));
        maps.patch("settings", &PatchParams::default(), &patch)
            .await
            .unwrap();
        until(&shelf, |shelf| value(shelf).as_deref() == Some("two")).await;
        server.expire_history();
        server.close_watches();
        maps.delete("settings", &Default::default()).await.unwrap();
        until(&shelf, |shelf| value(shelf).is_none()).await;
    })
    .unwrap();
}
