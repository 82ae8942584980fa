//! A node with manifests and drivers, and pods with one volume.

mod claims;
mod csi;
mod hostile;
mod migrated;
mod own;
mod secrets;
mod selinux;

use k8s_openapi::api::core::v1::PodSpec;
use logic_api::objects::{StaticObjects, parse};
use logic_api::testing::*;

use super::*;
use crate::{CsiVolume, ResolveStep, UnresolvedVolume, VolumeSource};

/// A node called `edge`, without labels or drivers.
#[derive(Default)]
pub(super) struct ResolveRig {
    pub(super) objects: StaticObjects,
    pub(super) policy: NodePolicy,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) backends: BTreeMap<String, RegisteredDriver>,
    pub(super) selinux: SeLinuxMountPolicy,
    pub(super) taken: BTreeMap<VolumeId, BTreeSet<PodUid>>,
    pub(super) attached: Option<BTreeSet<VolumeId>>,
}

impl ResolveRig {
    /// With what the manifests say.
    pub(super) fn of(manifests: &str) -> Self {
        let parsed = parse(manifests.as_bytes());
        assert_eq!(parsed.problems, []);
        Self {
            objects: parsed.objects,
            policy: NodePolicy {
                node_name: "edge".into(),
                ..NodePolicy::default()
            },
            ..Self::default()
        }
    }

    pub(super) fn driver(mut self, name: &str, abilities: &[&str]) -> Self {
        let backend = RegisteredDriver {
            name: name.into(),
            node_id: "edge-1".into(),
            abilities: abilities.iter().map(|word| (*word).into()).collect(),
            ..RegisteredDriver::default()
        };
        self.backends.insert(name.into(), backend);
        self
    }

    /// The node's object says that these are attached.
    pub(super) fn attached(mut self, ids: &[&str]) -> Self {
        self.attached = Some(ids.iter().map(|id| VolumeId((*id).into())).collect());
        self
    }

    pub(super) fn taken(mut self, id: &str, pods: &[&str]) -> Self {
        let pods = pods.iter().map(|uid| PodUid::from(*uid)).collect();
        self.taken.insert(VolumeId(id.into()), pods);
        self
    }

    pub(super) fn context(&self) -> ResolveContext<'_> {
        ResolveContext {
            objects: &self.objects,
            node: &self.policy,
            labels: &self.labels,
            backends: &self.backends,
            selinux: self.selinux,
            now: at(0),
            taken: &self.taken,
            attached: self.attached.as_ref(),
        }
    }

    pub(super) fn resolve(&self, pod: &Pod) -> Result<ResolvedVolume, UnresolvedVolume> {
        let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
        resolve(pod, volume, &self.context())
    }

    pub(super) fn volume(&self, pod: &Pod) -> Volume {
        match self.resolve(pod) {
            Ok(resolved) => resolved.volume,
            Err(why) => panic!("{why:?}"),
        }
    }

    /// Step, reason and message.
    pub(super) fn refusal(&self, pod: &Pod) -> String {
        let why = self.resolve(pod).unwrap_err();
        let step = match why.step {
            ResolveStep::Processing => "processing",
            ResolveStep::Attaching => "attaching",
            ResolveStep::Mounting => "mounting",
        };
        format!("{step} {}: {}", why.reason, why.message)
    }
}

/// The CSI part of a volume.
pub(super) fn csi(volume: &Volume) -> CsiVolume {
    let VolumeSource::Csi(csi) = &volume.source else {
        panic!("{:?}", volume.source);
    };
    *csi.clone()
}

/// `web` in `default`, whose spec is this.
pub(super) fn pod_of(spec: &str) -> Pod {
    let spec: PodSpec = serde_saphyr::from_str(spec).unwrap();
    Pod {
        spec: Some(spec),
        ..pod("web")
    }
}

/// A pod that mounts a volume `data` of this source.
pub(super) fn mounting(source: &str) -> Pod {
    pod_of(&format!(
        "{{containers: [{{name: c, volumeMounts: [{{name: data, mountPath: /data}}]}}], volumes: [{{name: data, {source}}}]}}"
    ))
}

/// A pod that maps a volume `data` of this source.
pub(super) fn mapping(source: &str) -> Pod {
    pod_of(&format!(
        "{{containers: [{{name: c, volumeDevices: [{{name: data, devicePath: /dev/x}}]}}], volumes: [{{name: data, {source}}}]}}"
    ))
}

pub(super) const CLAIMING: &str = "persistentVolumeClaim: {claimName: claim}";

/// A claim `claim` that is bound to the volume `pv`, which is this.
pub(super) fn bound(volume: &str) -> String {
    format!(
        "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: claim, uid: claim-uid}}
spec: {{volumeName: pv, accessModes: [ReadWriteOnce]}}
status: {{phase: Bound, capacity: {{storage: 1Gi}}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: pv}}
spec:
  capacity: {{storage: 1Gi}}
  claimRef: {{namespace: default, name: claim, uid: claim-uid}}
{}",
        volume
            .lines()
            .map(|line| format!("  {line}\n"))
            .collect::<String>()
    )
}

/// Upstream's TestGetPodVolumeNames and TestFindAndAddNewPods_WithDifferentConditions: what no container uses is left.
#[test]
fn only_what_containers_use_is_resolved_and_images_are_the_runtimes() {
    let pod = pod_of(
        "
initContainers: [{name: i, volumeMounts: [{name: init, mountPath: /i}]}]
containers: [{name: c, volumeMounts: [{name: app, mountPath: /a}, {name: image, mountPath: /m}], volumeDevices: [{name: raw, devicePath: /dev/x}]}]
ephemeralContainers: [{name: e, volumeMounts: [{name: debug, mountPath: /d}]}]
volumes:
- {name: init, emptyDir: {}}
- {name: app, emptyDir: {}}
- {name: raw, persistentVolumeClaim: {claimName: none}}
- {name: debug, hostPath: {path: /var}}
- {name: image, image: {reference: localhost/tools}}
- {name: unused, emptyDir: {}}
",
    );
    let node = ResolveRig::of("");
    let found = all(&pod, &node.context());
    let names: Vec<(&str, bool)> = found
        .iter()
        .map(|(name, result)| (name.as_str(), result.is_ok()))
        .collect();
    assert_eq!(
        names,
        [
            ("app", true),
            ("debug", true),
            ("init", true),
            ("raw", false)
        ]
    );
    for (name, resolved) in found {
        if let Ok(resolved) = resolved {
            assert_eq!(resolved.volume.name, name);
        }
    }
}
