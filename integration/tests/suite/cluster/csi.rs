//! A claim's way through the API: the test plays the controllers, the driver is a real one.

use integration::doubles::csi_driver::CsiDriver;

use super::*;

const DRIVER: &str = "csi.example.com";
const HANDLE: &str = "h-web";
const NODE: &str = "/api/v1/nodes/node";
const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/node";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/web";
const VOLUME: &str = "/api/v1/persistentvolumes/pv-web";

/// A node that looks at its pods' claims often.
fn often() -> Builder {
    let often = json!({ "syncFrequency": "2s" });
    Node::builder().with_patience().config(&often)
}

/// The node's name for the volume.
fn unique() -> String {
    format!("kubernetes.io/csi/{DRIVER}^{HANDLE}")
}

/// A storage class, a volume and a claim that are bound to each other, and what the driver wants.
fn provide(cluster: &Cluster) {
    let storage = |path: &str| format!("/apis/storage.k8s.io/v1/{path}");
    let size = json!({ "storage": "64Mi" });
    let server = cluster.double();
    let made = [
        (
            storage("csidrivers"),
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
                "spec": { "attachRequired": true, "podInfoOnMount": true, "requiresRepublish": false,
                    "tokenRequests": [{ "audience": "vault", "expirationSeconds": 3600 }] },
            }),
        ),
        (
            storage("storageclasses"),
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast" },
                "provisioner": DRIVER, "allowVolumeExpansion": true,
            }),
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims".to_owned(),
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "web" },
                "spec": { "accessModes": ["ReadWriteOnce"], "volumeName": "pv-web", "storageClassName": "fast",
                    "volumeMode": "Filesystem", "resources": { "requests": size } },
            }),
        ),
    ];
    for (path, object) in made {
        server.post(&path, &object).unwrap();
    }
    let claim = uid(&server.get(CLAIM).unwrap());
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-web" },
        "spec": { "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": { "kind": "PersistentVolumeClaim", "namespace": "default", "name": "web", "uid": claim },
            "csi": { "driver": DRIVER, "volumeHandle": HANDLE } },
    });
    server.post("/api/v1/persistentvolumes", &volume).unwrap();
    let bound = json!({ "status": { "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": size } });
    server.patch(&format!("{CLAIM}/status"), &bound).unwrap();
    let bound = json!({ "status": { "phase": "Bound" } });
    server.patch(&format!("{VOLUME}/status"), &bound).unwrap();
}

fn claimed() -> Value {
    let mut web = pod("web");
    web["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "web" } }]);
    web["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "data", "mountPath": "/data" }]);
    web
}

async fn until_done(cluster: &Cluster, driver: &CsiDriver, call: &str) -> Value {
    let asked = async || !driver.done(call).unwrap().is_empty();
    cluster.wait(call, asked).await.unwrap();
    driver.done(call).unwrap().remove(0)
}

/// Makes the attachment that the node looks for; returns its name, and how often the node had looked before.
async fn make_attachment(cluster: &Cluster) -> (String, usize) {
    let asked = || {
        let mut requests = cluster.double().requests().into_iter();
        let one = requests.find(|one| one.path.starts_with(ATTACHMENTS))?;
        one.path.rsplit('/').next().map(str::to_owned)
    };
    let names = async || asked().is_some();
    cluster
        .wait("the node looks for the attachment", names)
        .await
        .unwrap();
    let name = asked().unwrap();
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": name },
        "spec": { "attacher": DRIVER, "nodeName": "node", "source": { "persistentVolumeName": "pv-web" } },
    });
    let before = looks(cluster);
    cluster.server.post(ATTACHMENTS, &attachment).unwrap();
    (name, before)
}

/// How often the node has looked for an attachment.
fn looks(cluster: &Cluster) -> usize {
    let requests = cluster.double().requests().into_iter();
    let looks = requests.filter(|one| one.path.starts_with(ATTACHMENTS));
    looks.count()
}

