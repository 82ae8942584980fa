//! Volumes of CSI drivers.

use super::*;

fn persistent(name: &str, more: &str) -> String {
    format!(
        "
apiVersion: v1
kind: PersistentVolume
metadata: {{name: pv-{name}}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  claimRef: {{namespace: default, name: {name}, uid: u-{name}}}
  csi: {{driver: d.example.com, volumeHandle: h-{name}}}
  {more}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, uid: u-{name}}}
spec: {{volumeName: pv-{name}, accessModes: [ReadWriteOnce], {more}}}
status: {{phase: Bound, capacity: {{storage: 1Gi}}}}
---
"
    )
}

fn driver(more: &str) -> String {
    format!(
        "{{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {{name: d.example.com}}, spec: {{attachRequired: false, {more}}}}}\n---\n"
    )
}

const CLAIM: (&str, &str) = ("data", "persistentVolumeClaim: {claimName: data}");
const ID: &str = "kubernetes.io/csi/d.example.com^h-data";

#[test]
fn a_volume_waits_for_its_driver_and_is_staged_once_for_all() {
    run_paused(|| async {
        let mut rig = Rig::start(&(persistent("data", "") + &driver(""))).await;
        let (one, two) = (pod_with("a", &[CLAIM]), pod_with("b", &[CLAIM]));
        let answers = (rig.want(&one), rig.want(&two));
        pass(SECOND).await;
        let told = rig.texts();
        assert!(
            told.iter().any(|text| text.contains("d.example.com")),
            "{told:?}"
        );
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        for answer in [answers.0, answers.1] {
            assert!(answer.is_finished(), "at once");
            assert_eq!(answer.await.unwrap().unwrap().unwrap().volumes.len(), 1);
        }
        assert_eq!(rig.plugins.staged(), [ID]);
        for uid in ["a", "b"] {
            assert_eq!(rig.plugins.staged(), [ID]);
            rig.release(uid).await.unwrap().unwrap().unwrap();
        }
        pass(MOMENT).await;
        assert_eq!(rig.plugins.staged(), NONE);
        rig.assert_serial();
    });
}

/// Upstream's events of a raw volume.
#[test]
fn a_raw_volume_is_mapped_and_upstream_tells_it_twice() {
    run_paused(|| async {
        let block = "volumeMode: Block";
        let mut rig = Rig::start(&(persistent("data", block) + &driver(""))).await;
        rig.plugins.backend("d.example.com");
        let web = pod(
            "
metadata: {name: a}
spec:
  containers: [{name: app, image: localhost/busybox, volumeDevices: [{name: data, devicePath: /dev/x}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
",
        );
        pass(MOMENT).await;
        let mounted = rig.mounted(&web).await;
        assert_eq!(mounted.volumes["data"].path, PathBuf::from("/dev/pv-data"));
        let root = rig.folder.path().join("root");
        assert_eq!(
            rig.texts(),
            [
                format!(
                    "a SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume \"pv-data\" globalMapPath \"{}/plugins/kubernetes.io/csi/volumeDevices/pv-data/dev\"",
                    root.display()
                ),
                format!(
                    "a SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume \"pv-data\" volumeMapPath \"{}/pods/a/volumeDevices/kubernetes.io~csi\"",
                    root.display()
                ),
            ]
        );
        rig.release("a").await.unwrap().unwrap().unwrap();
        assert!(rig.calls().contains(&format!("unmap {ID}")));
    });
}

#[test]
fn a_driver_that_wants_it_is_asked_again_each_period() {
    run_paused(|| async {
        let rig = Rig::start(&(persistent("data", "") + &driver("requiresRepublish: true"))).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        rig.mounted(&pod_with("a", &[CLAIM])).await;
        pass(300 * SECOND).await;
        let mounts = rig
            .calls()
            .iter()
            .filter(|call| call.starts_with("mount"))
            .count();
        assert!((4..=6).contains(&mounts), "{mounts}");
        rig.assert_serial();
    });
}

#[test]
fn the_nodes_drivers_are_those_that_the_last_stream_told_of() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        rig.plugins.backend("d.example.com");
        rig.plugins.backend("e.example.com");
        pass(MOMENT).await;
        let names = |view: &VolumesView| {
            let drivers = view.csi_node["spec"]["drivers"].as_array().unwrap().iter();
            drivers
                .map(|driver| driver["name"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&rig.view().await), ["d.example.com", "e.example.com"]);
        rig.plugins.gone("e.example.com");
        pass(MOMENT).await;
        assert_eq!(names(&rig.view().await), ["d.example.com"]);
    });
}
