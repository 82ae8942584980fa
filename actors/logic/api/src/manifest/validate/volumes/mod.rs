//! Rules of volumes.

mod claims;
mod local;
mod projected;
mod remote;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Volume};
pub(super) use projected::tokens;

use super::{FieldErrors, names, text};

/// A source's rule: the volume, its field, where problems go.
type VolumeRule = fn(&Volume, &str, &mut FieldErrors);

/// One source: its name in the spec, whether a volume has it, and its rule.
type VolumeSourceRule = (&'static str, fn(&Volume) -> bool, VolumeRule);

/// In upstream's order: of two sources the later one is too many. Some names are upstream's slips.
const SOURCES: [VolumeSourceRule; 30] = [
    ("emptyDir", |v| v.empty_dir.is_some(), local::empty_dir),
    ("hostPath", |v| v.host_path.is_some(), local::host_path),
    ("gitRepo", |v| v.git_repo.is_some(), local::git_repo),
    (
        "gcePersistentDisk",
        |v| v.gce_persistent_disk.is_some(),
        remote::gce_disk,
    ),
    (
        "awsElasticBlockStore",
        |v| v.aws_elastic_block_store.is_some(),
        remote::aws_disk,
    ),
    ("secret", |v| v.secret.is_some(), local::secret),
    ("nfs", |v| v.nfs.is_some(), remote::nfs),
    ("iscsi", |v| v.iscsi.is_some(), remote::iscsi),
    ("glusterfs", |v| v.glusterfs.is_some(), remote::glusterfs),
    ("flocker", |v| v.flocker.is_some(), remote::flocker),
    (
        "persistentVolumeClaim",
        |v| v.persistent_volume_claim.is_some(),
        claims::reference,
    ),
    ("rbd", |v| v.rbd.is_some(), remote::rbd),
    ("cinder", |v| v.cinder.is_some(), remote::cinder),
    ("cephFS", |v| v.cephfs.is_some(), remote::cephfs),
    ("quobyte", |v| v.quobyte.is_some(), remote::quobyte),
    ("downwarAPI", |v| v.downward_api.is_some(), local::downward),
    ("fc", |v| v.fc.is_some(), remote::fibre_channel),
    ("flexVolume", |v| v.flex_volume.is_some(), remote::flex),
    ("configMap", |v| v.config_map.is_some(), local::config_map),
    ("azureFile", |v| v.azure_file.is_some(), remote::azure_file),
    (
        "vsphereVolume",
        |v| v.vsphere_volume.is_some(),
        remote::vsphere,
    ),
    (
        "photonPersistentDisk",
        |v| v.photon_persistent_disk.is_some(),
        remote::photon,
    ),
    (
        "portworxVolume",
        |v| v.portworx_volume.is_some(),
        remote::portworx,
    ),
    ("azureDisk", |v| v.azure_disk.is_some(), remote::azure_disk),
    ("storageos", |v| v.storageos.is_some(), remote::storage_os),
    ("projected", |v| v.projected.is_some(), projected::check),
    ("scaleIO", |v| v.scale_io.is_some(), remote::scale_io),
    ("csi", |v| v.csi.is_some(), remote::csi),
    ("ephemeral", |v| v.ephemeral.is_some(), claims::ephemeral),
    ("image", |v| v.image.is_some(), local::image),
];

/// Returns the volumes that may be mounted: those without a problem, by name.
pub(super) fn check<'a>(
    pod: &'a Pod,
    volumes: &'a [Volume],
    report: &mut FieldErrors,
) -> BTreeMap<&'a str, &'a Volume> {
    let mut good = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let before = report.problems.len();
        let field = format!("spec.volumes[{index}]");
        source(&field, volume, report);
        if volume.ephemeral.is_some() {
            claims::name(pod, &field, &volume.name, report);
        }
        let name = format!("{field}.name");
        if volume.name.is_empty() {
            report.required(name.clone());
        } else {
            report.name(name.clone(), &volume.name, names::label);
        }
        if good.contains_key(volume.name.as_str()) {
            report.duplicate(name, &volume.name);
        }
        if report.problems.len() == before {
            good.insert(volume.name.as_str(), volume);
        }
    }
    claims::shared(pod, volumes, report);
    good
}

fn source(field: &str, volume: &Volume, report: &mut FieldErrors) {
    let mut used = SOURCES.iter().filter(|(_, is_used, _)| is_used(volume));
    let Some((_, _, rule)) = used.next() else {
        return report.missing(field, "must specify a volume type");
    };
    rule(volume, field, report);
    for (second, _, _) in used {
        let detail = "may not specify more than 1 volume type";
        report.forbidden(format!("{field}.{second}"), detail);
    }
}

fn mode(field: String, mode: Option<i32>, report: &mut FieldErrors) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        report.invalid(field, mode, detail);
    }
}
