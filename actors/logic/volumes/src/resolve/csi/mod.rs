//! Volumes of CSI drivers.
//!
//! Upstream: pkg/volume/csi/{csi_plugin,csi_attacher,csi_mounter,csi_block}.go (1.36), in their order of checks.

mod attach;
mod limit;
mod tokens;

pub use attach::attachment_name;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, CSIVolumeSource};
use k8s_openapi::api::storage::v1::CSIDriver;
use logic_api::pod::PodView;
use logic_api::pod::hash::hex;
use sha2::{Digest, Sha256};

use super::event_reasons::Operation;
use super::lookup::{ObjectLookup, ResolveFailure, parts};
use super::persistent::{self, PersistentSpec};
use super::{VolumeResolution, fs_group, local, selinux};
use crate::{
    AccessMode, CsiVolume, Ownership, RegisteredDriver, RetryWhen, Secrets, Volume, VolumeAccess,
    VolumeId, VolumeKind, VolumeMode, VolumeSource,
};

const STAGE: &str = "STAGE_UNSTAGE_VOLUME";

/// What a volume that outlives pods is published with.
struct PublishInputs<'a> {
    backend: &'a RegisteredDriver,
    attached: attach::AttachedVolume,
    stage_secrets: Secrets,
    publish_secrets: Secrets,
    tokens: tokens::DriverTokens,
}

/// A volume that a claim is bound to, or an inline one that was migrated.
pub(super) fn persistent(
    lookup: &mut ObjectLookup<'_>,
    volume: &PersistentSpec,
    source: &CSIPersistentVolumeSource,
) -> Result<VolumeResolution, ResolveFailure> {
    let CSIPersistentVolumeSource {
        driver: name,
        volume_handle: handle,
        ..
    } = source;
    let id = VolumeId(format!("kubernetes.io/csi/{name}^{handle}"));
    let driver = lookup.csi_driver(name);
    let driver = driver.as_deref();
    let selinux_label = selinux::label(lookup, volume, driver)?;
    if attach::is_needed(driver) {
        lookup.attachable = Some(id.clone());
    }
    persistent::check(lookup, volume, &id)?;
    let ready = ready(lookup, volume, (source, driver), &id)?;
    let (ownership, mount_options) = match volume.mode {
        VolumeMode::FileSystem => {
            let ownership = ownership(lookup, volume, (source, driver), ready.backend);
            (ownership, volume.options_of_spec())
        }
        VolumeMode::Block => (None, Vec::new()),
    };
    let made = CsiVolume {
        volume_handle: handle.clone(),
        fs_type: source.fs_type.clone().unwrap_or_default(),
        access_mode: volume.access_mode(),
        volume_context: source.volume_attributes.clone().unwrap_or_default(),
        publish_context: ready.attached.context,
        stage_secrets: ready.stage_secrets,
        publish_secrets: ready.publish_secrets,
        expand_secrets: expand_secrets(lookup, source),
        tokens: ready.tokens.tokens,
        migrated_from: volume.migrated_from.to_owned(),
        size: volume.size(),
        ..settings(name, driver)
    };
    let source = VolumeSource::Csi(Box::new(made));
    Ok(VolumeResolution {
        refresh_at: tokens::refresh_at(lookup.context.now, driver, ready.tokens.look_at),
        ..VolumeResolution::from(Volume {
            mount_options,
            ownership,
            selinux_label,
            attachment: ready.attached.attachment,
            ..persistent::made(volume, id, VolumeKind::Csi, source)
        })
    })
}

/// All that has to be there before the driver is called.
fn ready<'a>(
    lookup: &mut ObjectLookup<'a>,
    volume: &PersistentSpec,
    (source, driver): (&CSIPersistentVolumeSource, Option<&CSIDriver>),
    id: &VolumeId,
) -> Result<PublishInputs<'a>, ResolveFailure> {
    if source.volume_handle.is_empty() {
        let cause = "kubernetes.io/csi: attacher.GetDeviceMountPath failed to make device mount path: makeDeviceMountPath failed, CSIPersistentVolumeSource volume handle is empty";
        return Err(volume.failed(Operation::StagePath, cause, RetryWhen::Changed));
    }
    let attached = attach::attached(lookup, volume, (source, driver), id)?;
    let backend = registered(lookup, volume, &source.driver)?;
    limit::check(lookup, volume, id, (backend, &attached.attachment))?;
    let stage_secrets = stage_secrets(lookup, volume, source, backend)?;
    lives(volume, &source.driver, driver)?;
    let publish_secrets = publish_secrets(lookup, volume, source)?;
    let tokens = match volume.mode {
        VolumeMode::FileSystem => tokens::of(lookup, driver)
            .map_err(|cause| volume.failed(Operation::Publish, &cause, RetryWhen::Changed))?,
        // As upstream: a device is published without.
        VolumeMode::Block => tokens::DriverTokens::default(),
    };
    Ok(PublishInputs {
        backend,
        attached,
        stage_secrets,
        publish_secrets,
        tokens,
    })
}

