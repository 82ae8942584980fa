//! Container images made by hand: no registry is reachable where these tests run.
//!
//! An image is one layer (the machine's static busybox, its applets as links, an identity file that keeps
//! every image's content distinct) and a config. It goes to a runtime as a docker archive, or to the
//! registry double as manifest and blobs.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use sha2::{Digest, Sha256};

const BUSYBOX: &str = "/bin/busybox";

/// The applets that test pods call; the whole list would only make layers slower to unpack.
const APPLETS: [&str; 47] = [
    "ash", "awk", "base64", "cat", "chmod", "chown", "cp", "cut", "date", "dd", "df", "echo",
    "env", "expr", "false", "find", "grep", "head", "hostname", "httpd", "id", "ip", "kill", "ln",
    "ls", "mkdir", "mount", "mv", "nc", "nslookup", "printf", "ps", "pwd", "readlink", "rm", "sed",
    "seq", "sh", "sleep", "stat", "tail", "tar", "test", "touch", "true", "wc", "wget",
];

/// The pause image that every rig's sandboxes are made from.
pub const PAUSE: &str = "localhost/oxlet/pause:1";
/// The image that test pods run: a shell and its tools.
pub const BUSYBOX_IMAGE: &str = "localhost/oxlet/busybox:1";

const PASSWD: &[u8] = b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n";
const GROUP: &[u8] = b"root:x:0:\nnogroup:x:65534:\n";

/// Where an image has its shell and tools from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageTools {
    /// The machine's static busybox.
    Busybox,
    /// The machine's own `sh` and `sleep`, with the libraries that they are linked to.
    Machine,
}

/// An image to be built.
#[derive(Clone, Debug)]
pub struct Image {
    /// Repository and tag, e.g. `localhost/oxlet/busybox:1`.
    pub name: String,
    /// The program of a container that sets no `command`.
    pub entrypoint: Vec<String>,
    /// Arguments of the entrypoint when a container names none.
    pub arguments: Vec<String>,
    /// `NAME=value` lines.
    pub environment: Vec<String>,
    /// `uid`, `uid:gid` or a name of /etc/passwd; empty is root.
    pub user: String,
    /// Further files, path without the leading slash and content. One of these replaces the image's own.
    pub files: Vec<(String, Vec<u8>)>,
    /// Symbolic links, path without the leading slash and target. One of these replaces the image's own entry.
    pub links: Vec<(String, String)>,
    /// Where a container begins; empty is `/`.
    pub working_dir: String,
    /// What the image declares as volumes.
    pub volumes: Vec<String>,
    /// A sparse file, path without the leading slash, and its size in bytes: a hole from its start to its end.
    pub sparse: Option<(String, u64)>,
    pub tools: ImageTools,
}

