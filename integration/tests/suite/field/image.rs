//! The programs' images: the layer of a minimal Debian, which all share, one of their packages, one of their own files.

use std::fs::File;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::program::{Layer, Program};

/// Writes one docker archive with the images of all programs, each layer once.
pub(super) fn write_archive(programs: &[Program], path: &Path) -> Result<()> {
    let mut tar = tar::Builder::new(File::create(path)?);
    let base = Layer::find("base")?;
    tar.append_path_with_name(&base.file, "base.tar")?;
    let mut images = Vec::new();
    for program in programs {
        let packages = Layer::find(&program.name)?;
        let files = files(program)?;
        let files_digest = digest(&files);
        let layers = ["base", &program.name, &format!("{}-files", program.name)]
            .map(|name| format!("{name}.tar"));
        let config = format!("{}.json", program.name);
        tar.append_path_with_name(&packages.file, &layers[1])?;
        append(&mut tar, &layers[2], 0o644, &files)?;
        let digests = [&base.digest, &packages.digest, &files_digest];
        append(&mut tar, &config, 0o644, &config_of(program, digests))?;
        let names = [program.image_name()];
        images.push(json!({ "Config": config, "RepoTags": names, "Layers": layers }));
    }
    append(
        &mut tar,
        "manifest.json",
        0o644,
        &json!(images).to_string().into_bytes(),
    )?;
    Ok(tar.finish()?)
}

fn config_of(program: &Program, layers: [&String; 3]) -> Vec<u8> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut image = Value::Object(program.image.clone());
    if image["Env"].is_null() {
        image["Env"] = json!(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
    }
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "created": "2026-01-01T00:00:00Z",
        "config": image,
        "rootfs": { "type": "layers", "diff_ids": layers },
    });
    config.to_string().into_bytes()
}

fn files(program: &Program) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in &program.files {
        let mode = if content.starts_with("#!") {
            0o755
        } else {
            0o644
        };
        append(&mut tar, path, mode, content.as_bytes())?;
    }
    for (path, target) in &program.links {
        let mut header = header(tar::EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut header, path, target)?;
    }
    Ok(tar.into_inner()?)
}

fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

fn append(
    tar: &mut tar::Builder<impl std::io::Write>,
    path: &str,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    let mut header = header(tar::EntryType::Regular, mode, content.len() as u64);
    Ok(tar.append_data(&mut header, path, content)?)
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}
