//! What is in an archive: an OCI layout (image-spec `image-layout.md`), or Docker's `manifest.json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::index::Index;
use super::{ArchiveError, ArchivedLayer, Described};
use crate::digest::Digest;
use crate::documents::{
    Descriptor, Document, DocumentError, ImageConfig, Manifest, Platform, Search,
};
use crate::limits::Limits;
use crate::reference::Reference;

/// Where containerd puts a name as it is; the OCI's own place often has the tag alone.
pub(super) const CONTAINERD_NAME: &str = "io.containerd.image.name";
pub(super) const OCI_NAME: &str = "org.opencontainers.image.ref.name";

/// Bytes of the documents of all images of an archive.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;

#[derive(Deserialize)]
struct Top {
    manifests: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(flatten)]
    descriptor: Descriptor,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Reads and checks the documents of all images of an archive.
pub(super) fn describe(
    index: &Index,
    name: Option<&Reference>,
    platform: &Platform,
    limits: &Limits,
) -> Result<Vec<Described>, ArchiveError> {
    let mut describing = Describing {
        index,
        platform,
        limits,
        bytes: 0,
    };
    let mut images = match index.document("index.json", limits.document_bytes)? {
        Some(content) => describing.oci(&content)?,
        None => match index.document("manifest.json", limits.document_bytes)? {
            Some(content) => describing.docker(&content)?,
            None => {
                return Err(index.refused("it has neither index.json nor manifest.json".to_owned()));
            }
        },
    };
    match (name, images.as_mut_slice()) {
        (None, _) => {}
        (Some(name), [image]) => image.names = vec![name.to_string()],
        (Some(name), several) => {
            let count = several.len();
            let reason = format!("it has {count} images, and the name {name} is for one");
            return Err(index.refused(reason));
        }
    }
    for nameless in images.iter().filter(|image| image.names.is_empty()) {
        let (archive, manifest) = (index.path().display(), &nameless.manifest.0);
        tracing::warn!(%archive, %manifest, "an image without a name is left out");
    }
    images.retain(|image| !image.names.is_empty());
    match images.is_empty() {
        true => Err(index.refused("it gives no image a name".to_owned())),
        false => Ok(images),
    }
}

struct Describing<'a> {
    index: &'a Index,
    platform: &'a Platform,
    limits: &'a Limits,
    /// Bytes of documents that were read.
    bytes: usize,
}