impl Image {
    /// Returns a busybox image whose default command sleeps.
    pub fn busybox(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            entrypoint: Vec::new(),
            arguments: vec!["sleep".to_owned(), "86400".to_owned()],
            environment: vec!["PATH=/bin".to_owned()],
            user: String::new(),
            files: Vec::new(),
            links: Vec::new(),
            working_dir: String::new(),
            volumes: Vec::new(),
            sparse: None,
            tools: ImageTools::Busybox,
        }
    }

    /// Returns an image with the machine's own shell, for a machine that has no busybox.
    pub fn shell(name: &str) -> Self {
        Self {
            tools: ImageTools::Machine,
            ..Self::busybox(name)
        }
    }

    /// Returns a pause image: a process that holds the pod's namespaces and does nothing else.
    pub fn pause(name: &str) -> Self {
        let entrypoint = vec!["/bin/sleep".to_owned(), "2147483647".to_owned()];
        Self {
            entrypoint,
            arguments: Vec::new(),
            ..Self::busybox(name)
        }
    }

    /// Builds layer, config and manifest.
    pub fn build(&self) -> Result<BuiltImage> {
        let layer = Blob::new(
            self.layer()
                .with_context(|| format!("cannot build the layer of {}", self.name))?,
        );
        let volumes = self.volumes.iter().map(|path| (path.clone(), json!({})));
        let config = Blob::new(serde_json::to_vec(&json!({
            "architecture": architecture(),
            "os": "linux",
            "created": "2026-01-01T00:00:00Z",
            "config": {
                "Entrypoint": self.entrypoint,
                "Cmd": self.arguments,
                "Env": self.environment,
                "User": self.user,
                "WorkingDir": self.working_dir,
                "Volumes": volumes.collect::<serde_json::Map<_, _>>(),
            },
            "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
        }))?);
        let name = self.name.clone();
        BuiltImage::new(name, config, (TAR_LAYER, layer))
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = LayerBuilder::new();
        let is_replaced = |path: &str| {
            let files = self.files.iter().map(|(path, _)| path);
            let mut all = files.chain(self.links.iter().map(|(path, _)| path));
            all.any(|replaced| replaced == path)
        };
        for folder in ["bin", "etc", "root", "dev", "proc", "sys"] {
            if !is_replaced(folder) {
                tar.folder(folder, 0o755)?;
            }
        }
        tar.folder("tmp", 0o1777)?;
        match self.tools {
            ImageTools::Busybox => add_busybox(&mut tar)?,
            ImageTools::Machine => add_own_tools(&mut tar)?,
        }
        for (path, content) in [("etc/passwd", PASSWD), ("etc/group", GROUP)] {
            if !is_replaced(path) {
                tar.file(path, 0o644, content)?;
            }
        }
        tar.file("etc/image", 0o644, self.name.as_bytes())?;
        for (path, target) in &self.links {
            tar.link(path, target)?;
        }
        for (path, content) in &self.files {
            tar.file(path, 0o755, content)?;
        }
        if let Some((path, size)) = &self.sparse {
            tar.hole(path, *size)?;
        }
        tar.finish()
    }
}

fn add_busybox(tar: &mut LayerBuilder) -> Result<()> {
    tar.file("bin/busybox", 0o755, &read(Path::new(BUSYBOX))?)?;
    APPLETS
        .iter()
        .try_for_each(|applet| tar.link(&format!("bin/{applet}"), "busybox"))
}

fn add_own_tools(tar: &mut LayerBuilder) -> Result<()> {
    let mut needed = BTreeSet::new();
    for tool in ["sh", "sleep"] {
        let path = ["/bin", "/usr/bin"]
            .iter()
            .map(|folder| Path::new(folder).join(tool))
            .find(|path| path.exists())
            .with_context(|| format!("no {tool} in /bin or /usr/bin"))?;
        tar.file(&format!("bin/{tool}"), 0o755, &read(&path)?)?;
        needed.extend(libraries(&path)?);
    }
    for library in needed {
        let name = library.strip_prefix("/").unwrap_or(&library);
        tar.file(&name.display().to_string(), 0o755, &read(&library)?)?;
    }
    Ok(())
}

/// The libraries that a program is linked to, its loader among them, where it looks for them; none of a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output();
    let output = output.context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() || text.contains("not a dynamic executable"),
        "ldd {}: {text}",
        program.display()
    );
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The media type of the manifests that [`Image::build`] makes.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

const TAR_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const GZIP_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image's three blobs.
#[derive(Debug)]
pub struct BuiltImage {
    /// Repository and tag.
    pub name: String,
    /// The OCI manifest.
    pub manifest: Blob,
    /// The OCI config.
    pub config: Blob,
    /// The only layer, uncompressed unless [`BuiltImage::gzipped`] made it.
    pub layer: Blob,
}

