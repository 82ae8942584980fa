//! Azure's disks and file shares.

use k8s_openapi::api::core::v1::{
    self as core, AzureDiskVolumeSource, AzureFilePersistentVolumeSource, PersistentVolume,
    PersistentVolumeSpec, SecretReference,
};

use super::{CsiSource, InlineSource, PluginName, Translation, attributes};

pub(super) const DISK: PluginName = PluginName {
    plugin: "kubernetes.io/azure-disk",
    driver: "disk.csi.azure.com",
};
pub(super) const FILE: PluginName = PluginName {
    plugin: "kubernetes.io/azure-file",
    driver: "file.csi.azure.com",
};

const MANAGED: &str = "Managed";
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";

pub(super) fn persistent(
    volume: &PersistentVolume,
    spec: &PersistentVolumeSpec,
) -> Translation<(PluginName, CsiSource)> {
    if let Some(source) = &spec.azure_disk {
        return Some(disk(source).map(|made| (DISK, made)));
    }
    let source = spec.azure_file.as_ref()?;
    Some(persistent_file(volume, spec, source).map(|made| (FILE, made)))
}

pub(super) fn inline(
    volume: &core::Volume,
    namespace: &str,
) -> Translation<(PluginName, InlineSource)> {
    if let Some(source) = &volume.azure_disk {
        let made = disk(source).map(|translated| InlineSource {
            name: source.disk_uri.clone(),
            access_mode: "ReadWriteOnce",
            source: translated,
        });
        return Some(made.map(|made| (DISK, made)));
    }
    let source = volume.azure_file.as_ref()?;
    let share = AzureFileShare {
        group: "",
        name: &source.share_name,
        secret: &source.secret_name,
        namespace,
        volume: &volume.name,
        read_only: source.read_only,
    };
    let made = InlineSource {
        name: share.handle(),
        access_mode: "ReadWriteMany",
        source: share.source(),
    };
    Some(Ok((FILE, made)))
}

fn disk(source: &AzureDiskVolumeSource) -> Result<CsiSource, String> {
    if let Some(kind) = &source.kind
        && !kind.eq_ignore_ascii_case(MANAGED)
    {
        return Err(format!("kind({kind}) is not supported in csi migration"));
    }
    let mut made = CsiSource {
        driver: DISK.driver.to_owned(),
        volume_handle: source.disk_uri.clone(),
        read_only: source.read_only,
        fs_type: source.fs_type.clone(),
        ..CsiSource::default()
    };
    let mut words = super::super::VolumeAttributes::new();
    words.insert("kind".to_owned(), MANAGED.to_owned());
    if let Some(mode) = source.caching_mode.clone() {
        words.insert("cachingmode".to_owned(), mode);
    }
    if let Some(fs_type) = source.fs_type.clone() {
        words.insert("fstype".to_owned(), fs_type);
    }
    made.volume_attributes = Some(words);
    Ok(made)
}

fn persistent_file(
    volume: &PersistentVolume,
    spec: &PersistentVolumeSpec,
    source: &AzureFilePersistentVolumeSource,
) -> Result<CsiSource, String> {
    let claim = spec.claim_ref.as_ref();
    let namespace = match &source.secret_namespace {
        Some(namespace) => namespace.as_str(),
        None => claim
            .and_then(|claim| claim.namespace.as_deref())
            .unwrap_or_default(),
    };
    if namespace.is_empty() {
        let text = "could not find a secret namespace in PersistentVolumeSource or ClaimRef";
        return Err(text.to_owned());
    }
    let annotations = volume.metadata.annotations.as_ref();
    let group = annotations.and_then(|words| words.get(RESOURCE_GROUP));
    let share = AzureFileShare {
        group: group.map_or("", String::as_str),
        name: &source.share_name,
        secret: &source.secret_name,
        namespace,
        volume: volume.metadata.name.as_deref().unwrap_or_default(),
        read_only: source.read_only,
    };
    Ok(share.source())
}

struct AzureFileShare<'a> {
    group: &'a str,
    name: &'a str,
    secret: &'a str,
    namespace: &'a str,
    volume: &'a str,
    read_only: Option<bool>,
}

impl AzureFileShare<'_> {
    fn handle(&self) -> String {
        let account = account(self.secret);
        [self.group, account, self.name, self.volume, self.namespace].join("#")
    }

    fn source(&self) -> CsiSource {
        CsiSource {
            driver: FILE.driver.to_owned(),
            volume_handle: self.handle(),
            read_only: self.read_only,
            volume_attributes: attributes([("sharename", self.name.to_owned())]),
            node_stage_secret_ref: Some(SecretReference {
                name: Some(self.secret.to_owned()),
                namespace: Some(self.namespace.to_owned()),
            }),
            ..CsiSource::default()
        }
    }
}

/// The account in `azure-storage-account-ACCOUNT-secret`; a secret of another name is taken for it.
fn account(secret: &str) -> &str {
    let found = secret
        .split_once("azure-storage-account-")
        .and_then(|(_, rest)| rest.rfind("-secret").map(|end| &rest[..end]));
    found.filter(|name| !name.is_empty()).unwrap_or(secret)
}