fn ownership(
    lookup: &ObjectLookup<'_>,
    volume: &PersistentSpec,
    (source, driver): (&CSIPersistentVolumeSource, Option<&CSIDriver>),
    backend: &RegisteredDriver,
) -> Option<Ownership> {
    let asked = fs_group::CsiFsGroup {
        driver,
        backend,
        fs_type: source.fs_type.as_deref().unwrap_or_default(),
        access: volume.access,
        access_modes: volume.access_modes(),
    };
    asked.ownership(lookup.pod)
}

/// A volume that lives and ends with the pod.
pub(super) fn inline(
    lookup: &mut ObjectLookup<'_>,
    name: &str,
    source: &CSIVolumeSource,
) -> Result<VolumeResolution, ResolveFailure> {
    let failed = |cause: String| local::failed(name, &cause, RetryWhen::Changed);
    let driver = lookup.csi_driver(&source.driver);
    let driver = driver.as_deref();
    let Some(backend) = lookup.context.backends.get(&source.driver) else {
        let unknown = unknown(&source.driver);
        return Err(failed(format!(
            "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {unknown}"
        )));
    };
    lifecycle("Ephemeral", &source.driver, driver).map_err(failed)?;
    let publish_secrets = inline_secrets(lookup, source).map_err(failed)?;
    let asked = tokens::of(lookup, driver).map_err(failed)?;
    let access = super::access(source.read_only);
    let ownership = fs_group::CsiFsGroup {
        driver,
        backend,
        fs_type: source.fs_type.as_deref().unwrap_or_default(),
        access,
        access_modes: &["ReadWriteOnce".to_owned()],
    };
    let ownership = ownership.ownership(lookup.pod);
    let made = CsiVolume {
        volume_handle: inline_handle(lookup.pod.uid().as_str(), name),
        fs_type: source.fs_type.clone().unwrap_or_default(),
        access_mode: Some(AccessMode::ReadWriteOnce),
        volume_context: source.volume_attributes.clone().unwrap_or_default(),
        publish_secrets,
        ephemeral: true,
        tokens: asked.tokens,
        ..settings(&source.driver, driver)
    };
    let source = VolumeSource::Csi(Box::new(made));
    Ok(VolumeResolution {
        refresh_at: tokens::refresh_at(lookup.context.now, driver, asked.look_at),
        ..VolumeResolution::from(Volume {
            access,
            ownership,
            ..local::made(lookup, VolumeKind::Csi, name, source)
        })
    })
}

/// Of the pod's namespace; the error is the cause as upstream words it.
fn inline_secrets(
    lookup: &mut ObjectLookup<'_>,
    source: &CSIVolumeSource,
) -> Result<Secrets, String> {
    let Some(reference) = &source.node_publish_secret_ref else {
        return Ok(Secrets::default());
    };
    let (namespace, name) = (lookup.pod.namespace(), &reference.name);
    let secret = lookup.secret(namespace, name);
    secret.map_err(|cause| {
        format!("fetching NodePublishSecretRef {namespace}/{name} failed: {cause}")
    })
}

/// The settings of the `CSIDriver` for all of the driver's volumes; it may be missing.
fn settings(name: &str, driver: Option<&CSIDriver>) -> CsiVolume {
    let says = |of: fn(&CSIDriver) -> Option<bool>| driver.and_then(of) == Some(true);
    CsiVolume {
        driver: name.to_owned(),
        pod_info: says(|driver| driver.spec.pod_info_on_mount),
        tokens_in_secrets: says(|driver| driver.spec.service_account_token_in_secrets),
        selinux_mount: says(|driver| driver.spec.se_linux_mount),
        republish: says(|driver| driver.spec.requires_republish),
        ..CsiVolume::default()
    }
}

fn inline_handle(uid: &str, volume: &str) -> String {
    let digest = Sha256::digest(format!("{uid}{volume}").as_bytes());
    format!("csi-{}", hex(&digest))
}

fn unknown(driver: &str) -> String {
    format!("driver name {driver} not found in the list of registered CSI drivers")
}

