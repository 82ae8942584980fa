//! `checkpoint`: a running container's state is written by CRIU, as runc has it done.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use oci_spec::runtime::{LinuxNamespaceType, Mount, Spec};
use rust_criu::{CgMode, Criu, criu_ns_to_key};

use super::{Paths, Status};
use crate::arguments::Arguments;
use crate::error::{AnyError, CommandError};

/// The lowest version of CRIU that is used, as CRIU counts them: 3.15.
const MIN_VERSION: u32 = 31_500;
const LOG: &str = "dump.log";
const LOG_LEVEL: i32 = 4;
/// What the container's streams were, for who restores it.
const DESCRIPTORS: &str = "descriptors.json";

/// Why a container is not written.
#[derive(Debug, thiserror::Error)]
enum CheckpointError {
    #[error("criu is of version {0}, expected {MIN_VERSION} or later")]
    Version(u32),
    #[error("criu")]
    Criu(#[source] rust_criu::CriuError),
    #[error("cannot make {0}")]
    Folder(String, #[source] io::Error),
    #[error("cannot open namespace {0}")]
    Namespace(String, #[source] io::Error),
}

pub(super) fn checkpoint(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    let images = arguments
        .image_path
        .as_deref()
        .ok_or(CommandError::Missing("checkpoint", "--image-path"))?;
    if !arguments.leave_running {
        return Err(CommandError::Missing("checkpoint", "--leave-running").into());
    }
    let (record, spec) = (paths.record()?, paths.spec()?);
    if paths.status(&record)? != Status::Running {
        return Err(CommandError::NotRunning(arguments.id.clone()).into());
    }
    let mut asked = Criu::new().map_err(CheckpointError::Criu)?;
    let version = asked.get_criu_version().map_err(CheckpointError::Criu)?;
    if version < MIN_VERSION {
        return Err(CheckpointError::Version(version).into());
    }
    let mut criu = Criu::new().map_err(CheckpointError::Criu)?;
    for mount in spec
        .mounts()
        .iter()
        .flatten()
        .filter(|mount| is_bind(mount))
    {
        let destination = mount.destination().to_string_lossy().into_owned();
        // Its source is the node's, and may be another one where the container is restored.
        criu.set_external_mount(destination.clone(), destination);
    }
    for kind in [LinuxNamespaceType::Network, LinuxNamespaceType::Pid] {
        if let Some(external) = external(&spec, kind)? {
            criu.add_external(external);
        }
    }
    // Open until CRIU has ended.
    let images_folder = folder(images)?;
    criu.set_images_dir_fd(images_folder.as_raw_fd());
    let work_folder = arguments.work_path.as_deref().map(folder).transpose()?;
    if let Some(work) = &work_folder {
        criu.set_work_dir_fd(work.as_raw_fd());
    }
    write_descriptors(record.pid, images)?;
    criu.set_log_file(LOG.to_owned());
    criu.set_log_level(LOG_LEVEL);
    criu.set_pid(record.pid);
    criu.set_leave_running(true);
    criu.set_orphan_pts_master(true);
    criu.set_manage_cgroups(true);
    criu.cgroups_mode(CgMode::DEFAULT);
    let root = spec
        .root()
        .as_ref()
        .map(|root| root.path().to_string_lossy().into_owned());
    criu.set_root(root.unwrap_or_default());
    Ok(criu.dump().map_err(CheckpointError::Criu)?)
}

fn is_bind(mount: &Mount) -> bool {
    let options = mount.options().iter().flatten();
    mount.typ().as_deref() == Some("bind")
        || options
            .into_iter()
            .any(|option| matches!(option.as_str(), "bind" | "rbind"))
}

/// Names a namespace that the container has joined: what is in it is not the container's.
fn external(spec: &Spec, kind: LinuxNamespaceType) -> Result<Option<String>, CheckpointError> {
    let linux = spec.linux().as_ref();
    let namespaces = linux.and_then(|linux| linux.namespaces().as_ref());
    let path = namespaces
        .into_iter()
        .flatten()
        .find(|one| one.typ() == kind)
        .and_then(|one| one.path().as_ref());
    let Some(path) = path else { return Ok(None) };
    let inode = fs::metadata(path)
        .map_err(|error| CheckpointError::Namespace(path.display().to_string(), error))?
        .ino();
    let name = if kind == LinuxNamespaceType::Network {
        "net"
    } else {
        "pid"
    };
    Ok(Some(format!("{name}[{inode}]:{}", criu_ns_to_key(name))))
}

fn folder(path: &Path) -> Result<File, CheckpointError> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.or_else(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            Ok(())
        } else {
            Err(error)
        }
    })
    .and_then(|()| File::open(path))
    .map_err(|error| CheckpointError::Folder(path.display().to_string(), error))
}

fn write_descriptors(pid: i32, images: &Path) -> io::Result<()> {
    let streams: Vec<String> = (0..3)
        .map(|number| {
            fs::read_link(format!("/proc/{pid}/fd/{number}")).map_or_else(
                |_| "/dev/null".to_owned(),
                |link| link.display().to_string(),
            )
        })
        .collect();
    fs::write(images.join(DESCRIPTORS), serde_json::to_vec(&streams)?)
}
