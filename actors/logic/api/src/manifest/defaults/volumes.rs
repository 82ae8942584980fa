//! Defaults of volume sources.

use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, ProjectedVolumeSource, RBDVolumeSource, ScaleIOVolumeSource, Volume,
    VolumeProjection,
};

use super::{field_ref, pull_policy, text};

const FILE_MODE: i32 = 0o644;
const TOKEN_SECONDS: i64 = 3600;

pub(super) fn apply(volume: &mut Volume) {
    let no_source = Volume {
        name: volume.name.clone(),
        ..Volume::default()
    };
    if *volume == no_source {
        volume.empty_dir = Some(Default::default());
    }
    if let Some(source) = &mut volume.host_path {
        source.type_.get_or_insert_default();
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(FILE_MODE);
        let files = source.items.iter_mut().flatten();
        files
            .filter_map(|file| file.field_ref.as_mut())
            .for_each(field_ref);
    }
    if let Some(source) = &mut volume.image {
        let policy = pull_policy(source.reference.as_deref().unwrap_or_default());
        text(&mut source.pull_policy, policy);
    }
    volume.projected.iter_mut().for_each(projected);
    remote(volume);
}

fn remote(volume: &mut Volume) {
    if let Some(source) = &mut volume.iscsi {
        text(&mut source.iscsi_interface, "default");
    }
    volume.rbd.iter_mut().for_each(rbd);
    volume.azure_disk.iter_mut().for_each(azure_disk);
    volume.scale_io.iter_mut().for_each(scale_io);
    if let Some(template) = volume
        .ephemeral
        .as_mut()
        .and_then(|source| source.volume_claim_template.as_mut())
    {
        template
            .spec
            .volume_mode
            .get_or_insert_with(|| "Filesystem".to_owned());
    }
}

fn projected(source: &mut ProjectedVolumeSource) {
    source.default_mode.get_or_insert(FILE_MODE);
    source.sources.iter_mut().flatten().for_each(projection);
}

fn projection(source: &mut VolumeProjection) {
    if let Some(files) = &mut source.downward_api {
        let files = files.items.iter_mut().flatten();
        files
            .filter_map(|file| file.field_ref.as_mut())
            .for_each(field_ref);
    }
    if let Some(token) = &mut source.service_account_token {
        token.expiration_seconds.get_or_insert(TOKEN_SECONDS);
    }
}

fn rbd(source: &mut RBDVolumeSource) {
    text(&mut source.pool, "rbd");
    text(&mut source.user, "admin");
    text(&mut source.keyring, "/etc/ceph/keyring");
}

fn azure_disk(source: &mut AzureDiskVolumeSource) {
    source
        .caching_mode
        .get_or_insert_with(|| "ReadWrite".to_owned());
    source.fs_type.get_or_insert_with(|| "ext4".to_owned());
    source.read_only.get_or_insert(false);
    source.kind.get_or_insert_with(|| "Shared".to_owned());
}

fn scale_io(source: &mut ScaleIOVolumeSource) {
    text(&mut source.storage_mode, "ThinProvisioned");
    text(&mut source.fs_type, "xfs");
}