impl Describing<'_> {
    fn oci(&mut self, content: &[u8]) -> Result<Vec<Described>, ArchiveError> {
        let top: Top = self.json("index.json", content)?;
        let mut described = Vec::new();
        for named in &top.manifests {
            described.push(self.oci_image(named)?);
        }
        Ok(described)
    }

    fn oci_image(&mut self, named: &Named) -> Result<Described, ArchiveError> {
        let content = self.blob(&named.descriptor)?;
        let digest = named.descriptor.digest.clone();
        let (index, manifest, parsed) = match self.document(&named.descriptor, &content)? {
            Document::Manifest(parsed) => (None, (digest, content), parsed),
            Document::Index(list) => {
                let (digest_below, below, parsed) = self.choose(&digest, list)?;
                (Some((digest, content)), (digest_below, below), parsed)
            }
        };
        let Manifest { config, layers } = parsed;
        let config_content = self.blob(&config)?;
        let config_name = config.digest.to_string();
        let parsed = self.config(&config_name, &config_content, layers.len())?;
        if index.is_none() {
            parsed
                .suits(self.platform)
                .map_err(|source| self.wrong(&config_name, source))?;
        }
        let layers = layers.iter().map(|layer| {
            let name = blob_name(&layer.digest);
            let located = self.index.find(&name).ok_or_else(|| self.lacks(&name))?;
            let packed = Some((layer.digest.clone(), layer.size));
            Ok(ArchivedLayer {
                name,
                located,
                packed,
            })
        });
        Ok(Described {
            names: names(
                named,
                index.as_ref().map_or(&manifest.0, |(digest, _)| digest),
            ),
            layers: layers.collect::<Result<_, ArchiveError>>()?,
            index,
            manifest,
            config: (config.digest, config_content),
            parsed,
        })
    }

    /// Finds the manifest of the platform below the index `top`.
    fn choose(
        &mut self,
        top: &Digest,
        list: Vec<Descriptor>,
    ) -> Result<(Digest, Vec<u8>, Manifest), ArchiveError> {
        let name = top.to_string();
        let mut search = Search::new(self.platform, top.clone(), list);
        loop {
            let candidate = search.next().map_err(|source| self.wrong(&name, source))?;
            let content = self.blob(&candidate.descriptor)?;
            let document = self.document(&candidate.descriptor, &content)?;
            let Some(manifest) = search.open(&candidate, document) else {
                continue;
            };
            let config_name = manifest.config.digest.to_string();
            let config = self.blob(&manifest.config)?;
            let config = self.config(&config_name, &config, manifest.layers.len())?;
            if search.accepts(&candidate, &config, &name) {
                return Ok((candidate.descriptor.digest, content, manifest));
            }
        }
    }

    fn docker(&mut self, content: &[u8]) -> Result<Vec<Described>, ArchiveError> {
        let images: Vec<DockerImage> = self.json("manifest.json", content)?;
        let mut described = Vec::new();
        for image in &images {
            described.push(self.docker_image(image)?);
        }
        Ok(described)
    }

    fn docker_image(&mut self, image: &DockerImage) -> Result<Described, ArchiveError> {
        let max = self.limits.document_bytes;
        let content = self.index.document(&image.config, max)?;
        let content = content.ok_or_else(|| self.lacks(&image.config))?;
        self.count(content.len())?;
        let parsed = self.config(&image.config, &content, image.layers.len())?;
        parsed
            .suits(self.platform)
            .map_err(|source| self.wrong(&image.config, source))?;
        let layers = image.layers.iter().map(|name| {
            let located = self.index.find(name).ok_or_else(|| self.lacks(name))?;
            Ok(ArchivedLayer {
                name: name.clone(),
                located,
                packed: None,
            })
        });
        let layers = layers.collect::<Result<Vec<_>, ArchiveError>>()?;
        let config = Digest::of(&content);
        let sizes = layers.iter().map(|layer| layer.located.size);
        let sized: Vec<_> = parsed.diff_ids().iter().cloned().zip(sizes).collect();
        let manifest = manifest_of((&config, content.len()), &sized, &BTreeMap::new());
        let mut names = Vec::new();
        for tag in image.repo_tags.iter().flatten() {
            let name: Reference = tag
                .parse()
                .map_err(|error| self.index.refused(format!("{error}")))?;
            names.push(name.to_string());
        }
        Ok(Described {
            names,
            index: None,
            manifest: (Digest::of(&manifest), manifest),
            config: (config, content),
            parsed,
            layers,
        })
    }

    fn config(
        &self,
        name: &str,
        content: &[u8],
        layers: usize,
    ) -> Result<ImageConfig, ArchiveError> {
        let parsed = ImageConfig::parse(content).and_then(|config| {
            config.check(layers, self.limits.layers)?;
            Ok(config)
        });
        parsed.map_err(|source| self.wrong(name, source))
    }

    fn document(&self, descriptor: &Descriptor, content: &[u8]) -> Result<Document, ArchiveError> {
        Document::parse(content)
            .map_err(|source| self.wrong(&descriptor.digest.to_string(), source))
    }

    /// Counts bytes of documents, which are kept until their images are imported.
    fn count(&mut self, bytes: usize) -> Result<(), ArchiveError> {
        self.bytes += bytes;
        match self.bytes > MAX_DOCUMENT_BYTES {
            true => Err(self.index.refused(format!(
                "the documents of its images have more than {MAX_DOCUMENT_BYTES} bytes"
            ))),
            false => Ok(()),
        }
    }

    /// Reads a document by digest, and checks digest and size.
    fn blob(&mut self, descriptor: &Descriptor) -> Result<Vec<u8>, ArchiveError> {
        let name = blob_name(&descriptor.digest);
        let content = self.index.document(&name, self.limits.document_bytes)?;
        let content = content.ok_or_else(|| self.lacks(&name))?;
        self.count(content.len())?;
        let size = u64::try_from(content.len()).expect("a length fits");
        if Digest::of(&content) != descriptor.digest || size != descriptor.size {
            return Err(self
                .index
                .refused(format!("{name:?} in it has another digest or size")));
        }
        Ok(content)
    }

    fn json<T: serde::de::DeserializeOwned>(
        &self,
        name: &'static str,
        content: &[u8],
    ) -> Result<T, ArchiveError> {
        let malformed = |source| DocumentError::Malformed { what: name, source };
        serde_json::from_slice(content).map_err(|error| self.wrong(name, malformed(error)))
    }

    fn wrong(&self, name: &str, source: DocumentError) -> ArchiveError {
        ArchiveError::Document {
            path: self.index.path().to_owned(),
            name: name.to_owned(),
            source,
        }
    }

    fn lacks(&self, name: &str) -> ArchiveError {
        self.index
            .refused(format!("it has no {name:?}, which an image in it needs"))
    }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Returns the names that a layout gives an image: one with a tag, and that with the digest.
fn names(named: &Named, top: &Digest) -> Vec<String> {
    let name = named.annotations.get(CONTAINERD_NAME).or_else(|| {
        // A bare tag would become the name of another image.
        named
            .annotations
            .get(OCI_NAME)
            .filter(|name| name.contains(['/', ':']))
    });
    let reference = name.and_then(|name| name.parse::<Reference>().ok());
    reference.map_or_else(Vec::new, |reference| {
        vec![
            reference.to_string(),
            reference.with_digest(top.clone()).to_string(),
        ]
    })
}

/// Makes the manifest of an image whose layers are unpacked tars of these digests and sizes.
pub(super) fn manifest_of(
    (config, size): (&Digest, usize),
    layers: &[(Digest, u64)],
    annotations: &BTreeMap<String, String>,
) -> Vec<u8> {
    let layers: Vec<_> = layers
        .iter()
        .map(|(diff, size)| {
            serde_json::json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": diff, "size": size,
            })
        })
        .collect();
    let mut manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": size},
        "layers": layers,
    });
    if !annotations.is_empty() {
        manifest["annotations"] = serde_json::json!(annotations);
    }
    serde_json::to_vec(&manifest).expect("its keys are texts")
}
