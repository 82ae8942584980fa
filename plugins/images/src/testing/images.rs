//! Images made in memory: layers entry by entry, with whatever a header can say.

use std::io::Write;

use flate2::Compression;

use crate::digest::Digest;

/// A tar in the making; names are written as they are, however hostile.
#[derive(Clone, Default)]
pub struct Tar(Vec<u8>);

impl Tar {
    pub fn file(self, path: &str, content: &[u8]) -> Self {
        self.entry(b'0', path.as_bytes(), "", 0o644, content)
    }

    pub fn folder(self, path: &str, mode: u32) -> Self {
        self.entry(b'5', path.as_bytes(), "", mode, b"")
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(b'1', path.as_bytes(), target, 0o644, b"")
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(b'2', path.as_bytes(), target, 0o777, b"")
    }

    pub fn device(mut self, kind: u8, path: &str, major: u32, minor: u32) -> Self {
        let mut header = header(kind, path.as_bytes(), "", 0o600, 0);
        header.set_device_major(major).unwrap();
        header.set_device_minor(minor).unwrap();
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self
    }

    /// A file whose owner and mode are not written.
    pub fn blank(mut self, path: &str) -> Self {
        let mut header = header(b'0', path.as_bytes(), "", 0, 0);
        let fields = header.as_old_mut();
        (fields.uid, fields.gid, fields.mode) = ([0; 8], [b' '; 8], [0; 8]);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self
    }

    pub fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut content = Vec::new();
        for (key, value) in records {
            let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
            let mut length = body.len();
            while length.to_string().len() + body.len() != length {
                length = length.to_string().len() + body.len();
            }
            content.extend_from_slice(length.to_string().as_bytes());
            content.extend_from_slice(&body);
        }
        self.entry(b'x', b"pax", "", 0o644, &content)
    }

    /// A path of any length, by a GNU header of its own.
    pub fn long(self, kind: u8, path: &[u8], content: &[u8]) -> Self {
        let name = [path, b"\0"].concat();
        self.entry(b'L', b"long", "", 0o644, &name)
            .entry(kind, b"short", "", 0o755, content)
    }

    pub fn entry(mut self, kind: u8, path: &[u8], link: &str, mode: u32, content: &[u8]) -> Self {
        let header = header(kind, path, link, mode, content.len());
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn header(kind: u8, path: &[u8], link: &str, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    let fields = header.as_gnu_mut().unwrap();
    fields.name[..path.len()].copy_from_slice(path);
    fields.linkname[..link.len()].copy_from_slice(link.as_bytes());
    fields.typeflag = [kind];
    header.set_size(u64::try_from(size).unwrap());
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_000_000);
    header.set_cksum();
    header
}

/// A layer with one file.
pub fn file_layer(path: &str, content: &[u8]) -> Vec<u8> {
    Tar::default().file(path, content).end()
}

/// An image's documents, with its layers packed as they are or by gzip or zstd.
#[derive(Clone)]
pub struct ImageBuilder {
    pub layers: Vec<Vec<u8>>,
    pub packed: Vec<Vec<u8>>,
    pub config: Vec<u8>,
    pub manifest: Vec<u8>,
}

impl ImageBuilder {
    pub fn plain(layers: Vec<Vec<u8>>) -> Self {
        Self::packed(layers, |layer| layer.to_vec())
    }

    pub fn gzip(layers: Vec<Vec<u8>>) -> Self {
        Self::packed(layers, |layer| gzip(layer, Compression::fast()))
    }

    /// As gzip that packs nothing: fast also in a build for tests.
    pub fn stored(layers: Vec<Vec<u8>>) -> Self {
        Self::packed(layers, |layer| gzip(layer, Compression::none()))
    }

    pub fn zstd(layers: Vec<Vec<u8>>) -> Self {
        Self::packed(layers, |layer| zstd::encode_all(layer, 1).unwrap())
    }

    fn packed(layers: Vec<Vec<u8>>, pack: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let packed: Vec<_> = layers.iter().map(|layer| pack(layer)).collect();
        let diffs: Vec<_> = layers.iter().map(|layer| Digest::of(layer)).collect();
        let platform = crate::Platform::host();
        let mut config = serde_json::to_value(&platform).unwrap();
        config["config"] =
            serde_json::json!({"User": "1000", "Env": ["A=b"], "Entrypoint": ["/run"]});
        config["rootfs"] = serde_json::json!({"type": "layers", "diff_ids": diffs});
        let config = serde_json::to_vec(&config).unwrap();
        let descriptor = |content: &Vec<u8>| {
            serde_json::json!({
                "mediaType": "application/octet-stream", "digest": Digest::of(content), "size": content.len(),
            })
        };
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "config": descriptor(&config),
            "layers": packed.iter().map(descriptor).collect::<Vec<_>>(),
        });
        let manifest = serde_json::to_vec(&manifest).unwrap();
        Self {
            layers,
            packed,
            config,
            manifest,
        }
    }

    pub fn id(&self) -> Digest {
        Digest::of(&self.config)
    }
}

fn gzip(content: &[u8], level: Compression) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), level);
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

/// The archive that `docker save` makes of an image.
pub fn docker_archive(image: &ImageBuilder, name: &str) -> Vec<u8> {
    let mut tar = Tar::default().file("config.json", &image.config);
    let mut names = Vec::new();
    for (number, layer) in image.layers.iter().enumerate() {
        let name = format!("{number}/layer.tar");
        tar = tar.file(&name, layer);
        names.push(name);
    }
    let manifest =
        serde_json::json!([{"Config": "config.json", "RepoTags": [name], "Layers": names}]);
    tar.file("manifest.json", &serde_json::to_vec(&manifest).unwrap())
        .end()
}