/// The attach controller: first the object, then the node's status, then that it is done.
async fn attach(cluster: &Cluster, driver: &CsiDriver) {
    let server = cluster.double();
    let attached =
        json!({ "status": { "volumesAttached": [{ "name": unique(), "devicePath": "" }] } });
    server.patch(&format!("{NODE}/status"), &attached).unwrap();
    let (name, before) = make_attachment(cluster).await;
    let again = async || looks(cluster) > before;
    cluster
        .wait("the node waits for the attachment", again)
        .await
        .unwrap();
    assert_eq!(driver.done("NodeStageVolume").unwrap(), Vec::<Value>::new());
    let done = json!({ "status": { "attached": true, "attachmentMetadata": { "device": "sdx" } } });
    server
        .patch(&format!("{ATTACHMENTS}/{name}/status"), &done)
        .unwrap();
}

/// The resizer: it takes the claim on, makes the volume larger, and leaves the file system to the node.
fn enlarge(cluster: &Cluster) {
    let larger = json!({ "storage": "128Mi" });
    let server = cluster.double();
    let asks = json!({ "spec": { "resources": { "requests": larger } } });
    server.patch(CLAIM, &asks).unwrap();
    let resizing = |word: &str| {
        json!({ "status": {
            "allocatedResources": larger, "allocatedResourceStatuses": { "storage": word },
            "conditions": [{ "type": "FileSystemResizePending", "status": "True" }],
        } })
    };
    let status = format!("{CLAIM}/status");
    let begun = resizing("ControllerResizeInProgress");
    server.patch(&status, &begun).unwrap();
    server
        .patch(VOLUME, &json!({ "spec": { "capacity": larger } }))
        .unwrap();
    let pending = resizing("NodeResizePending");
    server.patch(&status, &pending).unwrap();
}

async fn assert_it_grows(cluster: &Cluster, driver: &CsiDriver) {
    enlarge(cluster);
    let grown = |claim: &Value| claim["status"]["capacity"]["storage"] == "128Mi";
    let claim = cluster
        .until(CLAIM, CONVERGENCE_TIMEOUT, grown)
        .await
        .unwrap();
    let of = |key: &str| claim["status"][key].clone();
    let empty = |value: Value| value.is_null() || value == json!([]) || value == json!({});
    assert!(
        empty(of("conditions")) && empty(of("allocatedResourceStatuses")),
        "{claim:#}"
    );
    let expanded = until_done(cluster, driver, "NodeExpandVolume").await;
    assert_eq!(expanded["required_bytes"], 128 << 20);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one life of a volume, step by step")]
async fn a_claims_volume_is_reported_attached_mounted_grown_and_let_go_of() {
    let cluster = start(often()).await;
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        "--node-id=the-node",
        "--max-volumes=7",
        "--topology=zone.example.com=east",
    ];
    let driver = CsiDriver::start(DRIVER, folder.path(), &cluster.node.root(), &flags)
        .await
        .unwrap();
    let data = driver.create_volume(HANDLE).unwrap();
    std::fs::write(data.join("file"), "precious").unwrap();
    provide(&cluster);
    let listed = |shown: &Value| shown["spec"]["drivers"][0]["name"] == DRIVER;
    let shown = cluster
        .until(CSI_NODE, CONVERGENCE_TIMEOUT, listed)
        .await
        .unwrap();
    let expected = json!([{ "name": DRIVER, "nodeID": "the-node", "topologyKeys": ["zone.example.com"],
        "allocatable": { "count": 7 } }]);
    assert_eq!(shown["spec"]["drivers"], expected);
    let east = |node: &Value| node["metadata"]["labels"]["zone.example.com"] == "east";
    cluster
        .until(NODE, CONVERGENCE_TIMEOUT, east)
        .await
        .unwrap();

    cluster.apply(&claimed()).unwrap();
    let waits = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].is_object();
    cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, waits)
        .await
        .unwrap();
    assert_eq!(driver.done("NodeStageVolume").unwrap(), Vec::<Value>::new());
    assert_eq!(cluster.pod("web").unwrap()["status"]["phase"], "Pending");
    let reported = |node: &Value| node["status"]["volumesInUse"] == json!([unique()]);
    cluster
        .until(NODE, CONVERGENCE_TIMEOUT, reported)
        .await
        .unwrap();
    attach(&cluster, &driver).await;
    let staged = until_done(&cluster, &driver, "NodeStageVolume").await;
    assert_eq!(staged["publish_context"]["device"], "sdx", "{staged:#}");
    let node = cluster.server.get(NODE).unwrap();
    let in_use = &node["status"]["volumesInUse"];
    assert_eq!(*in_use, json!([unique()]), "reported before it is staged");
    let web = cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    let mounted = format!(
        "pods/{}/volumes/kubernetes.io~csi/pv-web/mount/file",
        uid(&web)
    );
    assert_eq!(
        std::fs::read(cluster.node.root().join(mounted)).unwrap(),
        b"precious"
    );
    let published = until_done(&cluster, &driver, "NodePublishVolume").await;
    let context = &published["volume_context"];
    assert_eq!(
        context["csi.storage.k8s.io/pod.uid"],
        uid(&web),
        "{context:#}"
    );
    let tokens = context["csi.storage.k8s.io/serviceAccount.tokens"]
        .as_str()
        .unwrap();
    let tokens: Value = serde_json::from_str(tokens).unwrap();
    let token = tokens["vault"]["token"].as_str().unwrap();
    assert!(token.split('.').count() == 3, "{tokens}");
    assert!(!cluster.node.log().contains(token), "a token is in the log");

    assert_it_grows(&cluster, &driver).await;

    cluster
        .server
        .delete("/api/v1/namespaces/default/pods/web")
        .unwrap();
    cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, Value::is_null)
        .await
        .unwrap();
    let unused = |node: &Value| {
        node["status"]["volumesInUse"]
            .as_array()
            .is_none_or(Vec::is_empty)
    };
    cluster
        .until(NODE, CONVERGENCE_TIMEOUT, unused)
        .await
        .unwrap();
    until_done(&cluster, &driver, "NodeUnpublishVolume").await;
    until_done(&cluster, &driver, "NodeUnstageVolume").await;
    assert!(driver.in_use().unwrap().is_empty() && driver.mounts().is_empty());
    let complaints = driver.complaints().unwrap();
    assert!(complaints.is_empty(), "{complaints:#?}");
    assert_eq!(std::fs::read(data.join("file")).unwrap(), b"precious");
}

