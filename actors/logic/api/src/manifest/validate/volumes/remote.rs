//! Rules of storage beyond the node. Most of these are gone from the kubelet; the API still knows what they must say.

use k8s_openapi::api::core::v1::{LocalObjectReference, Volume};

use super::{FieldErrors, names, text};
use crate::manifest::validate::FieldErrorKind;

const PARTITION: &str = "must be between 1 and 255, inclusive";
const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
/// Characters of a CSI driver's name: the API's bound, that of a DNS label.
const MAX_DRIVER: usize = 63;
/// Characters of the name and the portal of an iSCSI volume together: the API's bound.
const MAX_PORTAL: usize = 64;

/// Each of these texts must be there.
fn needs(field: &str, fields: &[(&str, &str)], report: &mut FieldErrors) {
    for (name, value) in fields {
        report.some(format!("{field}.{name}"), value);
    }
}

fn needs_name(field: String, secret: Option<&LocalObjectReference>, report: &mut FieldErrors) {
    if let Some(secret) = secret {
        report.some(format!("{field}.name"), &secret.name);
    }
}

fn partition(field: String, partition: Option<i32>, report: &mut FieldErrors) {
    if let Some(partition) = partition.filter(|partition| !(0..=255).contains(partition)) {
        report.invalid(field, partition, PARTITION);
    }
}

pub(super) fn gce_disk(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.gce_persistent_disk {
        let field = format!("{field}.persistentDisk");
        needs(&field, &[("pdName", &source.pd_name)], report);
        partition(format!("{field}.partition"), source.partition, report);
    }
}

pub(super) fn aws_disk(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.aws_elastic_block_store {
        let field = format!("{field}.awsElasticBlockStore");
        needs(&field, &[("volumeID", &source.volume_id)], report);
        partition(format!("{field}.partition"), source.partition, report);
    }
}

pub(super) fn nfs(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.nfs {
        let field = format!("{field}.nfs");
        let fields = [("server", source.server.as_str()), ("path", &source.path)];
        needs(&field, &fields, report);
        if !source.path.starts_with('/') {
            let detail = "must be an absolute path";
            report.invalid(format!("{field}.path"), &source.path, detail);
        }
    }
}

pub(super) fn iscsi(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.iscsi else {
        return;
    };
    let name = format!("{field}.name");
    let field = format!("{field}.iscsi");
    let fields = [
        ("targetPortal", source.target_portal.as_str()),
        ("iqn", &source.iqn),
    ];
    needs(&field, &fields, report);
    if !source.iqn.is_empty() {
        iscsi_node(format!("{field}.iqn"), &source.iqn, report);
    }
    report.between(format!("{field}.lun"), source.lun.into(), 0..=255);
    let asks = source.chap_auth_discovery == Some(true) || source.chap_auth_session == Some(true);
    if asks && source.secret_ref.is_none() {
        report.required(format!("{field}.secretRef"));
    }
    let Some(initiator) = &source.initiator_name else {
        return;
    };
    iscsi_node(format!("{field}.initiatorname"), initiator, report);
    if volume.name.len() + 1 + source.target_portal.len() > MAX_PORTAL {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        report.invalid(name, &volume.name, detail);
    }
}

fn iscsi_node(field: String, name: &str, report: &mut FieldErrors) {
    let is_kind = ["iqn", "eui", "naa"]
        .iter()
        .any(|kind| name.starts_with(kind));
    if !is_kind {
        let detail = "must be valid format starting with iqn, eui, or naa";
        report.invalid(field, name, detail);
    } else if !names::is_iscsi_node(name) {
        report.invalid(field, name, "must be valid format");
    }
}

pub(super) fn glusterfs(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.glusterfs {
        let fields = [
            ("endpoints", source.endpoints.as_str()),
            ("path", &source.path),
        ];
        needs(&format!("{field}.glusterfs"), &fields, report);
    }
}

pub(super) fn flocker(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.flocker else {
        return;
    };
    let field = format!("{field}.flocker");
    let name = text(source.dataset_name.as_ref());
    let uuid = text(source.dataset_uuid.as_ref());
    if name.is_empty() && uuid.is_empty() {
        let detail = "one of datasetName and datasetUUID is required";
        report.missing(field.clone(), detail);
    }
    if !name.is_empty() && !uuid.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        report.invalid(field.clone(), "resource", detail);
    }
    if name.contains('/') {
        report.invalid(format!("{field}.datasetName"), name, "must not contain '/'");
    }
}

pub(super) fn rbd(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.rbd {
        if source.monitors.is_empty() {
            report.required(format!("{field}.rbd.monitors"));
        }
        needs(&format!("{field}.rbd"), &[("image", &source.image)], report);
    }
}

pub(super) fn cinder(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.cinder {
        let field = format!("{field}.cinder");
        needs(&field, &[("volumeID", &source.volume_id)], report);
        needs_name(
            format!("{field}.secretRef"),
            source.secret_ref.as_ref(),
            report,
        );
    }
}

pub(super) fn cephfs(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if volume
        .cephfs
        .as_ref()
        .is_some_and(|source| source.monitors.is_empty())
    {
        report.required(format!("{field}.cephfs.monitors"));
    }
}

