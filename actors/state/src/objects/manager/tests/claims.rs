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
        // They are watched, and a watch is renewed every few minutes.
        let asked = rig.script.heard("persistentvolume");
        assert!(asked <= 6, "{asked}");
    });
}

/// The sizes of the claim and of its volume as the controller changes them: first what is wanted, then the volume.
fn sized(wanted: &str, volume_has: &str) -> (Value, Value) {
    let mut grown = claim("Bound");
    grown["spec"]["resources"] = json!({"requests": {"storage": wanted}});
    grown["status"]["capacity"] = json!({"storage": "1Gi"});
    let mut with = volume();
    with["spec"]["capacity"] = json!({"storage": volume_has});
    (grown, with)
}

impl Rig {
    fn put_sized(&self, wanted: &str, volume_has: &str) {
        let (claim, volume) = sized(wanted, volume_has);
        self.script.put(CLAIM, claim);
        self.script.put(VOLUME, volume);
    }

    /// The volume's size as pods' volumes are resolved with it.
    fn volume_size(&self) -> Option<String> {
        let volume = self.store.persistent_volume("pv")?;
        let capacity = volume.spec.as_ref()?.capacity.as_ref()?;
        Some(capacity.get("storage")?.0.clone())
    }
}

#[test]
fn a_volume_that_grew_is_seen_at_once_where_it_may_be_watched() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.put_sized("1Gi", "1Gi");
        rig.pods(&[&claiming("a")]).await;
        assert_eq!(rig.volume_size().as_deref(), Some("1Gi"));
        rig.put_sized("2Gi", "2Gi");
        rig.settle().await;
        assert_eq!(rig.volume_size().as_deref(), Some("2Gi"));
        let claim = rig.store.claim("apps", "data").unwrap();
        let asked = claim.spec.as_ref().unwrap().resources.as_ref().unwrap();
        assert_eq!(asked.requests.as_ref().unwrap()["storage"].0, "2Gi");
    });
}

/// Upstream's node authorizer lets a node get the claims and volumes of its pods, and nothing else.
#[test]
fn claims_that_may_not_be_watched_are_got_again_and_a_growing_one_soon() {
    run_paused(|| async {
        let mut rig = Rig::new();
        rig.script.only_get("persistentvolumeclaims");
        rig.script.only_get("persistentvolumes");
        rig.put_sized("1Gi", "1Gi");
        rig.pods(&[&claiming("a")]).await;
        assert!(rig.is_supplied("a"));
        assert_eq!(rig.volume_size().as_deref(), Some("1Gi"));
        rig.script.forget();
        rig.pass(10 * MINUTE).await;
        for listed in ["persistentvolumeclaims?", "persistentvolumes?"] {
            assert_eq!(rig.script.heard(listed), 0, "refused once is refused");
        }
        let (claims, volumes) = ("persistentvolumeclaims", "persistentvolumes/");
        let asked = (rig.script.heard(claims), rig.script.heard(volumes));
        assert!((16..=20).contains(&asked.0), "{asked:?}");
        assert!((5..=7).contains(&asked.1), "{asked:?}");

        rig.put_sized("2Gi", "1Gi");
        rig.pass(40 * Duration::from_secs(1)).await;
        rig.script.forget();
        rig.put_sized("2Gi", "2Gi");
        rig.pass(30 * Duration::from_secs(1)).await;
        assert_eq!(rig.volume_size().as_deref(), Some("2Gi"));
        let asked = rig.script.heard(claims);
        assert!((1..=8).contains(&asked), "{asked}");
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
