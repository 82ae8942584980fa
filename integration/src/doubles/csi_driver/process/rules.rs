//! What CSI requires of the caller. A call that breaks it is refused, and a complaint is journaled.

use std::path::{Path, PathBuf};

use proto::csi::volume_capability::AccessType;
use proto::csi::volume_capability::access_mode::Mode;
use proto::csi::{
    NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnstageVolumeRequest, VolumeCapability,
};
use serde_json::{Value, json};
use tonic::Code;

use super::dispatcher::ProtocolError;
use super::record::{OperationStep, VolumeRecord};
use super::request_json;
use crate::doubles::csi_driver::{DriverCapability, DriverOptions};

type RuleResult = Result<(), ProtocolError>;

/// Says what is wrong unless it holds.
fn ensure(holds: bool, code: Code, text: impl FnOnce() -> String) -> RuleResult {
    match holds {
        true => Ok(()),
        false => Err(ProtocolError::new(code, text())),
    }
}

fn argument(holds: bool, text: &str) -> RuleResult {
    ensure(holds, Code::InvalidArgument, || text.to_owned())
}

pub(super) fn stage(
    options: &DriverOptions,
    record: &VolumeRecord,
    request: &NodeStageVolumeRequest,
) -> RuleResult {
    ensure(
        options.can(DriverCapability::Stage),
        Code::Unimplemented,
        || "NodeStageVolume of a driver that does not stage".to_owned(),
    )?;
    argument(!request.volume_id.is_empty(), "no volume_id")?;
    capability(options, request.volume_capability.as_ref())?;
    secrets(&options.stage_secret, &request.secrets)?;
    let path = absolute("staging_target_path", &request.staging_target_path)?;
    ensure(path.is_dir(), Code::FailedPrecondition, || {
        format!("the caller has not made the folder {}", path.display())
    })?;
    let Some(staged) = record
        .staged
        .as_ref()
        .filter(|staged| staged.step == OperationStep::Done)
    else {
        return Ok(());
    };
    ensure(staged.path == path, Code::AlreadyExists, || {
        format!(
            "staged at {} and again at {}",
            staged.path.display(),
            path.display()
        )
    })?;
    let arguments = stage_arguments(request);
    ensure(staged.arguments == arguments, Code::AlreadyExists, || {
        format!(
            "staged with {} and again with {arguments}",
            staged.arguments
        )
    })
}

/// What must be the same when a volume is staged again. Its group may be another pod's.
pub(super) fn stage_arguments(request: &NodeStageVolumeRequest) -> Value {
    let mut capability = request_json::capability(request.volume_capability.as_ref());
    if let Some(mount) = capability.get_mut("mount").and_then(Value::as_object_mut) {
        mount.remove("volume_mount_group");
    }
    json!({ "capability": capability, "context": request.volume_context })
}

pub(super) fn publish(
    options: &DriverOptions,
    record: &VolumeRecord,
    request: &NodePublishVolumeRequest,
) -> RuleResult {
    argument(!request.volume_id.is_empty(), "no volume_id")?;
    capability(options, request.volume_capability.as_ref())?;
    secrets(&options.publish_secret, &request.secrets)?;
    for key in &options.context_key {
        ensure(
            request.volume_context.contains_key(key),
            Code::InvalidArgument,
            || format!("the context has no {key}"),
        )?;
    }
    let target = absolute("target_path", &request.target_path)?;
    let parent = target.parent().is_some_and(Path::is_dir);
    ensure(parent, Code::FailedPrecondition, || {
        format!(
            "the caller has not made the folder above {}",
            target.display()
        )
    })?;
    match options.can(DriverCapability::Stage) && !is_ephemeral(request) {
        true => staged_before(record, request)?,
        false => argument(
            request.staging_target_path.is_empty(),
            "a staging_target_path of a volume that is not staged",
        )?,
    }
    let arguments = publish_arguments(request);
    let before = record.published.get(&target);
    let before = before.filter(|published| published.step == OperationStep::Done);
    if let Some(before) = before {
        ensure(before.arguments == arguments, Code::AlreadyExists, || {
            format!(
                "published at {} with {} and again with {arguments}",
                target.display(),
                before.arguments
            )
        })?;
    }
    alone(record, request, &target)
}

fn staged_before(record: &VolumeRecord, request: &NodePublishVolumeRequest) -> RuleResult {
    let path = absolute("staging_target_path", &request.staging_target_path)?;
    let staged = record.staged.as_ref();
    let staged = staged.filter(|staged| staged.step == OperationStep::Done);
    ensure(
        staged.is_some_and(|staged| staged.path == path),
        Code::FailedPrecondition,
        || format!("published before it was staged at {}", path.display()),
    )
}

