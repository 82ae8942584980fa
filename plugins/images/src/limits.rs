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
    /// Components of the paths of one layer's entries, together: entries times depth.
    pub path_components: u64,
    /// Components of one path.
    pub depth: usize,
    /// How long one layer of an archive may be worked on; those of a pull have its deadline.
    pub layer_time: Duration,
    /// Layers of one pull that are downloaded and unpacked at a time.
    pub layers_abreast: usize,
    /// Pulls and imports that have a place of their own, at least one layer at a time each. Those of one registry have
    /// three quarters of these at most. Beyond that, all share `layers_abreast - 1` further places.
    pub pulls_abreast: usize,
    /// Attempts at one request whose failure may pass.
    pub attempts: u32,
    /// How long a registry may send nothing.
    pub stall: Duration,
    /// A window of a transfer, and the bytes that each window has to bring: what is slower is given up. Only the time
    /// spent waiting for the registry counts.
    pub rate_window: Duration,
    /// See [`rate_window`](Self::rate_window).
    pub least_bytes_per_window: u64,
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
            // Images have some ten components a path, those of package managers for JavaScript up to forty.
            path_components: 40_000_000,
            // As many as fit into the longest path of the kernel.
            depth: 2048,
            layer_time: Duration::from_secs(3600),
            layers_abreast: 3,
            pulls_abreast: 16,
            attempts: 5,
            stall: Duration::from_secs(30),
            // 1 KiB a second: a modem brings more.
            rate_window: Duration::from_secs(60),
            least_bytes_per_window: 60 << 10,
            backoff: Duration::from_millis(200),
        }
    }
}
