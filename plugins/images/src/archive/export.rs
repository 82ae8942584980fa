//! Images into an archive: an OCI layout (image-spec `image-layout.md`) with Docker's `manifest.json`, as a plain tar.
//!
//! Layers are made again from their files and what is left of their tars, and go unpacked: their digests are those that
//! the image's config has, so the image keeps its id. Its manifest is the registry's only where that has its layers
//! unpacked too; otherwise it is a new one, with another digest. The same images make the same archive.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Deserialize;
use serde_json::{Value, json};
use tar::Header;

use super::layout::{CONTAINERD_NAME, OCI_NAME, manifest_of};
use crate::blocking;
use crate::digest::{Digest, Hasher};
use crate::documents::{Document, ImageConfig};
use crate::layer;
use crate::reference::Reference;
use crate::store::{Hold, Inner, Store, StoreError};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Images that are not exported; what was written until then is no archive.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An earlier version kept nothing of a layer's tar beside its files.
    #[error(
        "layer {layer} of {image} was unpacked by an earlier version, and its tar cannot be made again: remove the image and pull it again"
    )]
    Old {
        /// The image's id.
        image: Digest,
        /// The layer's chain id.
        layer: Digest,
    },
    /// A layer's tar is not what it was.
    #[error("layer {layer} cannot be made again: its tar has {found}, expected {expected}")]
    Mismatch {
        /// The layer's chain id.
        layer: Digest,
        /// Bytes or the digest.
        found: String,
        /// What the layer came as.
        expected: String,
    },
    /// A layer's files can't be read.
    #[error("layer {layer} cannot be made again")]
    Layer {
        /// The layer's chain id.
        layer: Digest,
        /// Why not.
        source: io::Error,
    },
    /// Who takes the archive takes no more of it.
    #[error("the archive cannot be written")]
    Write(#[source] io::Error),
}

impl Store {
    /// Writes an archive of the images with these names or ids: those asked for by name have that name alone in it, the
    /// others all that have a tag. Fails before the first byte if an image is not there.
    pub async fn export(
        &self,
        images: &[String],
        out: impl Write + Send + 'static,
    ) -> Result<(), ExportError> {
        let wanted = images.to_vec();
        let planned = self.work(move |inner| Ok(Archive::plan(inner, &wanted)));
        let archive = planned.await??;
        let _hold = Hold::new(self.inner(), archive.needed.clone());
        let inner = self.inner().clone();
        // A collection may have been faster than the hold.
        if let Some(gone) = archive
            .needed
            .iter()
            .find(|chain| inner.layer(chain).is_none())
        {
            return Err(StoreError::NoSuchImage(format!("layer {gone}")).into());
        }
        let written = blocking::run((), move || archive.write(&inner, out));
        written.await.map_err(StoreError::Thread)?
    }
}

/// What the archive will hold, in the order of its names.
#[derive(Debug, Default)]
struct Archive {
    members: BTreeMap<String, Member>,
    manifests: Vec<Value>,
    docker: Vec<Value>,
    /// Layers, which must not be collected.
    needed: Vec<Digest>,
}

#[derive(Debug)]
enum Member {
    Folder,
    Content(Vec<u8>),
    Layer(LayerMember),
}

#[derive(Debug)]
struct LayerMember {
    chain: Digest,
    diff: Digest,
    bytes: u64,
}

/// A manifest's own words that an archive keeps.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Archive {
    fn plan(inner: &Inner, wanted: &[String]) -> Result<Self, ExportError> {
        let mut archive = Self::default();
        for name in wanted {
            archive.add(inner, name)?;
        }
        let content = |value: &Value| Member::Content(value.to_string().into_bytes());
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": archive.manifests,
        });
        let docker = Value::Array(archive.docker.clone());
        let layout = json!({"imageLayoutVersion": "1.0.0"});
        archive.members.extend([
            ("blobs/".to_owned(), Member::Folder),
            ("blobs/sha256/".to_owned(), Member::Folder),
            ("index.json".to_owned(), content(&index)),
            ("manifest.json".to_owned(), content(&docker)),
            ("oci-layout".to_owned(), content(&layout)),
        ]);
        Ok(archive)
    }

    fn add(&mut self, inner: &Inner, wanted: &str) -> Result<(), ExportError> {
        let image = inner.image(wanted)?;
        let none = || StoreError::NoSuchImage(wanted.to_owned());
        let record = inner.record(&image.id).ok_or_else(none)?;
        let config = inner.blob(&image.id).map_err(StoreError::Disk)?;
        let damaged = |source| StoreError::Document {
            image: image.id.clone(),
            source,
        };
        let parsed = ImageConfig::parse(&config).map_err(damaged)?;
        let mut layers = Vec::with_capacity(record.chains.len());
        for (chain, diff) in record.chains.iter().zip(parsed.diff_ids()) {
            let layer = inner.layer(chain).ok_or_else(none)?;
            let bytes = layer.tar_bytes.ok_or_else(|| ExportError::Old {
                image: image.id.clone(),
                layer: chain.clone(),
            })?;
            layers.push((diff.clone(), bytes));
            let member = LayerMember {
                chain: chain.clone(),
                diff: diff.clone(),
                bytes,
            };
            self.members.insert(blob(diff), Member::Layer(member));
            self.needed.push(chain.clone());
        }
        let kept = inner.blob(&record.manifest).map_err(StoreError::Disk)?;
        let (manifest, media_type) = manifest(kept, (&image.id, config.len()), &layers);
        let tag = wanted
            .parse::<Reference>()
            .ok()
            .map(|name| name.to_string());
        let tag = tag.filter(|tag| image.tags.contains(tag));
        let names = tag.map_or(image.tags, |tag| vec![tag]);
        self.name(&names, &manifest, &media_type);
        self.docker.push(json!({
            "Config": blob(&image.id),
            "RepoTags": names,
            "Layers": layers.iter().map(|(diff, _)| blob(diff)).collect::<Vec<_>>(),
        }));
        self.members
            .insert(blob(&image.id), Member::Content(config));
        let digest = Digest::of(&manifest);
        self.members
            .insert(blob(&digest), Member::Content(manifest));
        Ok(())
    }

    fn name(&mut self, names: &[String], manifest: &[u8], media_type: &str) {
        let descriptor = json!({
            "mediaType": media_type, "digest": Digest::of(manifest), "size": manifest.len(),
        });
        if names.is_empty() {
            self.manifests.push(descriptor.clone());
        }
        for name in names {
            let mut named = descriptor.clone();
            let tag = name.rsplit_once(':').map_or(name.as_str(), |(_, tag)| tag);
            named["annotations"] = json!({CONTAINERD_NAME: name, OCI_NAME: tag});
            self.manifests.push(named);
        }
    }

    fn write(&self, inner: &Inner, mut out: impl Write) -> Result<(), ExportError> {
        for (name, member) in &self.members {
            match member {
                Member::Folder => {
                    out.write_all(&header(name, 0))
                        .map_err(ExportError::Write)?;
                }
                Member::Content(content) => {
                    let bytes = u64::try_from(content.len()).expect("a length fits");
                    let written = out
                        .write_all(&header(name, bytes))
                        .and_then(|()| out.write_all(content))
                        .and_then(|()| pad(&mut out, bytes));
                    written.map_err(ExportError::Write)?;
                }
                Member::Layer(layer) => {
                    out.write_all(&header(name, layer.bytes))
                        .map_err(ExportError::Write)?;
                    layer.write(inner, &mut out)?;
                    pad(&mut out, layer.bytes).map_err(ExportError::Write)?;
                }
            }
        }
        let ended = out.write_all(&[0; 1024]).and_then(|()| out.flush());
        ended.map_err(ExportError::Write)
    }
}

