//! The `:authority` of a header block, replaced without decoding the block.
//!
//! HPACK (RFC 7541, section 6) can be walked field by field without its tables: only lengths matter. A decoder counts the
//! length of what it keeps; the new value is shorter than any other, so that it keeps no less than the encoder believes.

/// The entry of the static table (appendix A).
const AUTHORITY: usize = 1;
/// What takes the place of each value, after its length: as short as one may be.
const REPLACEMENT: &[u8] = b"\x01x";

/// Returns the block with each value of `:authority` replaced. A block that ends in the middle of a field, or is none, stays as it
/// is from there on.
pub(super) fn replaced(block: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(block.len());
    let mut rest = block;
    while let Some((field, after)) = field(rest) {
        let length = rest.len() - after.len();
        match field {
            Field::Other => written.extend_from_slice(&rest[..length]),
            Field::Authority { name } => {
                written.extend_from_slice(&rest[..name]);
                written.extend_from_slice(REPLACEMENT);
            }
        }
        rest = after;
    }
    written.extend_from_slice(rest);
    written
}

#[derive(Debug)]
enum Field {
    /// Its representation and its name are so many bytes; a value follows that isn't empty.
    Authority {
        name: usize,
    },
    Other,
}

/// Reads one field, and returns what follows it.
fn field(bytes: &[u8]) -> Option<(Field, &[u8])> {
    let first = *bytes.first()?;
    let (prefix, literal) = match first {
        _ if first & 0x80 != 0 => (7, false),
        _ if first & 0x40 != 0 => (6, true),
        // The size of the table.
        _ if first & 0x20 != 0 => (5, false),
        _ => (4, true),
    };
    let (index, after) = integer(bytes, prefix)?;
    if !literal {
        return Some((Field::Other, after));
    }
    let value = if index == 0 { string(after)? } else { after };
    let end = string(value)?;
    let name = bytes.len() - value.len();
    // Its length alone is one byte.
    let is_empty = value.len() - end.len() == 1;
    let found = match index == AUTHORITY && !is_empty {
        true => Field::Authority { name },
        false => Field::Other,
    };
    Some((found, end))
}

/// Returns what follows a string.
fn string(bytes: &[u8]) -> Option<&[u8]> {
    let (length, after) = integer(bytes, 7)?;
    after.get(length..)
}

/// Reads an integer with a prefix of so many bits (section 5.1).
fn integer(bytes: &[u8], prefix: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value < most {
        return Some((value, rest));
    }
    // Four bytes more are 28 bits, which no frame is as long as.
    for shift in [0, 7, 14, 21] {
        let (next, after) = rest.split_first()?;
        value += (usize::from(*next) & 0x7f) << shift;
        rest = after;
        if next & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `:method POST`, `:scheme http`, then fields.
    fn block(fields: &[&[u8]]) -> Vec<u8> {
        [&[0x83, 0x86], fields.concat().as_slice()].concat()
    }

    const PATH: &[u8] = b"\x44\x02/a";
    const AGENT: &[u8] = b"\x40\x0auser-agent\x01g";

    #[test]
    fn the_value_alone_is_replaced_however_its_field_is_written() {
        for first in [b"\x41", b"\x01", b"\x11"] {
            let given = block(&[PATH, first, b"\x0a%2Frun%2Fs", AGENT]);
            let wanted = block(&[PATH, first, b"\x01x", AGENT]);
            // The length of this value is ten.
            assert_eq!(replaced(&given), wanted, "{first:?}");
        }
        let long = [b"\x41\x7f\x49".as_slice(), &[b'a'; 200]].concat();
        assert_eq!(
            replaced(&block(&[&long, PATH])),
            block(&[b"\x41\x01x", PATH])
        );
        let huffman = [b"\x41\x83".as_slice(), &[0xff; 3]].concat();
        assert_eq!(replaced(&block(&[&huffman])), block(&[b"\x41\x01x"]));
    }

    #[test]
    fn other_fields_and_references_stay_as_they_are() {
        let sized = b"\x3f\xe1\x1f";
        let given = block(&[sized, PATH, AGENT, b"\xbe", b"\x81", b"\x41\x00"]);
        assert_eq!(replaced(&given), given);
    }

    #[test]
    fn what_is_cut_off_stays_as_it_is() {
        let whole = block(&[PATH, b"\x41\x0a%2Frun%2Fs"]);
        for length in 0..whole.len() {
            assert_eq!(replaced(&whole[..length]), &whole[..length]);
        }
        let endless = [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(replaced(&endless), endless);
    }
}
