//! AWS EBS, GCE PD, Cinder, Portworx and vSphere.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    self as core, AWSElasticBlockStoreVolumeSource, GCEPersistentDiskVolumeSource,
    PersistentVolume, PersistentVolumeSpec, PortworxVolumeSource, SecretReference,
    VsphereVirtualDiskVolumeSource,
};

use super::{CsiSource, InlineSource, PluginName, Translation, attributes};

pub(super) const EBS: PluginName = PluginName {
    plugin: "kubernetes.io/aws-ebs",
    driver: "ebs.csi.aws.com",
};
pub(super) const GCE: PluginName = PluginName {
    plugin: "kubernetes.io/gce-pd",
    driver: "pd.csi.storage.gke.io",
};
pub(super) const CINDER: PluginName = PluginName {
    plugin: "kubernetes.io/cinder",
    driver: "cinder.csi.openstack.org",
};
pub(super) const PORTWORX: PluginName = PluginName {
    plugin: "kubernetes.io/portworx-volume",
    driver: "pxd.portworx.com",
};
pub(super) const VSPHERE: PluginName = PluginName {
    plugin: "kubernetes.io/vsphere-volume",
    driver: "csi.vsphere.vmware.com",
};

const ONE_NODE: &str = "ReadWriteOnce";
const READERS: &str = "ReadOnlyMany";

pub(super) fn persistent(
    volume: &PersistentVolume,
    spec: &PersistentVolumeSpec,
) -> Translation<(PluginName, CsiSource)> {
    if let Some(source) = &spec.aws_elastic_block_store {
        Some(ebs(source).map(|made| (EBS, made)))
    } else if let Some(source) = &spec.gce_persistent_disk {
        let place = gce_place(volume);
        Some(place.map(|place| (GCE, gce(source, &place))))
    } else if let Some(source) = &spec.cinder {
        let made = cinder(&source.volume_id, source.read_only, source.fs_type.clone());
        Some(Ok((CINDER, made)))
    } else if let Some(source) = &spec.portworx_volume {
        let mut made = portworx(source);
        let secret = portworx_secret(volume);
        made.node_stage_secret_ref.clone_from(&secret);
        made.node_publish_secret_ref.clone_from(&secret);
        made.node_expand_secret_ref = secret;
        Some(Ok((PORTWORX, made)))
    } else {
        let source = spec.vsphere_volume.as_ref()?;
        Some(Ok((VSPHERE, vsphere(source))))
    }
}

pub(super) fn inline(volume: &core::Volume) -> Translation<(PluginName, InlineSource)> {
    let made = |name: PluginName, disk: &str, access_mode, source| {
        let inline = InlineSource {
            name: format!("{}-{disk}", name.driver),
            access_mode,
            source,
        };
        (name, inline)
    };
    let mode = |read_only| match read_only {
        Some(true) => READERS,
        Some(false) | None => ONE_NODE,
    };
    if let Some(source) = &volume.aws_elastic_block_store {
        Some(ebs(source).map(|translated| {
            let disk = translated.volume_handle.clone();
            made(EBS, &disk, ONE_NODE, translated)
        }))
    } else if let Some(source) = &volume.gce_persistent_disk {
        let translated = gce(source, "zones/UNSPECIFIED");
        let mode = mode(source.read_only);
        Some(Ok(made(GCE, &source.pd_name, mode, translated)))
    } else if let Some(source) = &volume.cinder {
        let id = &source.volume_id;
        let translated = cinder(id, source.read_only, source.fs_type.clone());
        Some(Ok(made(CINDER, id, ONE_NODE, translated)))
    } else if let Some(source) = &volume.portworx_volume {
        let mode = mode(source.read_only);
        Some(Ok(made(
            PORTWORX,
            &source.volume_id,
            mode,
            portworx(source),
        )))
    } else {
        let source = volume.vsphere_volume.as_ref()?;
        Some(Ok(made(
            VSPHERE,
            &source.volume_path,
            ONE_NODE,
            vsphere(source),
        )))
    }
}

fn ebs(source: &AWSElasticBlockStoreVolumeSource) -> Result<CsiSource, String> {
    let handle = ebs_handle(&source.volume_id)
        .map_err(|cause| format!("failed to translate Kubernetes ID to EBS Volume ID {cause}"))?;
    Ok(CsiSource {
        driver: EBS.driver.to_owned(),
        volume_handle: handle,
        read_only: source.read_only,
        fs_type: source.fs_type.clone(),
        volume_attributes: attributes([("partition", source.partition.unwrap_or(0).to_string())]),
        ..CsiSource::default()
    })
}