impl BuiltImage {
    fn new(name: String, config: Blob, (media_type, layer): (&str, Blob)) -> Result<Self> {
        let manifest = Blob::new(serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor(media_type, &layer)],
        }))?);
        Ok(Self {
            name,
            manifest,
            config,
            layer,
        })
    }

    /// Returns the same image with its layer compressed by gzip, as registries have them.
    pub fn gzipped(self) -> Result<Self> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&self.layer.content)?;
        let layer = Blob::new(gzip.finish()?);
        Self::new(self.name, self.config, (GZIP_LAYER, layer))
    }

    /// Writes the image as a docker archive, which `ctr images import` and CRI-O's tools read.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut tar = LayerBuilder::new();
        let index =
            json!([{ "Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"] }]);
        tar.file("manifest.json", 0o644, &serde_json::to_vec(&index)?)?;
        tar.file("config.json", 0o644, &self.config.content)?;
        tar.file("layer.tar", 0o644, &self.layer.content)?;
        std::fs::write(path, tar.finish()?)
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Content under its digest.
#[derive(Debug)]
pub struct Blob {
    /// `sha256:…`
    pub digest: String,
    /// The content, in bytes.
    pub content: Vec<u8>,
}

impl Blob {
    fn new(content: Vec<u8>) -> Self {
        let hex: String = Sha256::digest(&content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            digest: format!("sha256:{hex}"),
            content,
        }
    }
}

fn descriptor(media_type: &str, blob: &Blob) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": blob.digest, "size": blob.content.len() })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A tar in the making: everything root's, at the epoch, so that equal images have equal digests.
struct LayerBuilder(tar::Builder<Vec<u8>>);

impl LayerBuilder {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        let mut header = header(tar::EntryType::Directory, mode, 0);
        Ok(self
            .0
            .append_data(&mut header, format!("{path}/"), std::io::empty())?)
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = header(tar::EntryType::Regular, mode, content.len() as u64);
        Ok(self.0.append_data(&mut header, path, content)?)
    }

    fn link(&mut self, path: &str, target: &str) -> Result<()> {
        let mut header = header(tar::EntryType::Symlink, 0o777, 0);
        Ok(self.0.append_link(&mut header, path, target)?)
    }

    /// A file that is one hole, in PAX's form 1.0 of sparse files: its map, with no data, is all of its content.
    fn hole(&mut self, path: &str, size: u64) -> Result<()> {
        const MAP: [u8; 512] = {
            let mut map = [0; 512];
            [map[0], map[1]] = *b"0\n";
            map
        };
        let size = size.to_string();
        self.0.append_pax_extensions([
            ("GNU.sparse.major", &b"1"[..]),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", path.as_bytes()),
            ("GNU.sparse.realsize", size.as_bytes()),
        ])?;
        let mut header = header(tar::EntryType::Regular, 0o644, 512);
        Ok(self.0.append_data(&mut header, path, &MAP[..])?)
    }

    fn finish(self) -> Result<Vec<u8>> {
        Ok(self.0.into_inner()?)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_images_have_equal_digests_and_other_names_have_others() {
        let digest = |name: &str| Image::busybox(name).build().unwrap().manifest.digest;
        assert_eq!(digest("localhost/a:1"), digest("localhost/a:1"));
        assert_ne!(digest("localhost/a:1"), digest("localhost/b:1"));
    }

    #[test]
    fn image_of_the_machines_own_tools_has_their_libraries_once() {
        let image = Image::shell("localhost/a:1");
        let layer = image.build().unwrap().layer.content;
        let mut archive = tar::Archive::new(&*layer);
        let entries = archive.entries().unwrap();
        let mut paths: Vec<_> = entries
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        let has = |end: &str| paths.iter().any(|path| path.contains(end));
        assert!(
            has("bin/sh") && has("bin/sleep") && has("ld-linux"),
            "{paths:?}"
        );
        let all = paths.len();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), all, "{paths:?}");
    }

    #[test]
    fn a_digest_is_sha256_of_the_content() {
        let blob = Blob::new(b"abc".to_vec());
        assert_eq!(
            blob.digest,
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