impl LayerMember {
    fn write(&self, inner: &Inner, out: &mut impl Write) -> Result<(), ExportError> {
        let mut checked = Checked {
            out,
            hasher: Hasher::default(),
            left: self.bytes,
            failed: None,
        };
        let split = inner.folders.layer(&self.chain).join(layer::SPLIT);
        let moved = inner
            .layer(&self.chain)
            .map_or_else(Vec::new, |layer| layer.moved());
        let files = inner.folders.files(&self.chain);
        let made = layer::assemble(&split, &files, &moved, &mut checked);
        if let Some(error) = checked.failed {
            return Err(ExportError::Write(error));
        }
        made.map_err(|source| ExportError::Layer {
            layer: self.chain.clone(),
            source,
        })?;
        let mismatch = |found: String, expected: String| ExportError::Mismatch {
            layer: self.chain.clone(),
            found,
            expected,
        };
        let bytes = self.bytes - checked.left;
        if bytes != self.bytes {
            let found = format!("{bytes} bytes");
            return Err(mismatch(found, self.bytes.to_string()));
        }
        let digest = checked.hasher.finish();
        match digest == self.diff {
            true => Ok(()),
            false => Err(mismatch(digest.to_string(), self.diff.to_string())),
        }
    }
}

/// A writer of exactly so many bytes, which it hashes.
struct Checked<'a, W> {
    out: &'a mut W,
    hasher: Hasher,
    left: u64,
    /// Why `out` took no more: not the layer's fault.
    failed: Option<io::Error>,
}

impl<W: Write> Write for Checked<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = u64::try_from(bytes.len()).expect("a length fits");
        let left = self.left.checked_sub(count);
        self.left = left.ok_or_else(|| io::Error::other("its tar is longer than it was"))?;
        self.hasher.update(bytes);
        if let Err(error) = self.out.write_all(bytes) {
            let again = io::Error::new(error.kind(), error.to_string());
            self.failed = Some(error);
            return Err(again);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the manifest that fits unpacked layers, and its media type: the image's own if it does.
fn manifest(
    kept: Vec<u8>,
    config: (&Digest, usize),
    layers: &[(Digest, u64)],
) -> (Vec<u8>, String) {
    let own = serde_json::from_slice::<Kept>(&kept).unwrap_or(Kept {
        media_type: String::new(),
        annotations: BTreeMap::new(),
    });
    let fits = match Document::parse(&kept) {
        Ok(Document::Manifest(parsed)) => {
            let named = parsed.layers.iter().map(|layer| &layer.digest);
            named.eq(layers.iter().map(|(diff, _)| diff))
        }
        Ok(Document::Index(_)) | Err(_) => false,
    };
    if !fits {
        let made = manifest_of(config, layers, &own.annotations);
        return (made, MANIFEST.to_owned());
    }
    let media_type = Some(own.media_type).filter(|own| !own.is_empty());
    (kept, media_type.unwrap_or_else(|| MANIFEST.to_owned()))
}

fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Returns the header of a file, or of a folder where the name ends in a slash; nothing in it depends on the node.
fn header(name: &str, bytes: u64) -> [u8; 512] {
    let mut header = Header::new_gnu();
    let fields = header.as_old_mut();
    fields.name[..name.len()].copy_from_slice(name.as_bytes());
    let (kind, mode) = match name.ends_with('/') {
        true => (b'5', 0o755),
        false => (b'0', 0o444),
    };
    fields.linkflag = [kind];
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    header.set_cksum();
    *header.as_bytes()
}

fn pad(out: &mut impl Write, bytes: u64) -> io::Result<()> {
    let padding = usize::try_from((512 - bytes % 512) % 512).expect("it is below 512");
    out.write_all(&[0; 512][..padding])
}