/// Upstream's `VerifyExhaustedResource`, long before the driver's period is over.
#[tokio::test]
async fn a_driver_whose_controller_finds_no_room_is_asked_how_much_it_takes_now() {
    let cluster = start(often()).await;
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--node-id=the-node", "--max-volumes=7"];
    let driver = CsiDriver::start(DRIVER, folder.path(), &cluster.node.root(), &flags)
        .await
        .unwrap();
    provide(&cluster);
    let tells = json!({ "spec": { "nodeAllocatableUpdatePeriodSeconds": 3600 } });
    let object = format!("/apis/storage.k8s.io/v1/csidrivers/{DRIVER}");
    cluster.server.patch(&object, &tells).unwrap();
    let takes = |most: u64| {
        move |shown: &Value| {
            let drivers = &shown["spec"]["drivers"];
            drivers[0]["name"] == DRIVER && drivers[0]["allocatable"]["count"] == most
        }
    };
    cluster
        .until(CSI_NODE, CONVERGENCE_TIMEOUT, takes(7))
        .await
        .unwrap();
    cluster.apply(&claimed()).unwrap();
    let (name, _) = make_attachment(&cluster).await;
    driver.set_max_volumes(5).unwrap();
    let attached =
        json!({ "status": { "volumesAttached": [{ "name": unique(), "devicePath": "" }] } });
    let server = cluster.double();
    server.patch(&format!("{NODE}/status"), &attached).unwrap();
    let full = json!({ "status": { "attached": false,
        "attachError": { "message": "no more slots", "errorCode": 8 } } });
    server
        .patch(&format!("{ATTACHMENTS}/{name}/status"), &full)
        .unwrap();
    cluster
        .until(CSI_NODE, CONVERGENCE_TIMEOUT, takes(5))
        .await
        .unwrap();
    assert_eq!(driver.done("NodeGetInfo").unwrap().len(), 2);
    let shown = cluster.server.get(CSI_NODE).unwrap();
    assert_eq!(shown["spec"]["drivers"][0]["nodeID"], "the-node");
}