fn registered<'a>(
    lookup: &ObjectLookup<'a>,
    volume: &PersistentSpec,
    driver: &str,
) -> Result<&'a RegisteredDriver, ResolveFailure> {
    lookup.context.backends.get(driver).ok_or_else(|| {
        let who = match volume.mode {
            VolumeMode::FileSystem => "attacher.MountDevice failed to create newCsiDriverClient",
            VolumeMode::Block => "blockMapper.SetUpDevice failed to get CSI client",
        };
        let cause = format!("kubernetes.io/csi: {who}: {}", unknown(driver));
        volume.failed(Operation::Stage, &cause, RetryWhen::Changed)
    })
}

/// A driver that does not stage needs none.
fn stage_secrets(
    lookup: &mut ObjectLookup<'_>,
    volume: &PersistentSpec,
    source: &CSIPersistentVolumeSource,
    backend: &RegisteredDriver,
) -> Result<Secrets, ResolveFailure> {
    let reference = source.node_stage_secret_ref.as_ref();
    let Some(reference) = reference.filter(|_| backend.abilities.contains(STAGE)) else {
        return Ok(Secrets::default());
    };
    let (namespace, name) = parts(reference);
    lookup.secret(namespace, name).map_err(|cause| {
        let cause = match volume.mode {
            VolumeMode::FileSystem => {
                format!("fetching NodeStageSecretRef {namespace}/{name} failed: {cause}")
            }
            VolumeMode::Block => {
                format!("failed to get NodeStageSecretRef {namespace}/{name}: {cause}")
            }
        };
        volume.failed(Operation::Stage, &cause, RetryWhen::Changed)
    })
}

fn publish_secrets(
    lookup: &mut ObjectLookup<'_>,
    volume: &PersistentSpec,
    source: &CSIPersistentVolumeSource,
) -> Result<Secrets, ResolveFailure> {
    let Some(reference) = &source.node_publish_secret_ref else {
        return Ok(Secrets::default());
    };
    let (namespace, name) = parts(reference);
    lookup.secret(namespace, name).map_err(|cause| {
        let cause = match volume.mode {
            VolumeMode::FileSystem => {
                format!("fetching NodePublishSecretRef {namespace}/{name} failed: {cause}")
            }
            VolumeMode::Block => format!(
                "kubernetes.io/csi: blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef {namespace}/{name}: {cause}"
            ),
        };
        volume.failed(Operation::Publish, &cause, RetryWhen::Changed)
    })
}

/// Only an expansion needs it: a missing one keeps no pod waiting.
fn expand_secrets(lookup: &mut ObjectLookup<'_>, source: &CSIPersistentVolumeSource) -> Secrets {
    let Some(reference) = &source.node_expand_secret_ref else {
        return Secrets::default();
    };
    let (namespace, name) = parts(reference);
    lookup.secret(namespace, name).unwrap_or_default()
}

/// Upstream asks it of mounts alone.
fn lives(
    volume: &PersistentSpec,
    name: &str,
    driver: Option<&CSIDriver>,
) -> Result<(), ResolveFailure> {
    match volume.mode {
        VolumeMode::Block => Ok(()),
        VolumeMode::FileSystem => lifecycle("Persistent", name, driver)
            .map_err(|cause| volume.failed(Operation::Publish, &cause, RetryWhen::Changed)),
    }
}

/// Whether the driver supports the lifecycle mode; the error is the cause as upstream words it.
fn lifecycle(mode: &str, name: &str, driver: Option<&CSIDriver>) -> Result<(), String> {
    let why = match driver {
        None if mode == "Persistent" => return Ok(()),
        None => "no CSIDriver object".to_owned(),
        Some(driver) => {
            let modes = driver.spec.volume_lifecycle_modes.as_deref();
            let modes = modes.unwrap_or_default();
            // None at all is the API's default: persistent.
            let default = modes.is_empty() && mode == "Persistent";
            if default || modes.iter().any(|known| known == mode) {
                return Ok(());
            }
            let listed: Vec<String> = modes.iter().map(|mode| format!("{mode:?}")).collect();
            format!("only supports [{}]", listed.join(" "))
        }
    };
    Err(format!(
        "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode {mode:?} not supported by driver {name} ({why})"
    ))
}

/// An inline volume that was migrated is read-only if the pod sets `readOnly`; upstream's kubelet ignores that.
pub(super) fn inline_access(volume: &PersistentSpec) -> VolumeAccess {
    let source = volume.spec().and_then(|spec| spec.csi.as_ref());
    super::access(source.and_then(|source| source.read_only))
}
