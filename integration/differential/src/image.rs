//! The images of a batch of cases in one docker archive, which both runtimes import: their first layer is the same.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::case::{Case, Content, File};
use crate::generate::usual_files;

const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe"));
const BUSYBOX: &str = "/bin/busybox";

/// Returns the name of a case's image.
pub(crate) fn name(case: &Case) -> String {
    format!("localhost/differential/seed-{}:1", case.seed)
}

/// Builds an archive with the images of all cases.
pub(crate) fn archive(cases: &[Case]) -> Result<Vec<u8>> {
    let mut archive = Layer::default();
    let base = base_layer()?;
    archive.bytes("base.tar", &base, 0o644, (0, 0))?;
    let mut index = Vec::new();
    for case in cases {
        let seed = case.seed;
        let layer = own_layer(case)?;
        let config = config(case, &[&base, &layer]);
        archive.bytes(&format!("{seed}.tar"), &layer, 0o644, (0, 0))?;
        archive.bytes(
            &format!("{seed}.json"),
            &serde_json::to_vec(&config)?,
            0o644,
            (0, 0),
        )?;
        index.push(json!({
            "Config": format!("{seed}.json"),
            "RepoTags": [name(case)],
            "Layers": ["base.tar", format!("{seed}.tar")],
        }));
    }
    archive.bytes("manifest.json", &serde_json::to_vec(&index)?, 0o644, (0, 0))?;
    archive.finish()
}

fn config(case: &Case, layers: &[&[u8]]) -> serde_json::Value {
    let image = &case.image;
    let volumes: serde_json::Map<String, serde_json::Value> = image
        .volumes
        .iter()
        .map(|path| (path.clone(), json!({})))
        .collect();
    let digests: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "created": "2026-01-01T00:00:00Z",
        "config": {
            "User": image.user,
            "WorkingDir": image.working_dir,
            "Env": image.env,
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "Volumes": volumes,
            "StopSignal": image.stop_signal,
        },
        "rootfs": { "type": "layers", "diff_ids": digests },
    })
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

fn base_layer() -> Result<Vec<u8>> {
    let mut layer = Layer::default();
    for folder in ["bin", "etc", "root", "dev", "proc", "sys"] {
        layer.folder(folder, 0o755, (0, 0))?;
    }
    layer.folder("tmp", 0o1777, (0, 0))?;
    let busybox = std::fs::read(Path::new(BUSYBOX)).context("cannot read /bin/busybox")?;
    layer.bytes("bin/busybox", &busybox, 0o755, (0, 0))?;
    layer.link("bin/sh", "busybox", (0, 0))?;
    layer.bytes("bin/probe", PROBE, 0o755, (0, 0))?;
    usual_files().iter().try_for_each(|file| layer.add(file))?;
    layer.finish()
}

/// Each image has content of its own: containerd tells an image's name by its digest.
fn own_layer(case: &Case) -> Result<Vec<u8>> {
    let mut layer = Layer::default();
    layer.bytes("etc/image", name(case).as_bytes(), 0o644, (0, 0))?;
    case.image
        .files
        .iter()
        .try_for_each(|file| layer.add(file))?;
    layer.finish()
}

/// A tar in the making; times are the epoch's, so that equal layers have equal digests.
struct Layer(tar::Builder<Vec<u8>>);

impl Default for Layer {
    fn default() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }
}

impl Layer {
    fn add(&mut self, file: &File) -> Result<()> {
        match &file.content {
            Content::Folder => self.folder(&file.path, file.mode, file.owner),
            Content::Text(text) => self.bytes(&file.path, text.as_bytes(), file.mode, file.owner),
            Content::Link(target) => self.link(&file.path, target, file.owner),
            Content::Whiteout => {
                let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
                let slash = if folder.is_empty() { "" } else { "/" };
                let path = format!("{folder}{slash}.wh.{name}");
                self.bytes(&path, b"", 0o644, (0, 0))
            }
        }
    }

    fn folder(&mut self, path: &str, mode: u32, owner: (u64, u64)) -> Result<()> {
        let mut header = header(tar::EntryType::Directory, mode, owner);
        Ok(self
            .0
            .append_data(&mut header, format!("{path}/"), std::io::empty())?)
    }

    fn bytes(&mut self, path: &str, content: &[u8], mode: u32, owner: (u64, u64)) -> Result<()> {
        let mut header = header(tar::EntryType::Regular, mode, owner);
        header.set_size(content.len() as u64);
        Ok(self.0.append_data(&mut header, path, content)?)
    }

    fn link(&mut self, path: &str, target: &str, owner: (u64, u64)) -> Result<()> {
        let mut header = header(tar::EntryType::Symlink, 0o777, owner);
        Ok(self.0.append_link(&mut header, path, target)?)
    }

    fn finish(self) -> Result<Vec<u8>> {
        Ok(self.0.into_inner()?)
    }
}

fn header(kind: tar::EntryType, mode: u32, owner: (u64, u64)) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(0);
    header.set_uid(owner.0);
    header.set_gid(owner.1);
    header.set_mtime(0);
    header
}
