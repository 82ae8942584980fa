//! Devices by the Container Device Interface: files of the node name devices, and say what a container that has one is
//! given: device nodes, mounts, variables, groups, hooks. The measure is CNCF's `container-device-interface` as
//! containerd calls it (`internal/cri/opts/spec_linux.go`, WithCDI); decision 38 says why it is done here.
//!
//! The files are read whenever a container asks for a device: nobody watches them in between.

mod edits;
mod file;
mod registry;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use proto::cri::ContainerConfig;
use serde_json::Value;

pub(crate) use edits::EditError;
use registry::Registry;

/// Annotations of containers whose values are names of devices.
const ANNOTATIONS: &str = "cdi.k8s.io/";
/// The stack of the thread that reads files: YAML is read by recursion, which the threads of a pool have no room for. The
/// reader refuses what is nested deeper than this holds.
const STACK_BYTES: usize = 8 << 20;

/// Why a container doesn't get the devices that it asks for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error("failed to parse CDI device annotations: invalid CDI device name {0:?}")]
    Annotation(String),
    #[error("CDI device injection failed: unresolvable CDI devices {0}")]
    Unresolvable(String),
    #[error("CDI device injection failed")]
    Edit(#[from] EditError),
}

/// Returns the devices that a container asks for, each once: those of its configuration, then those of its annotations.
pub(crate) fn asked(config: &ContainerConfig) -> Result<Vec<String>, CdiError> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    config
        .cdi_devices
        .iter()
        .for_each(|device| add(&device.name));
    // In the order of their names: the map has none.
    let mut annotations: Vec<_> = config.annotations.iter().collect();
    annotations.retain(|(key, _)| key.starts_with(ANNOTATIONS));
    annotations.sort();
    for name in annotations.iter().flat_map(|(_, value)| value.split(',')) {
        if !file::is_qualified(name) {
            return Err(CdiError::Annotation(name.to_owned()));
        }
        add(name);
    }
    Ok(names)
}

/// Gives a container's document what the devices say; `folders` are in the order of their priority, the highest last.
pub(crate) fn inject(
    document: &mut Value,
    devices: &[String],
    folders: &[PathBuf],
) -> Result<(), CdiError> {
    if devices.is_empty() {
        return Ok(());
    }
    let registry = read(folders);
    for trouble in registry.troubles() {
        // A file of one vendor that cannot be used holds up no device of another.
        tracing::warn!(trouble, "a CDI file is left out");
    }
    let edits = registry.edits(devices).map_err(|unresolved| {
        // As one list, in the order asked.
        CdiError::Unresolvable(unresolved.join(", "))
    })?;
    Ok(edits::apply(document, &edits)?)
}

fn read(folders: &[PathBuf]) -> Registry {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let reading = thread.spawn_scoped(scope, || Registry::read(folders));
        let read = reading.map(std::thread::ScopedJoinHandle::join);
        match read {
            Ok(Ok(registry)) => registry,
            Ok(Err(_)) | Err(_) => Registry::unread(),
        }
    })
}
