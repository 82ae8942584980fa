//! Conversions between `logic_volumes` and the storage contract, one function each direction.

use std::path::Path;

use jiff::Timestamp;
use logic_api::pod::volume_stats::{VolumeHealthReport, VolumeHealthState, VolumeMetrics};
use logic_volumes::{
    AccessMode, CsiToken, CsiVolume, EmptyDir, FileSet, FsGroupChangePolicy, Medium, Ownership,
    ReconstructedState, ReconstructedVolume, RegisteredDriver, Relabel, Secrets, Volume,
    VolumeAccess, VolumeId, VolumeMode, VolumeSource,
};
use proto::storage as wire;

use super::{
    DriverEvent, ExpandSpec, MeasureTarget, MountPod, MountResult, MountSpec, StagedVolume,
    StorageCapabilities, SubpathSpec, UnmountTarget,
};

type WireSource = wire::volume::Source;

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(super) fn abilities(kind: wire::KindCapability) -> (String, StorageCapabilities) {
    let abilities = StorageCapabilities {
        staged: kind.staged,
        block: kind.block,
        expand: kind.expand,
        updates: kind.updates,
    };
    (kind.kind, abilities)
}

fn volume(volume: &Volume) -> wire::Volume {
    wire::Volume {
        id: volume.id.0.clone(),
        kind: volume.kind.as_str().to_owned(),
        name: volume.folder.clone(),
        source: source(&volume.source),
    }
}

fn source(source: &VolumeSource) -> Option<WireSource> {
    Some(match source {
        VolumeSource::EmptyDir(folder) => WireSource::EmptyDir(empty_dir(folder)),
        VolumeSource::HostPath { path, r#type } => WireSource::HostPath(wire::HostPath {
            path: path.clone(),
            r#type: r#type.clone(),
        }),
        VolumeSource::Files(set) => WireSource::Files(files(set)),
        VolumeSource::Local { path, fs_type } => WireSource::Local(wire::Local {
            path: path.clone(),
            fs_type: fs_type.clone(),
        }),
        VolumeSource::Nfs { server, path } => WireSource::Nfs(wire::Nfs {
            server: server.clone(),
            path: path.clone(),
        }),
        VolumeSource::Csi(source) => WireSource::Csi(csi(source)),
        VolumeSource::Image => return None,
    })
}

fn empty_dir(folder: &EmptyDir) -> wire::EmptyDir {
    let page_size = match folder.medium {
        Medium::HugePages(size) => size.unwrap_or_default(),
        Medium::Disk | Medium::Memory => 0,
    };
    wire::EmptyDir {
        medium: medium(folder.medium).into(),
        size_limit: folder.size_limit.unwrap_or_default(),
        page_size,
        mode: 0,
    }
}

fn medium(medium: Medium) -> wire::Medium {
    match medium {
        Medium::Disk => wire::Medium::Default,
        Medium::Memory => wire::Medium::Memory,
        Medium::HugePages(_) => wire::Medium::HugePages,
    }
}

fn files(set: &FileSet) -> wire::FileSet {
    let file = |(path, file): (&String, &logic_volumes::FileProjection)| wire::File {
        path: path.clone(),
        data: file.data.clone(),
        mode: file.mode,
        owner: file.owner,
    };
    wire::FileSet {
        files: set.files.iter().map(file).collect(),
        medium: medium(set.medium).into(),
        mount_points: set.mount_points.iter().cloned().collect(),
    }
}

fn csi(source: &CsiVolume) -> wire::Csi {
    let tokens_in = match source.tokens_in_secrets {
        true => wire::TokensIn::Secrets,
        false => wire::TokensIn::Context,
    };
    wire::Csi {
        driver: source.driver.clone(),
        volume_handle: source.volume_handle.clone(),
        fs_type: source.fs_type.clone(),
        access_mode: source
            .access_mode
            .map_or(wire::AccessMode::Unspecified, access_mode)
            .into(),
        volume_context: source.volume_context.clone(),
        publish_context: source.publish_context.clone(),
        stage_secrets: secrets(&source.stage_secrets),
        publish_secrets: secrets(&source.publish_secrets),
        expand_secrets: secrets(&source.expand_secrets),
        ephemeral: source.ephemeral,
        pod_info: source.pod_info,
        tokens: source.tokens.iter().map(token).collect(),
        tokens_in: tokens_in.into(),
        migrated_from: source.migrated_from.clone(),
        size: source.size,
        selinux_mount: source.selinux_mount,
        republish: source.republish,
    }
}

fn access(access: VolumeAccess) -> wire::Access {
    match access {
        VolumeAccess::ReadWrite => wire::Access::ReadWrite,
        VolumeAccess::ReadOnly => wire::Access::ReadOnly,
    }
}