pub(super) fn quobyte(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.quobyte else {
        return;
    };
    let field = format!("{field}.quobyte");
    let registry = source.registry.as_str();
    if registry.is_empty() {
        report.missing(format!("{field}.registry"), PAIRS);
    } else if text(source.tenant.as_ref()).len() > 64 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        report.missing(format!("{field}.tenant"), detail);
    } else if !registry.split(',').all(is_pair) {
        report.invalid(format!("{field}.registry"), registry, PAIRS);
    }
    needs(&field, &[("volume", &source.volume)], report);
}

/// `host:port`, where only brackets may hold more colons.
fn is_pair(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => rest
            .split_once("]:")
            .is_some_and(|(host, port)| !host.contains('[') && !port.contains([':', '[', ']'])),
        None => text.matches(':').count() == 1 && !text.contains(['[', ']']),
    }
}

pub(super) fn fibre_channel(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.fc else {
        return;
    };
    let names = source.target_wwns.as_deref().unwrap_or_default();
    let has_ids = source.wwids.as_ref().is_some_and(|ids| !ids.is_empty());
    let targets = format!("{field}.fc.targetWWNs");
    if names.is_empty() && !has_ids {
        let detail = "must specify either targetWWNs or wwids, but not both";
        report.missing(targets.clone(), detail);
    }
    if !names.is_empty() && has_ids {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        report.invalid(targets, names, detail);
    }
    let lun = format!("{field}.fc.lun");
    match source.lun {
        _ if names.is_empty() => {}
        None => report.missing(lun, "lun is required if targetWWNs is specified"),
        Some(number) => report.between(lun, number.into(), 0..=255),
    }
}

pub(super) fn flex(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.flex_volume else {
        return;
    };
    let field = format!("{field}.flexVolume");
    needs(&field, &[("driver", &source.driver)], report);
    for key in source.options.iter().flatten().map(|(key, _)| key) {
        let namespace = key.split('/').next().unwrap_or_default();
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            report.invalid(format!("{field}.options[{key}]"), key, detail);
        }
    }
}

pub(super) fn azure_file(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.azure_file {
        let fields = [
            ("secretName", source.secret_name.as_str()),
            ("shareName", &source.share_name),
        ];
        needs(&format!("{field}.azureFile"), &fields, report);
    }
}

pub(super) fn azure_disk(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.azure_disk else {
        return;
    };
    let field = format!("{field}.azureDisk");
    let fields = [
        ("diskName", source.disk_name.as_str()),
        ("diskURI", &source.disk_uri),
    ];
    needs(&field, &fields, report);
    if let Some(mode) = &source.caching_mode {
        let known = &["None", "ReadOnly", "ReadWrite"];
        report.known(format!("{field}.cachingMode"), mode, known);
    }
    let Some(kind) = &source.kind else {
        return;
    };
    let known = &["Dedicated", "Managed", "Shared"];
    report.known(format!("{field}.kind"), kind, known);
    let (start, supported): (&str, &'static [&'static str]) = match kind.as_str() {
        "Managed" => (
            "/subscriptions/",
            &[
                "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
            ],
        ),
        _ => (
            "https://",
            &["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"],
        ),
    };
    if !source.disk_uri.starts_with(start) {
        let value = format!("{:?}", source.disk_uri);
        let kind = FieldErrorKind::Unsupported { value, supported };
        report.add(format!("{field}.diskURI"), kind);
    }
}

pub(super) fn vsphere(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.vsphere_volume {
        let fields = [("volumePath", source.volume_path.as_str())];
        needs(&format!("{field}.vsphereVolume"), &fields, report);
    }
}

pub(super) fn photon(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.photon_persistent_disk {
        let fields = [("pdID", source.pd_id.as_str())];
        needs(&format!("{field}.photonPersistentDisk"), &fields, report);
    }
}

pub(super) fn portworx(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.portworx_volume {
        let fields = [("volumeID", source.volume_id.as_str())];
        needs(&format!("{field}.portworxVolume"), &fields, report);
    }
}

pub(super) fn storage_os(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.storageos else {
        return;
    };
    let field = format!("{field}.storageos");
    let name = text(source.volume_name.as_ref());
    if name.is_empty() {
        report.required(format!("{field}.volumeName"));
    } else {
        report.name(format!("{field}.volumeName"), name, names::label);
    }
    let namespace = text(source.volume_namespace.as_ref());
    if !namespace.is_empty() {
        report.name(format!("{field}.volumeNamespace"), namespace, names::label);
    }
    needs_name(
        format!("{field}.secretRef"),
        source.secret_ref.as_ref(),
        report,
    );
}

pub(super) fn scale_io(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.scale_io {
        let fields = [
            ("gateway", source.gateway.as_str()),
            ("system", &source.system),
            ("volumeName", text(source.volume_name.as_ref())),
        ];
        needs(&format!("{field}.scaleIO"), &fields, report);
    }
}

pub(super) fn csi(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.csi else {
        return;
    };
    let field = format!("{field}.csi");
    let driver = format!("{field}.driver");
    report.some(driver.clone(), &source.driver);
    report.too_long(driver.clone(), source.driver.len(), MAX_DRIVER);
    for detail in names::subdomain(&source.driver.to_lowercase()) {
        report.invalid(driver.clone(), &source.driver, detail);
    }
    if let Some(secret) = &source.node_publish_secret_ref {
        if secret.name.is_empty() {
            report.required(format!("{field}.nodePublishSecretRef.name"));
        } else {
            report.name(format!("{field}.name"), &secret.name, names::subdomain);
        }
    }
}
