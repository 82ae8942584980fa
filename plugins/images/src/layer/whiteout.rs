//! Whiteouts: what a layer says of the layers below, in names (OCI image-spec `layer.md`, "Whiteouts").

use super::LayerError;
use super::entry::refused;

/// What the last name of an entry means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    /// What it says.
    Itself,
    /// This name of the layers below is hidden.
    Hides(&'a [u8]),
    /// All that the layers below have in the folder is hidden.
    HidesAll,
    /// A record of AUFS that means nothing elsewhere.
    Nothing,
}

const PREFIX: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const AUFS: &[u8] = b".wh..wh.";

/// Returns what `name`, the last of `path`, means.
pub(super) fn meaning<'a>(path: &[u8], name: &'a [u8]) -> Result<Meaning<'a>, LayerError> {
    if name == OPAQUE {
        return Ok(Meaning::HidesAll);
    }
    if name.starts_with(AUFS) {
        return Ok(Meaning::Nothing);
    }
    match name.strip_prefix(PREFIX) {
        None => Ok(Meaning::Itself),
        Some(b"" | b"." | b"..") => Err(refused(path, "a whiteout of no name")),
        Some(hidden) => Ok(Meaning::Hides(hidden)),
    }
}