fn access_mode(mode: AccessMode) -> wire::AccessMode {
    match mode {
        AccessMode::ReadWriteOnce => wire::AccessMode::ReadWriteOnce,
        AccessMode::ReadOnlyMany => wire::AccessMode::ReadOnlyMany,
        AccessMode::ReadWriteMany => wire::AccessMode::ReadWriteMany,
        AccessMode::ReadWriteOncePod => wire::AccessMode::ReadWriteOncePod,
    }
}

fn secrets(secrets: &Secrets) -> Option<wire::Secrets> {
    (!secrets.0.is_empty()).then(|| wire::Secrets {
        values: secrets.0.clone(),
    })
}

fn token(token: &CsiToken) -> wire::Token {
    wire::Token {
        audience: token.audience.clone(),
        token: token.token.clone(),
        expires: token.expires.to_string(),
    }
}

fn pod(pod: &MountPod) -> Option<wire::Pod> {
    Some(wire::Pod {
        uid: pod.uid.to_string(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        service_account: pod.service_account.clone(),
    })
}

fn ownership(ownership: Ownership) -> wire::Ownership {
    let policy = match ownership.policy {
        FsGroupChangePolicy::Always => wire::ChangePolicy::ChangeAlways,
        FsGroupChangePolicy::OnRootMismatch => wire::ChangePolicy::ChangeOnRootMismatch,
    };
    wire::Ownership {
        fs_group: ownership.fs_group,
        policy: policy.into(),
    }
}

fn mode(mode: VolumeMode) -> wire::Mode {
    match mode {
        VolumeMode::FileSystem => wire::Mode::FileSystem,
        VolumeMode::Block => wire::Mode::Block,
    }
}

pub(super) fn stage(staged: &Volume, within_ms: u32) -> wire::StageRequest {
    wire::StageRequest {
        volume: Some(volume(staged)),
        access: access(staged.access).into(),
        mount_options: staged.mount_options.clone(),
        ownership: staged.ownership.map(ownership),
        selinux_label: staged.selinux_label.clone(),
        within_ms,
        mode: mode(staged.mode).into(),
        device: String::new(),
    }
}

pub(super) fn unstage(staged: &StagedVolume, within_ms: u32) -> wire::UnstageRequest {
    wire::UnstageRequest {
        volume_id: staged.id.0.clone(),
        kind: staged.kind.clone(),
        path: text(&staged.path),
        within_ms,
        mode: mode(staged.mode).into(),
        volume: staged.volume.as_ref().map(volume),
    }
}

pub(super) fn mount(wish: &MountSpec, within_ms: u32) -> wire::MountRequest {
    wire::MountRequest {
        volume: Some(volume(&wish.volume)),
        pod: pod(&wish.pod),
        target: text(&wish.target),
        access: access(wish.volume.access).into(),
        mount_options: wish.volume.mount_options.clone(),
        ownership: wish.volume.ownership.map(ownership),
        selinux_label: wish.volume.selinux_label.clone(),
        within_ms,
    }
}

pub(super) fn mounted(answer: wire::MountResponse, wish: &MountSpec) -> MountResult {
    let path = match answer.path.is_empty() {
        true => wish.target.clone(),
        false => answer.path.into(),
    };
    // A hostPath volume is never relabelled.
    let own = matches!(wish.volume.source, VolumeSource::HostPath { .. });
    let relabel = match answer.selinux_mounted || own {
        true => Relabel::No,
        false => Relabel::Yes,
    };
    MountResult {
        path,
        relabel,
        warnings: answer.warnings,
    }
}

pub(super) fn unmount(place: &UnmountTarget, within_ms: u32) -> wire::UnmountRequest {
    wire::UnmountRequest {
        volume_id: place.id.0.clone(),
        kind: place.kind.clone(),
        name: place.folder.clone(),
        pod_uid: place.uid.to_string(),
        target: text(&place.target),
        within_ms,
    }
}

pub(super) fn map_block(wish: &MountSpec, within_ms: u32) -> wire::MapBlockRequest {
    wire::MapBlockRequest {
        volume: Some(volume(&wish.volume)),
        pod: pod(&wish.pod),
        target: text(&wish.target),
        access: access(wish.volume.access).into(),
        within_ms,
    }
}

pub(super) fn unmap_block(place: &UnmountTarget, within_ms: u32) -> wire::UnmapBlockRequest {
    wire::UnmapBlockRequest {
        volume_id: place.id.0.clone(),
        kind: place.kind.clone(),
        name: place.folder.clone(),
        pod_uid: place.uid.to_string(),
        target: text(&place.target),
        within_ms,
    }
}

/// A volume from a plugin's list; none for a state that this agent does not know.
pub(super) fn found(found: wire::Found) -> Option<ReconstructedVolume> {
    let state = match found.state() {
        wire::State::Mounted => ReconstructedState::Mounted,
        wire::State::Staged => ReconstructedState::Staged,
        wire::State::StagedBlock => ReconstructedState::StagedBlock,
        wire::State::Mapped => ReconstructedState::Mapped,
        wire::State::LeftOver => ReconstructedState::LeftOver,
        wire::State::Unspecified => return None,
    };
    Some(ReconstructedVolume {
        state,
        id: (!found.volume_id.is_empty()).then_some(VolumeId(found.volume_id)),
        kind: found.kind,
        folder: found.name,
        pod: (!found.pod_uid.is_empty()).then(|| found.pod_uid.into()),
        path: found.path.into(),
        driver: found.driver,
        volume_handle: found.volume_handle,
    })
}

pub(super) fn stats(measured: &MeasureTarget, within_ms: u32) -> wire::StatsRequest {
    wire::StatsRequest {
        volume_id: measured.id.0.clone(),
        kind: measured.kind.clone(),
        name: measured.folder.clone(),
        path: text(&measured.path),
        within_ms,
        driver: measured.driver.clone(),
        volume_handle: measured.volume_handle.clone(),
        staged: String::new(),
    }
}

pub(super) fn figures(answer: wire::StatsResponse) -> VolumeMetrics {
    let taken = i64::try_from(answer.taken_ms).ok();
    let abnormal = answer.health.map(|health| VolumeHealthReport {
        state: match health.abnormal {
            true => VolumeHealthState::Abnormal,
            false => VolumeHealthState::Normal,
        },
        message: health.message,
    });
    VolumeMetrics {
        capacity: answer.capacity,
        available: answer.available,
        used: answer.used,
        inodes: answer.inodes,
        inodes_free: answer.inodes_free,
        inodes_used: answer.inodes_used,
        at_least: answer.at_least,
        at: taken
            .filter(|taken| *taken > 0)
            .and_then(|taken| Timestamp::from_millisecond(taken).ok()),
        abnormal,
    }
}

pub(super) fn batch_stats(measured: &[MeasureTarget], within_ms: u32) -> wire::BatchStatsRequest {
    wire::BatchStatsRequest {
        volumes: measured.iter().map(|one| stats(one, 0)).collect(),
        within_ms,
    }
}

pub(super) fn result(one: wire::BatchStatsResult) -> Result<VolumeMetrics, String> {
    match one.result {
        Some(wire::batch_stats_result::Result::Stats(told)) => Ok(figures(told)),
        Some(wire::batch_stats_result::Result::Refused(why)) => Err(why),
        None => Err("nothing is said of it".to_owned()),
    }
}

pub(super) fn expand(growth: &ExpandSpec, within_ms: u32) -> wire::ExpandRequest {
    wire::ExpandRequest {
        volume: Some(volume(&growth.volume)),
        path: growth.path.as_deref().map(text).unwrap_or_default(),
        staged: String::new(),
        size: growth.size,
        within_ms,
        mode: mode(growth.volume.mode).into(),
    }
}

pub(super) fn bind(wish: &SubpathSpec, within_ms: u32) -> wire::BindSubpathRequest {
    wire::BindSubpathRequest {
        volume_id: wish.id.0.clone(),
        kind: wish.kind.clone(),
        pod_uid: wish.uid.to_string(),
        volume_name: wish.subpath.volume.clone(),
        root: text(&wish.root),
        subpath: wish.subpath.path.clone(),
        container: wish.container.clone(),
        index: wish.subpath.index,
        target: text(&wish.target),
        within_ms,
        access: access(wish.subpath.access).into(),
    }
}

/// None for an event of a kind that this agent does not know.
pub(super) fn news(event: wire::Event) -> Option<DriverEvent> {
    Some(match event.event? {
        wire::event::Event::Backend(backend) => DriverEvent::There(RegisteredDriver {
            name: backend.name,
            node_id: backend.node_id,
            max_volumes: u64::try_from(backend.max_volumes)
                .ok()
                .filter(|max| *max > 0),
            topology: backend.topology,
            endpoint: backend.endpoint,
            versions: backend.versions,
            abilities: backend.abilities.into_iter().collect(),
        }),
        wire::event::Event::Gone(gone) => DriverEvent::Gone(gone.name),
        wire::event::Event::Refused(refused) => DriverEvent::Refused {
            endpoint: refused.endpoint,
            name: refused.name,
            why: refused.why,
        },
        wire::event::Event::Synced(wire::Synced {}) => DriverEvent::Synced,
    })
}
