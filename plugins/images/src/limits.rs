//! The bounds of everything that comes from outside.

use std::time::Duration;

/// What a registry, an image or an archive may take of this machine; the defaults suit a node.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of one manifest, index, image config or token document.
    pub document_bytes: usize,
    /// Layers of one image; overlayfs stacks 500.
    pub layers: usize,
    /// Unpacked bytes of one layer: of its tar stream, and of what its hard links copy from the layers below.
    pub layer_bytes: u64,
    /// Unpacked bytes of all layers of one image that are unpacked for it.
    pub image_bytes: u64,
    /// Unpacked bytes of an archive of images that comes as a stream.
    pub archive_bytes: u64,
    /// Entries of one layer's tar.
    pub entries: u64,
    /// Bytes of one extended header: a PAX header, or a GNU long name.
    pub header_bytes: u64,
    /// Bytes of names, attributes and deferred work that one layer may keep in memory while it is unpacked.
    pub metadata_bytes: u64,
    /// The base-2 logarithm of the largest window that a zstd frame may ask for.
    pub zstd_window_log: u32,
    /// Layers that are downloaded and unpacked at a time, over all pulls of the store.
    pub layers_abreast: usize,
    /// Attempts at one request whose failure may pass.
    pub attempts: u32,
    /// How long a registry may send nothing.
    pub stall: Duration,
    /// The first pause before a new attempt; each further one is twice as long.
    pub backoff: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            document_bytes: 4 << 20,
            layers: 500,
            layer_bytes: 64 << 30,
            image_bytes: 256 << 30,
            archive_bytes: 256 << 30,
            entries: 4_000_000,
            header_bytes: 1 << 20,
            metadata_bytes: 64 << 20,
            // 32 MiB: the strongest setting of the common image builders; zstd's own tools need 8 MiB at most.
            zstd_window_log: 25,
            layers_abreast: 3,
            attempts: 5,
            stall: Duration::from_secs(30),
            backoff: Duration::from_millis(200),
        }
    }
}
