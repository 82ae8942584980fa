//! Claims, their volumes and attachments.

use logic_volumes::resolve::attachment_name;

use super::*;

const CLAIM: &str = "/api/v1/namespaces/apps/persistentvolumeclaims/data";
const VOLUME: &str = "/api/v1/persistentvolumes/pv";

fn claim(phase: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": {"volumeName": "pv"},
           "status": {"phase": phase}})
}

fn volume() -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {}, "spec": {
        "csi": {"driver": "csi.example.com", "volumeHandle": "h",
                "nodePublishSecretRef": {"name": "login", "namespace": "storage"}}}})
}

fn attachment() -> String {
    attachment_name("h", "csi.example.com", "worker-1")
}

fn attached(attached: bool) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {},
           "spec": {"attacher": "csi.example.com", "nodeName": "worker-1", "source": {}},
           "status": {"attached": attached}})
}

fn claiming(name: &str) -> Arc<Pod> {
    pod(
        name,
        json!([{"persistentVolumeClaim": {"claimName": "data"}}]),
    )
}

#[test]
fn a_claim_is_asked_for_until_it_is_bound_and_then_its_volume_and_attachment() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.script.put(CLAIM, claim("Pending"));
        rig.pods(&[&claiming("a")]).await;
        rig.script.put(CLAIM, claim("Bound"));
        rig.script.put(VOLUME, volume());
        rig.pass(Duration::from_secs(1)).await;
        assert!(rig.store.persistent_volume("pv").is_some());
        assert!(rig.is_supplied("a"));
        assert!(rig.store.volume_attachment(&attachment()).is_none());
        rig.pass(MINUTE).await;
        let asked = rig.script.heard("volumeattachments");
        assert!((8..20).contains(&asked), "{asked}");

        let path = format!("/apis/storage.k8s.io/v1/volumeattachments/{}", attachment());
        rig.script.put(&path, attached(true));
        rig.pass(Duration::from_secs(10)).await;
        assert!(rig.store.volume_attachment(&attachment()).is_some());
        rig.script.forget();
        rig.pass(10 * MINUTE).await;
        assert_eq!(rig.script.heard("volumeattachments"), 0);
        // It may have grown: claim and volume are looked at again, at leisure.
        let asked = rig.script.heard("persistentvolume");
        assert!((8..16).contains(&asked), "{asked}");
    });
}

#[test]
fn the_secrets_that_a_driver_is_given_come_from_their_own_namespace() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.script.put(CLAIM, claim("Bound"));
        rig.script.put(VOLUME, volume());
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"p": "eA=="}});
        rig.script
            .put("/api/v1/namespaces/storage/secrets/login", secret);
        rig.pods(&[&claiming("a")]).await;
        assert!(rig.store.secret("storage", "login").is_some());
        rig.pods(&[]).await;
        assert!(rig.store.secret("storage", "login").is_none());
        assert!(rig.store.persistent_volume("pv").is_none());
    });
}

#[test]
fn a_driver_that_attaches_nothing_is_asked_for_no_attachment() {
    run_paused(|| async {
        let mut rig = Rig::new();
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {},
                            "spec": {"attachRequired": false}});
        rig.script
            .put("/apis/storage.k8s.io/v1/csidrivers/csi.example.com", driver);
        rig.script.put(CLAIM, claim("Bound"));
        rig.script.put(VOLUME, volume());
        rig.pods(&[]).await;
        rig.pods(&[&claiming("a")]).await;
        rig.pass(MINUTE).await;
        assert_eq!(rig.script.heard("volumeattachments"), 0);
        assert!(rig.is_supplied("a"));
    });
}

#[test]
fn a_new_pod_makes_a_pending_claim_looked_at_at_once() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.pods(&[&claiming("a")]).await;
        rig.pass(10 * MINUTE).await;
        assert!(rig.store.claim("apps", "data").is_none());
        rig.script.put(CLAIM, claim("Pending"));
        rig.pods(&[&claiming("a"), &claiming("b")]).await;
        assert!(rig.store.claim("apps", "data").is_some());
    });
}
