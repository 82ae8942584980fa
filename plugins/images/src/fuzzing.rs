//! What the fuzz targets call: hostile bytes where registries and archives have theirs. Not for anybody else.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::digest::Digest;
use crate::disk::Disk;
use crate::documents::{Document, ImageConfig, Platform, choose};
use crate::layer::{self, Bench, Expected};
use crate::limits::Limits;
use crate::reference::Reference;

/// Reads `input` as a manifest, an index, a config and a reference.
pub fn document(input: &[u8]) {
    if let Ok(Document::Index(manifests)) = Document::parse(input) {
        drop(choose(&manifests, &Platform::host()));
    }
    if let Ok(config) = ImageConfig::parse(input) {
        assert_eq!(config.chain_ids().len(), config.diff_ids().len());
        drop(config.check(1, 500, &Platform::host()));
    }
    if let Ok(text) = str::from_utf8(input)
        && let Ok(reference) = text.parse::<Reference>()
    {
        let again = reference.to_string().parse::<Reference>();
        assert_eq!(
            again.ok(),
            Some(reference),
            "a name is written as it is read"
        );
    }
}

/// Unpacks `input` as a layer into `folder/layer`, upon nothing, and removes it again; panics if it reached the file
/// `folder/guard`, or if the files can't be made.
pub fn layer(folder: &Path, input: &[u8]) {
    let (guard, scratch) = (folder.join("guard"), folder.join("layer"));
    std::fs::write(&guard, "guarded").expect("the folder is ours");
    std::fs::create_dir(&scratch).expect("the folder is ours");
    let limits = Limits {
        layer_bytes: 1 << 20,
        entries: 1000,
        header_bytes: 64 << 10,
        metadata_bytes: 1 << 20,
        ..Limits::default()
    };
    let bench = Bench {
        scratch: scratch.clone(),
        disk: Disk::default(),
        image_left: Arc::new(AtomicU64::new(limits.image_bytes)),
        limits,
    };
    let expected = Expected {
        packed: None,
        diff: Digest::of(input),
    };
    if let Ok(mut unpacked) = layer::unpack(input, &expected, &bench) {
        drop(unpacked.finish(&bench, &[]));
    }
    let content = std::fs::read(&guard).expect("nothing removed the guard");
    assert_eq!(content, b"guarded", "the layer wrote outside of its folder");
    std::fs::remove_dir_all(&scratch).expect("what was unpacked can be removed");
}