/// `vol-1`, `aws:///vol-1` or `aws://ZONE/vol-1`.
fn ebs_handle(id: &str) -> Result<String, String> {
    let Some(rest) = id.strip_prefix("aws://") else {
        return Ok(id.to_owned());
    };
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let volume = path.trim_matches('/');
    match volume.starts_with("vol-") && !volume.contains('/') {
        true => Ok(volume.to_owned()),
        false => Err(format!("Invalid format for AWS volume ({id})")),
    }
}

fn gce(source: &GCEPersistentDiskVolumeSource, place: &str) -> CsiSource {
    let partition = source.partition.filter(|partition| *partition != 0);
    let partition = partition.map_or_else(String::new, |partition| partition.to_string());
    CsiSource {
        driver: GCE.driver.to_owned(),
        volume_handle: format!("projects/UNSPECIFIED/{place}/disks/{}", source.pd_name),
        read_only: source.read_only,
        fs_type: source.fs_type.clone(),
        volume_attributes: attributes([("partition", partition)]),
        ..CsiSource::default()
    }
}

/// `zones/ZONE`, or `regions/REGION` for a disk in several zones.
fn gce_place(volume: &PersistentVolume) -> Result<String, String> {
    let label = |key| {
        let value = volume.metadata.labels.as_ref()?.get(key)?;
        (!value.is_empty()).then_some(value.as_str())
    };
    let zones = label("failure-domain.beta.kubernetes.io/zone")
        .or_else(|| label("topology.kubernetes.io/zone"))
        .unwrap_or("UNSPECIFIED");
    let zones: Vec<&str> = zones.split("__").collect();
    match zones.as_slice() {
        [zone] => Ok(format!("zones/{zone}")),
        several => {
            let region = gce_region(several)
                .map_err(|cause| format!("failed to get region from zones: {cause}"))?;
            Ok(format!("regions/{region}"))
        }
    }
}

fn gce_region(zones: &[&str]) -> Result<String, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts.as_slice() else {
            return Err(format!(
                "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            ));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    match (regions.pop_first(), regions.is_empty()) {
        (Some(region), true) => Ok(region),
        _ => Err(format!(
            "multiple or no regions gotten from zones, got: {}",
            zones.join(" ")
        )),
    }
}

/// The old plugin took `ReadWriteMany`, and several modes at once, for `ReadWriteOnce`; the driver refuses them.
pub(super) fn correct_modes(spec: &mut PersistentVolumeSpec) {
    if let Some(modes) = &mut spec.access_modes {
        let only_read = !modes.is_empty() && modes.iter().all(|mode| mode == READERS);
        let mode = if only_read { READERS } else { ONE_NODE };
        *modes = vec![mode.to_owned()];
    }
}

fn cinder(id: &str, read_only: Option<bool>, fs_type: Option<String>) -> CsiSource {
    CsiSource {
        driver: CINDER.driver.to_owned(),
        volume_handle: id.to_owned(),
        read_only,
        fs_type,
        volume_attributes: attributes([]),
        ..CsiSource::default()
    }
}

fn portworx(source: &PortworxVolumeSource) -> CsiSource {
    CsiSource {
        driver: PORTWORX.driver.to_owned(),
        volume_handle: source.volume_id.clone(),
        fs_type: source.fs_type.clone(),
        volume_attributes: attributes([]),
        ..CsiSource::default()
    }
}

fn portworx_secret(volume: &PersistentVolume) -> Option<SecretReference> {
    let annotations = volume.metadata.annotations.as_ref()?;
    Some(SecretReference {
        name: Some(annotations.get("openstorage.io/auth-secret-name")?.clone()),
        namespace: Some(
            annotations
                .get("openstorage.io/auth-secret-namespace")?
                .clone(),
        ),
    })
}

fn vsphere(source: &VsphereVirtualDiskVolumeSource) -> CsiSource {
    let policy = source.storage_policy_name.clone();
    let policy = policy.filter(|name| !name.is_empty());
    CsiSource {
        driver: VSPHERE.driver.to_owned(),
        volume_handle: source.volume_path.clone(),
        fs_type: source.fs_type.clone(),
        volume_attributes: match policy {
            Some(name) => attributes([("storagepolicyname", name)]),
            None => attributes([]),
        },
        ..CsiSource::default()
    }
}
