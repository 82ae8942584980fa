//! What devices say, written into a container's OCI document.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use serde_json::{Value, json};

use super::file::{CdiMount, Edits, Hook, NO_PERMISSIONS, Node};
use crate::spec::Gid;

/// Why a container can't be given what a device says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    #[error("failed to stat CDI host device {0:?}")]
    Host(String, #[source] io::Error),
    #[error("CDI device {path:?}: the node's {host:?} is of type {found:?}, expected {expected:?}")]
    Type {
        path: String,
        host: String,
        found: &'static str,
        expected: String,
    },
    #[error("{0} of CDI devices are not supported by this runtime")]
    Unsupported(&'static str),
}

/// Carries out all edits, in their order.
pub(super) fn apply(document: &mut Value, all: &[Edits]) -> Result<(), EditError> {
    // Refused before anything is changed.
    if all.iter().any(|edits| edits.intel_rdt.is_some()) {
        return Err(EditError::Unsupported("intelRdt settings"));
    }
    if all.iter().any(|edits| !edits.net_devices.is_empty()) {
        return Err(EditError::Unsupported("netDevices"));
    }
    for edits in all {
        for variable in &edits.env {
            set_variable(&mut document["process"]["env"], variable);
        }
        for node in &edits.device_nodes {
            add_node(document, node)?;
        }
        for mount in &edits.mounts {
            add_mount(document, mount);
        }
        for hook in &edits.hooks {
            push(&mut document["hooks"][&hook.hook_name], of_hook(hook));
        }
        let gids = &mut document["process"]["user"]["additionalGids"];
        for gid in edits
            .additional_gids
            .iter()
            .filter(|gid| **gid != Gid::default())
        {
            let there = gids.as_array().is_some_and(|all| all.contains(&json!(gid)));
            if !there {
                push(gids, json!(gid));
            }
        }
    }
    if all.iter().any(|edits| !edits.mounts.is_empty()) {
        sort_mounts(&mut document["mounts"]);
    }
    Ok(())
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

/// Replaces a variable of this name, or adds it.
fn set_variable(env: &mut Value, variable: &str) {
    let name = |text: &str| text.split('=').next().map(str::to_owned);
    let mut known = env.as_array_mut().into_iter().flatten();
    let same = known.find(|one| one.as_str().and_then(name) == name(variable));
    match same {
        Some(one) => *one = json!(variable),
        None => push(env, json!(variable)),
    }
}

/// A device node with everything known of it.
struct Known {
    kind: String,
    major: i64,
    minor: i64,
    mode: Option<u32>,
}

fn add_node(document: &mut Value, node: &Node) -> Result<(), EditError> {
    let known = known(node)?;
    let mut device = json!({
        "path": node.path,
        "type": known.kind,
        "major": known.major,
        "minor": known.minor,
    });
    if let Some(mode) = known.mode {
        device["fileMode"] = json!(mode);
    }
    let user = &document["process"]["user"];
    // Without a word it belongs to the container's user, as upstream has it.
    for (field, own) in [
        ("uid", node.uid.map(i64::from)),
        ("gid", node.gid.map(i64::from)),
    ] {
        let of_user = user[field].as_i64().filter(|id| *id > 0);
        if let Some(id) = own.or(of_user) {
            device[field] = json!(id);
        }
    }
    let devices = &mut document["linux"]["devices"];
    if let Some(items) = devices.as_array_mut() {
        items.retain(|one| one["path"] != node.path.as_str());
    }
    push(devices, device);
    if matches!(known.kind.as_str(), "b" | "c") {
        let access = match node.permissions.as_str() {
            "" => "rwm",
            NO_PERMISSIONS => "",
            letters => letters,
        };
        let rule = json!({
            "allow": true,
            "type": known.kind,
            "major": known.major,
            "minor": known.minor,
            "access": access,
        });
        push(&mut document["linux"]["resources"]["devices"], rule);
    }
    Ok(())
}

/// Completes a device node by the node's own device; one that says type and number itself needs none.
fn known(node: &Node) -> Result<Known, EditError> {
    let is_whole = !node.r#type.is_empty() && (node.major != 0 || node.r#type == "p");
    let host = match node.host_path.as_str() {
        "" => &node.path,
        host => host,
    };
    let mut known = Known {
        kind: node.r#type.clone(),
        major: node.major,
        minor: node.minor,
        mode: node.file_mode,
    };
    let meta = match host_device(Path::new(host)) {
        Ok(found) => found,
        Err(_) if is_whole => return Ok(known),
        Err(error) => return Err(EditError::Host(host.to_owned(), error)),
    };
    let (kind, meta) = meta;
    known.mode = known.mode.or(Some(meta.mode() & 0o7777));
    if is_whole {
        return Ok(known);
    }
    if known.kind.is_empty() {
        kind.clone_into(&mut known.kind);
    }
    if known.kind != kind {
        return Err(EditError::Type {
            path: node.path.clone(),
            host: host.to_owned(),
            found: kind,
            expected: known.kind,
        });
    }
    if kind != "p" && known.major == 0 {
        known.major = i64::from(rustix::fs::major(meta.rdev()));
        known.minor = i64::from(rustix::fs::minor(meta.rdev()));
    }
    Ok(known)
}

fn host_device(path: &Path) -> io::Result<(&'static str, fs::Metadata)> {
    let meta = fs::symlink_metadata(path)?;
    let kind = match meta.file_type() {
        kind if kind.is_block_device() => "b",
        kind if kind.is_char_device() => "c",
        kind if kind.is_fifo() => "p",
        _ => return Err(io::Error::other("not a device node")),
    };
    Ok((kind, meta))
}

fn add_mount(document: &mut Value, mount: &CdiMount) {
    let namespaces = document["linux"]["namespaces"].as_array();
    let in_user_namespace =
        namespaces.is_some_and(|all| all.iter().any(|one| one["type"] == "user"));
    let mut options = mount.options.clone();
    if in_user_namespace {
        options.extend(id_mapping(mount).map(str::to_owned));
    }
    let mut entry = json!({
        "destination": mount.container_path,
        "source": mount.host_path,
        "options": options,
    });
    if !mount.r#type.is_empty() {
        entry["type"] = json!(mount.r#type);
    }
    let mounts = &mut document["mounts"];
    if let Some(items) = mounts.as_array_mut() {
        items.retain(|one| one["destination"] != mount.container_path.as_str());
    }
    push(mounts, entry);
}

/// The option by which a bind mount is of the container's users, where it has none yet.
fn id_mapping(mount: &CdiMount) -> Option<&'static str> {
    let has = |option: &str| mount.options.iter().any(|one| one == option);
    if has("idmap") || has("ridmap") {
        return None;
    }
    match (has("rbind"), has("bind") || mount.r#type == "bind") {
        (true, _) => Some("ridmap"),
        (false, true) => Some("idmap"),
        (false, false) => None,
    }
}

/// A mount below another one comes after it.
fn sort_mounts(mounts: &mut Value) {
    if let Some(items) = mounts.as_array_mut() {
        items.sort_by_key(|mount| {
            let path = mount["destination"].as_str().unwrap_or_default();
            path.split('/').filter(|part| !part.is_empty()).count()
        });
    }
}

fn of_hook(hook: &Hook) -> Value {
    let mut entry = json!({ "path": hook.path });
    if !hook.args.is_empty() {
        entry["args"] = json!(hook.args);
    }
    if !hook.env.is_empty() {
        entry["env"] = json!(hook.env);
    }
    if let Some(timeout) = hook.timeout {
        entry["timeout"] = json!(timeout);
    }
    entry
}
