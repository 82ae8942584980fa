//! A bundle is read, checked, and written anew for libcontainer: with an absolute root, without the capabilities that
//! `payload.rs` sets, and with an OOM score only where it can be had.

pub(crate) mod fields;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kernel_filters::{DeviceFilter, Filter, Profile, SeccompError};
use libcontainer::oci_spec::runtime::{LinuxCapabilities, LinuxResources};
use serde_json::Value;

use self::fields::{FieldError, check_process, check_spec};
use crate::cgroup::{self, is_unified};
use crate::error::AnyError;
use crate::hooks;
use crate::mounts::propagation::{self, Wanted};
use crate::payload::Payload;
use crate::users::{JoinedUsers, UsersError};

/// The largest spec that is read, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Why a bundle is not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleError {
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot write {0}")]
    Write(PathBuf, #[source] io::Error),
    #[error("{0} is not what the OCI specification says")]
    Format(PathBuf, #[source] serde_json::Error),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    #[error("linux.seccomp")]
    Profile(#[source] serde_json::Error),
    #[error("process.capabilities")]
    Capabilities(#[source] serde_json::Error),
    #[error("process.oomScoreAdj {0} cannot be set")]
    OomScore(i64, #[source] io::Error),
}

/// What a container is confined by beside what libcontainer does.
pub(crate) struct Prepared {
    pub(crate) payload: Payload,
    /// On cgroup v2.
    pub(crate) devices: Option<DeviceFilter>,
    /// With systemd: what is written to the group's files beside its properties.
    pub(crate) files: Option<LinuxResources>,
    pub(crate) propagation: Vec<Wanted>,
}

/// Checks the bundle of a new container and writes what libcontainer shall read into `to`.
pub(crate) fn prepare(bundle: &Path, to: &Path, systemd: bool) -> Result<Prepared, AnyError> {
    let mut spec = read(&bundle.join("config.json"))?;
    check_spec(&spec, is_unified())?;
    cgroup::check_driver(systemd)?;
    let profile = spec["linux"]["seccomp"].clone();
    let payload = payload(&mut spec["process"], &profile)?;
    // Also where the spec has no rule: a group of version 2 without a program would have every device.
    let rules = &spec["linux"]["resources"]["devices"];
    let none = Value::Array(Vec::new());
    let devices = cgroup::device_filter(if rules.is_null() { &none } else { rules })?;
    let resources = &mut spec["linux"]["resources"];
    if is_unified() && !resources.is_null() {
        cgroup::complete(resources);
    }
    let files = cgroup::take_files(resources, systemd)?;
    let root = bundle.join(spec["root"]["path"].as_str().unwrap_or_default());
    spec["root"]["path"] = Value::String(root.to_string_lossy().into_owned());
    name_propagation(&mut spec["linux"]);
    if !is_unified() {
        cgroup::mounts::write_out(&mut spec)?;
    }
    fs::create_dir_all(to).map_err(|error| BundleError::Write(to.to_owned(), error))?;
    hooks::keep_last(&mut spec, to).map_err(|error| BundleError::Write(to.to_owned(), error))?;
    write(&to.join("config.json"), &spec)?;
    Ok(Prepared {
        payload,
        devices,
        files,
        propagation: propagation::of_spec(&spec),
    })
}

/// Gives the root's propagation the name that libcontainer has for it. It knows the specification's words only and
/// takes each for the whole tree of mounts; runc and containerd say that by an `r` in front.
fn name_propagation(linux: &mut Value) {
    let word = linux["rootfsPropagation"].as_str().unwrap_or_default();
    let known = match word {
        "rshared" => "shared",
        "rslave" => "slave",
        "rprivate" => "private",
        "runbindable" => "unbindable",
        _ => return,
    };
    linux["rootfsPropagation"] = Value::String(known.to_owned());
}

/// Checks a process that shall be run in the container whose prepared bundle is `bundle`, and writes what libcontainer
/// shall read into the file `to`.
pub(crate) fn prepare_process(
    process: &Path,
    bundle: &Path,
    to: &Path,
) -> Result<Payload, BundleError> {
    let spec = read(&bundle.join("config.json"))?;
    let mut process = read(process)?;
    check_process(&process)?;
    let mut payload = payload(&mut process, &spec["linux"]["seccomp"])?;
    payload.users = JoinedUsers::take(&spec["linux"], &mut process)?;
    write(to, &process)?;
    Ok(payload)
}

fn payload(process: &mut Value, profile: &Value) -> Result<Payload, BundleError> {
    set_oom_score(process)?;
    let no_new_privileges = process["noNewPrivileges"].as_bool().unwrap_or(false);
    let capabilities = process
        .as_object_mut()
        .and_then(|fields| fields.remove("capabilities"));
    let mut capabilities: LinuxCapabilities = serde_json::from_value(
        capabilities
            .filter(|sets| !sets.is_null())
            .unwrap_or_else(|| serde_json::json!({})),
    )
    .map_err(BundleError::Capabilities)?;
    let set = |set: &Option<_>| set.clone().or_else(|| Some(Default::default()));
    let (bounding, effective, permitted) = (
        set(capabilities.bounding()),
        set(capabilities.effective()),
        set(capabilities.permitted()),
    );
    let (inheritable, ambient) = (set(capabilities.inheritable()), set(capabilities.ambient()));
    capabilities
        .set_bounding(bounding)
        .set_effective(effective)
        .set_permitted(permitted);
    capabilities
        .set_inheritable(inheritable)
        .set_ambient(ambient);
    let filter = if profile.is_null() {
        None
    } else {
        let profile: Profile =
            serde_json::from_value(profile.clone()).map_err(BundleError::Profile)?;
        Some(Filter::compile(&profile)?)
    };
    Ok(Payload {
        filter,
        capabilities,
        no_new_privileges,
        users: None,
    })
}

/// Sets the OOM score of this process, which the container's inherits. A score that is lower than this process may
/// set is a warning: nothing of the confinement hangs on it.
fn set_oom_score(process: &mut Value) -> Result<(), BundleError> {
    let Some(score) = process
        .as_object_mut()
        .and_then(|fields| fields.remove("oomScoreAdj"))
    else {
        return Ok(());
    };
    let score = score.as_i64().unwrap_or_default();
    match fs::write("/proc/self/oom_score_adj", score.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            use io::Write;
            // Nobody is there to be told that telling failed.
            drop(writeln!(
                io::stderr(),
                "oxlet-oci: process.oomScoreAdj {score} is refused by the kernel, left as it is"
            ));
            Ok(())
        }
        set => set.map_err(|error| BundleError::OomScore(score, error)),
    }
}

/// Reads JSON.
pub(crate) fn read(path: &Path) -> Result<Value, BundleError> {
    let told = |error| BundleError::Read(path.to_owned(), error);
    if fs::metadata(path).map_err(told)?.len() > MAX_BYTES {
        return Err(told(io::Error::other("it is longer than 8 MiB")));
    }
    let bytes = fs::read(path).map_err(told)?;
    serde_json::from_slice(&bytes).map_err(|error| BundleError::Format(path.to_owned(), error))
}

fn write(path: &Path, value: &Value) -> Result<(), BundleError> {
    fs::write(path, value.to_string()).map_err(|error| BundleError::Write(path.to_owned(), error))
}
