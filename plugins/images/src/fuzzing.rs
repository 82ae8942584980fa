//! What the fuzz targets call: hostile bytes where registries and archives have theirs. Not for anybody else.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::time::Instant;

use crate::blocking::Stop;
use crate::digest::Digest;
use crate::disk::Disk;
use crate::documents::{Document, ImageConfig, Platform, Search};
use crate::layer::{self, Expected, UnpackContext};
use crate::limits::Limits;
use crate::reference::Reference;
use crate::registry;

/// Reads `input` as a manifest, an index, a config and a reference.
pub fn document(input: &[u8]) {
    if let Ok(Document::Index(manifests)) = Document::parse(input) {
        let host = Platform::host();
        let mut search = Search::new(&host, Digest::of(input), manifests);
        // Each document that it asks for is this one again: it has to end.
        while let Ok(candidate) = search.next() {
            if let Ok(document) = Document::parse(input) {
                drop(search.open(&candidate, document));
            }
        }
    }
    if let Ok(config) = ImageConfig::parse(input) {
        assert_eq!(config.chain_ids().len(), config.diff_ids().len());
        drop(config.check(1, 500));
        drop(config.suits(&Platform::host()));
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

/// Reads `input` as all that a registry answers beside documents and blobs: errors, challenges, redirects, pauses.
pub fn answer(input: &[u8]) {
    registry::read_answer(input);
}

/// Reads `input` as the hosts.toml of a registry in `folder`; a file that is taken leads to the registry itself at last.
pub fn hosts(folder: &Path, input: &[u8]) {
    let place = folder.join("registry.test");
    std::fs::create_dir_all(&place).expect("the folder is ours");
    std::fs::write(place.join("hosts.toml"), input).expect("the folder is ours");
    let reference = "registry.test/a:b".parse().expect("it is a reference");
    registry::read_hosts(folder, &reference);
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
    let context = UnpackContext {
        scratch: scratch.clone(),
        disk: Disk::default(),
        image_left: Arc::new(AtomicU64::new(limits.image_bytes)),
        stop: Stop::new(Instant::now() + limits.layer_time),
        limits,
    };
    let expected = Expected {
        packed: None,
        diff: Digest::of(input),
    };
    if let Ok(mut unpacked) = layer::unpack(input, &expected, &context) {
        drop(unpacked.finish(&context, &[]));
        let (split, files) = (scratch.join(layer::SPLIT), scratch.join("files"));
        drop(layer::assemble(
            &split,
            &files,
            &unpacked.moved,
            &mut std::io::sink(),
        ));
    }
    let content = std::fs::read(&guard).expect("nothing removed the guard");
    assert_eq!(content, b"guarded", "the layer wrote outside of its folder");
    files::remove_tree(&scratch).expect("what was unpacked can be removed");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Tar;

    fn seed() -> Vec<u8> {
        Tar::default()
            .folder("d", 0o755)
            .file("d/f", b"content")
            .hard_link("d/g", "d/f")
            .symlink("s", "../../guard")
            .file("s/x", b"")
            .pax(&[("path", b"p")])
            .file("x", b"")
            .file("d/.wh..wh..opq", b"")
            .pax(&[
                ("GNU.sparse.numblocks", b"2"),
                ("GNU.sparse.size", b"999"),
                ("GNU.sparse.map", b"1,2,9,1"),
            ])
            .file("holes", b"123")
            .pax(&[
                ("GNU.sparse.major", b"1"),
                ("GNU.sparse.minor", b"0"),
                ("GNU.sparse.realsize", b"99"),
            ])
            .file(
                "more",
                &[b"1\n7\n3\n".as_slice(), &[0; 506], b"123"].concat(),
            )
            .end()
    }

    /// Changes bytes of a tar and mends the checksums of its headers, so that the change is looked at.
    fn changed(mut tar: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
        for (at, byte) in changes {
            let length = tar.len();
            tar[at % length] = *byte;
        }
        for block in tar
            .chunks_exact_mut(512)
            .filter(|block| block[257..262] == *b"ustar")
        {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        tar
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_layer_reaches_what_is_beside_its_folder(changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..12)) {
            let home = tempfile::tempdir_in("/dev/shm").unwrap();
            layer(home.path(), &changed(seed(), &changes));
        }

        #[test]
        fn any_answer_and_any_hosts_file_is_read_or_refused(
            content in "(.|[\\r\\n]){0,80}",
            hosts_toml in "(server = '[a-z:/.0-9]{0,12}'\n)?(\\[host\\.'[a-z:/.0-9]{0,12}'\\]\n)?([a-z_]{1,14} = [a-z0-9\\[\\]'\",]{0,12}\n){0,3}",
        ) {
            let home = tempfile::tempdir_in("/dev/shm").unwrap();
            answer(content.as_bytes());
            hosts(home.path(), hosts_toml.as_bytes());
        }

        #[test]
        fn any_document_is_read_or_refused(content in prop::collection::vec(any::<u8>(), 0..200), name in "[a-z0-9.:/@_-]{0,40}") {
            document(&content);
            document(name.as_bytes());
        }
    }
}
