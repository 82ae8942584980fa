//! A checkpoint's bytes: a checked header, and bincode behind it.
//!
//! ```text
//! magic 8 | version u16 | kind u16 | length u32 | crc32c u32 | payload      (little endian)
//! ```
//!
//! The sum covers the header before it and the payload. Without it bincode decodes nine of ten
//! flipped bits into a different value without a word. Kubernetes objects do not survive bincode:
//! they belong inside as JSON bytes.

use bincode::config::{Configuration, Limit, LittleEndian, Varint, standard};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest payload of a checkpoint, in bytes.
pub const LIMIT: usize = 64 << 20;

/// Bytes before the payload.
pub(super) const HEADER: usize = 20;

const MAGIC: &[u8; 8] = b"oxletckp";
const CONFIG: Configuration<LittleEndian, Varint, Limit<LIMIT>> = standard().with_limit::<LIMIT>();

/// The kind and the version of a checkpoint's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// Which of the program's checkpoints this is.
    pub kind: u16,
    /// Raised with every change of its type.
    pub version: u16,
}

/// Why a file's bytes are no checkpoint of the wanted schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// It ends in the header, or is no regular file.
    #[error("it is no checkpoint file: {0}")]
    NoCheckpoint(&'static str),
    /// It is shorter or longer than its header says.
    #[error("its header announces {announced} bytes of content, it has {found}")]
    Length {
        /// The length in the header, in bytes.
        announced: u64,
        /// The length of the content, in bytes.
        found: u64,
    },
    /// Its content or header changed since it was written.
    #[error("its checksum is {found:#010x}, its header says {announced:#010x}")]
    Checksum {
        /// The checksum in the header.
        announced: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// It is a checkpoint of something else.
    #[error("it is of kind {found}, expected {wanted}")]
    Kind {
        /// The kind in the header.
        found: u16,
        /// The kind asked for.
        wanted: u16,
    },
    /// A later program wrote it.
    #[error("it has schema version {found}, this program reads up to {wanted}")]
    Newer {
        /// The version in the header.
        found: u16,
        /// The version asked for.
        wanted: u16,
    },
    /// An earlier program wrote it, and there is no migration for it.
    #[error("it has schema version {found}, this program reads {wanted}")]
    Older {
        /// The version in the header.
        found: u16,
        /// The version asked for.
        wanted: u16,
    },
    /// It is whole, but its content is not of the wanted type.
    #[error("its content does not fit its schema: {0}")]
    Content(String),
}

/// Why a value cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// bincode cannot carry it.
    #[error("the value cannot be encoded")]
    Value(#[from] bincode::error::EncodeError),
    /// It is larger than [`LIMIT`].
    #[error("the value takes {0} bytes, at most {LIMIT} are allowed")]
    TooLarge(usize),
}

/// Returns the bytes of a file that holds `value`.
pub(super) fn encode<T: Serialize>(schema: Schema, value: &T) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = vec![0; HEADER];
    let written = bincode::serde::encode_into_std_write(value, &mut bytes, CONFIG)?;
    let length = u32::try_from(written)
        .ok()
        .filter(|_| written <= LIMIT)
        .ok_or(EncodeError::TooLarge(written))?;
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&schema.version.to_le_bytes());
    bytes[10..12].copy_from_slice(&schema.kind.to_le_bytes());
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&bytes);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

/// Returns the schema version and the payload of a whole file of the wanted kind, of its version or
/// an older one.
pub(super) fn open(schema: Schema, bytes: &[u8]) -> Result<(u16, &[u8]), Flaw> {
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(Flaw::NoCheckpoint("it is shorter than a header"));
    };
    let (magic, rest) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(Flaw::NoCheckpoint("it does not begin as one"));
    }
    let short = |at: usize| u16::from_le_bytes([rest[at], rest[at + 1]]);
    let long = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
    let (version, kind, length, announced) = (short(0), short(2), long(4), long(8));
    if u64::from(length) != payload.len() as u64 {
        return Err(Flaw::Length {
            announced: length.into(),
            found: payload.len() as u64,
        });
    }
    let found = checksum(bytes);
    if found != announced {
        return Err(Flaw::Checksum { announced, found });
    }
    if kind != schema.kind {
        return Err(Flaw::Kind {
            found: kind,
            wanted: schema.kind,
        });
    }
    if version > schema.version {
        return Err(Flaw::Newer {
            found: version,
            wanted: schema.version,
        });
    }
    Ok((version, payload))
}

/// Returns the value in the bytes of a whole file of this schema.
pub fn parse<T: DeserializeOwned>(schema: Schema, bytes: &[u8]) -> Result<T, Flaw> {
    let (found, payload) = open(schema, bytes)?;
    match found == schema.version {
        true => decode(payload),
        false => Err(Flaw::Older {
            found,
            wanted: schema.version,
        }),
    }
}

/// Decodes a payload to its last byte. For migrations too, which know the older type.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Flaw> {
    let decoded = bincode::serde::decode_from_slice(payload, CONFIG);
    let (value, used) = decoded.map_err(|error| Flaw::Content(error.to_string()))?;
    match used == payload.len() {
        true => Ok(value),
        false => Err(Flaw::Content(format!(
            "{} bytes are left over",
            payload.len() - used
        ))),
    }
}

/// Everything but the sum itself.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), &bytes[HEADER..])
}
