//! What the store writes down, a file a record: a line with the digest of the rest, and JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::layer::{Inside, Moved, Unpacked};

/// Bytes of a record; the longest is an image's of 500 layers, 40 KiB.
pub(super) const RECORD_BYTES_MAX: usize = 1 << 20;

/// An image that is whole: its documents are in `blobs`, its layers in `layers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    /// The digest of its config.
    pub(crate) id: Digest,
    pub(crate) manifest: Digest,
    pub(crate) index: Option<Digest>,
    /// Its layers' chain ids, from the lowest.
    pub(crate) chains: Vec<Digest>,
    pub(crate) user: String,
    pub(crate) pinned: bool,
}

impl ImageRecord {
    pub(super) fn blobs(&self) -> impl Iterator<Item = &Digest> {
        [&self.id, &self.manifest].into_iter().chain(&self.index)
    }
}

/// A name of an image: with a tag, or with the digest of its manifest or index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NameRecord {
    pub(super) name: String,
    pub(super) image: Digest,
}

/// An image that `owner` needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    pub(super) owner: String,
    pub(super) image: Digest,
}

/// A layer that is whole, beside its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    pub(crate) chain: Digest,
    pub(crate) diff: Digest,
    /// Bytes on disk, about: each file rounded up to 4 KiB.
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// Nothing of the layers below is seen through it: they are left out of the stack.
    pub(crate) opaque: bool,
    /// Bytes of its tar, which can be made again; none where an earlier version unpacked it.
    #[serde(default)]
    pub(crate) tar_bytes: Option<u64>,
    /// Folders of the tar whose entries lie elsewhere, from where and to where, as hexadecimal bytes of paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moved: Vec<(String, String)>,
}

impl LayerRecord {
    /// Returns the record of a layer that was unpacked.
    pub(crate) fn new(chain: Digest, diff: Digest, unpacked: &Unpacked) -> Self {
        let moved = unpacked.moved.iter();
        Self {
            chain,
            diff,
            bytes: unpacked.bytes,
            inodes: unpacked.inodes,
            opaque: unpacked.opaque,
            tar_bytes: Some(unpacked.tar_bytes),
            moved: moved
                .map(|one| (to_hex(one.from.bytes()), to_hex(one.to.bytes())))
                .collect(),
        }
    }

    /// Returns the folders of the tar whose entries lie elsewhere.
    pub(crate) fn moved(&self) -> Vec<Moved> {
        let path = |hex: &str| Inside::new(&from_hex(hex)?).ok();
        let moved = self.moved.iter();
        moved
            .filter_map(|(from, to)| {
                Some(Moved {
                    from: path(from)?,
                    to: path(to)?,
                })
            })
            .collect()
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// Returns a record as it is written.
pub(crate) fn encode(record: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(record).expect("records have text keys alone");
    let mut content = format!("{}\n", Digest::of(&body)).into_bytes();
    content.extend_from_slice(&body);
    content
}

/// Reads a record back; the error says what is wrong with it.
pub(super) fn decode<T: DeserializeOwned>(content: &[u8]) -> Result<T, String> {
    let end = content
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or("it has no first line")?;
    let (line, body) = (&content[..end], &content[end + 1..]);
    if Digest::of(body).to_string().as_bytes() != line {
        return Err("its first line is not the digest of the rest".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}