/// A volume for a single writer has one target.
fn alone(record: &VolumeRecord, request: &NodePublishVolumeRequest, target: &Path) -> RuleResult {
    let capability = request.volume_capability.as_ref();
    let mode = capability.and_then(|capability| capability.access_mode.as_ref());
    if mode.is_none_or(|mode| mode.mode() != Mode::SingleNodeSingleWriter) {
        return Ok(());
    }
    let other = record.published.keys().find(|path| *path != target);
    ensure(other.is_none(), Code::FailedPrecondition, || {
        format!("for a single writer, but published at {other:?} too")
    })
}

/// The volume is the pod's own.
pub(super) fn is_ephemeral(request: &NodePublishVolumeRequest) -> bool {
    let word = request.volume_context.get("csi.storage.k8s.io/ephemeral");
    word.is_some_and(|word| word == "true")
}

/// What must be the same when a volume is published again: tokens and secrets grow old.
pub(super) fn publish_arguments(request: &NodePublishVolumeRequest) -> Value {
    let mut context = request.volume_context.clone();
    context.remove("csi.storage.k8s.io/serviceAccount.tokens");
    json!({
        "capability": request_json::capability(request.volume_capability.as_ref()),
        "readonly": request.readonly,
        "staging": request.staging_target_path,
        "context": context,
    })
}

pub(super) fn unstage(record: &VolumeRecord, request: &NodeUnstageVolumeRequest) -> RuleResult {
    argument(!request.volume_id.is_empty(), "no volume_id")?;
    let path = absolute("staging_target_path", &request.staging_target_path)?;
    let targets: Vec<&PathBuf> = record.published.keys().collect();
    ensure(targets.is_empty(), Code::FailedPrecondition, || {
        format!("unstaged while it is published at {targets:?}")
    })?;
    let staged = record.staged.as_ref();
    ensure(
        staged.is_none_or(|staged| staged.path == path),
        Code::InvalidArgument,
        || format!("unstaged from {}, but staged at {staged:?}", path.display()),
    )
}

pub(super) fn expand(
    options: &DriverOptions,
    record: &VolumeRecord,
    request: &NodeExpandVolumeRequest,
) -> RuleResult {
    ensure(
        options.can(DriverCapability::Expand),
        Code::Unimplemented,
        || "NodeExpandVolume of a driver that does not expand".to_owned(),
    )?;
    argument(!request.volume_id.is_empty(), "no volume_id")?;
    secrets(&options.expand_secret, &request.secrets)?;
    let path = absolute("volume_path", &request.volume_path)?;
    let staged = record.staged.as_ref();
    let known =
        record.published.contains_key(&path) || staged.is_some_and(|staged| staged.path == path);
    ensure(known, Code::NotFound, || {
        format!("the volume is not at {}", path.display())
    })?;
    let offline = options.offline_expansion && !record.published.is_empty();
    ensure(!offline, Code::FailedPrecondition, || {
        "expanded while it is published, which the driver does not bear".to_owned()
    })
}

fn capability(options: &DriverOptions, capability: Option<&VolumeCapability>) -> RuleResult {
    let capability = capability
        .ok_or_else(|| ProtocolError::new(Code::InvalidArgument, "no volume_capability"))?;
    argument(capability.access_type.is_some(), "no access_type")?;
    let mode = capability.access_mode.as_ref().map(|mode| mode.mode());
    let mode = mode.unwrap_or(Mode::Unknown);
    argument(mode != Mode::Unknown, "no access_mode")?;
    let finer = matches!(
        mode,
        Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter
    );
    let wrong_word = match options.can(DriverCapability::MultiWriter) {
        true => mode == Mode::SingleNodeWriter,
        false => finer,
    };
    ensure(!wrong_word, Code::InvalidArgument, || {
        format!("access mode {} to this driver", mode.as_str_name())
    })?;
    let group = match &capability.access_type {
        Some(AccessType::Mount(mount)) => mount.volume_mount_group.as_str(),
        Some(AccessType::Block(_)) | None => "",
    };
    argument(
        group.is_empty() || options.can(DriverCapability::MountGroup),
        "a group for a driver that sets none",
    )
}

fn secrets(
    wanted: &[(String, String)],
    given: &std::collections::BTreeMap<String, String>,
) -> RuleResult {
    let missing = wanted
        .iter()
        .find(|(key, value)| given.get(key) != Some(value));
    ensure(missing.is_none(), Code::Unauthenticated, || {
        let key = missing.map(|(key, _)| key.as_str()).unwrap_or_default();
        format!("the secret {key} is missing, or not the right one")
    })
}

fn absolute(field: &str, path: &str) -> Result<PathBuf, ProtocolError> {
    let path = PathBuf::from(path);
    ensure(path.is_absolute(), Code::InvalidArgument, || {
        format!("{field} is {path:?}, expected an absolute path")
    })?;
    Ok(path)
}
