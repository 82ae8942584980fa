//! A bundle is read, checked, and kept in the form that later commands read: with an absolute root, and a cgroup.

pub(crate) mod fields;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kernel_filters::{DeviceFilter, Filter, Profile, SeccompError};
use oci_spec::runtime::{Hook, LinuxResources, Process, Spec};
use serde_json::Value;

use self::fields::{check_process, check_spec};
use crate::cgroup::{self, is_unified};
use crate::document::read_bounded;
use crate::error::{AnyError, FieldError};
use crate::hooks;
use crate::init::ProcessPlan;
use crate::init::namespaces::NamespacesError;

/// The document that is kept.
pub(crate) const FILE: &str = "config.json";

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
    Namespaces(#[from] NamespacesError),
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    #[error("linux.seccomp")]
    Profile(#[source] serde_json::Error),
    #[error("process.oomScoreAdj {0} cannot be set")]
    OomScore(i64, #[source] io::Error),
}

/// What a container is made of.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) spec: Spec,
    pub(crate) process: ProcessPlan,
    /// On cgroup v2.
    pub(crate) devices: Option<DeviceFilter>,
    /// With systemd: what is written to the group's files beside its properties.
    pub(crate) files: Option<LinuxResources>,
}

/// Checks the bundle of a new container of this id and keeps what later commands need in `to`.
pub(crate) fn prepare(
    bundle: &Path,
    to: &Path,
    id: &str,
    systemd: bool,
) -> Result<Prepared, AnyError> {
    let path = bundle.join(FILE);
    let mut document = read(&path)?;
    check_spec(&document, is_unified())?;
    cgroup::check_driver(systemd)?;
    let filter = filter(&document["linux"]["seccomp"])?;
    set_oom_score(&document["process"])?;
    // Also where the spec has no rule: a group of version 2 without a program would have every device.
    let rules = &document["linux"]["resources"]["devices"];
    let none = Value::Array(Vec::new());
    let devices = cgroup::device_filter(if rules.is_null() { &none } else { rules })?;
    cgroup::name_group(&mut document, id, systemd);
    let resources = &mut document["linux"]["resources"];
    if is_unified() && !resources.is_null() {
        cgroup::complete(resources);
    }
    let files = cgroup::take_files(resources, systemd)?;
    let root = bundle.join(document["root"]["path"].as_str().unwrap_or_default());
    document["root"]["path"] = Value::String(root.to_string_lossy().into_owned());
    if !is_unified() {
        cgroup::mounts::write_out(&mut document)?;
    }
    fs::create_dir_all(to).map_err(|error| BundleError::Write(to.to_owned(), error))?;
    hooks::keep_last(&mut document, to)
        .map_err(|error| BundleError::Write(to.to_owned(), error))?;
    write(&to.join(FILE), &document)?;
    let spec: Spec =
        serde_json::from_value(document).map_err(|error| BundleError::Format(path, error))?;
    let mut process = ProcessPlan::of_spec(process_of(&spec)?, filter);
    process.personality = spec
        .linux()
        .as_ref()
        .and_then(|linux| linux.personality().as_ref())
        .map(|personality| personality.domain());
    Ok(Prepared {
        process,
        devices,
        files,
        spec,
    })
}

/// The process of a spec.
pub(crate) fn process_of(spec: &Spec) -> Result<&Process, FieldError> {
    spec.process().as_ref().ok_or_else(|| {
        let why = "expected a process to run".to_owned();
        FieldError::Wrong("process".to_owned(), why)
    })
}

/// The hooks of a kind.
pub(crate) fn hooks_of(
    spec: &Spec,
    kind: fn(&oci_spec::runtime::Hooks) -> &Option<Vec<Hook>>,
) -> Vec<Hook> {
    spec.hooks()
        .as_ref()
        .and_then(|hooks| kind(hooks).clone())
        .unwrap_or_default()
}

/// Checks a process that shall be run in the container whose prepared bundle is `bundle`; returns it with its document.
pub(crate) fn prepare_process(
    process: &Path,
    bundle: &Path,
) -> Result<(ProcessPlan, Process), BundleError> {
    let spec = read(&bundle.join(FILE))?;
    let document = read(process)?;
    check_process(&document)?;
    // As with runc, a process that says nothing of it has the container's.
    let of_process = document["oomScoreAdj"].is_i64();
    set_oom_score(if of_process {
        &document
    } else {
        &spec["process"]
    })?;
    let filter = filter(&spec["linux"]["seccomp"])?;
    let process: Process = serde_json::from_value(document)
        .map_err(|error| BundleError::Format(process.to_owned(), error))?;
    let mut plan = ProcessPlan::of_spec(&process, filter);
    plan.personality = serde_json::from_value(spec["linux"]["personality"]["domain"].clone()).ok();
    Ok((plan, process))
}

fn filter(profile: &Value) -> Result<Option<Filter>, BundleError> {
    if profile.is_null() {
        return Ok(None);
    }
    let profile: Profile = serde_json::from_value(profile.clone()).map_err(BundleError::Profile)?;
    Ok(Some(Filter::compile(&profile)?))
}

/// Sets the OOM score of this process, which the container's inherits. A score that is lower than this process may
/// set is a warning: nothing of the confinement hangs on it.
fn set_oom_score(process: &Value) -> Result<(), BundleError> {
    let Some(score) = process["oomScoreAdj"].as_i64() else {
        return Ok(());
    };
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
    let bytes = read_bounded(path).map_err(|error| BundleError::Read(path.to_owned(), error))?;
    serde_json::from_slice(&bytes).map_err(|error| BundleError::Format(path.to_owned(), error))
}

fn write(path: &Path, value: &Value) -> Result<(), BundleError> {
    fs::write(path, value.to_string()).map_err(|error| BundleError::Write(path.to_owned(), error))
}
