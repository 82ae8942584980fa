//! Base64 for URLs, without padding.

/// Returns the bytes; none if it is no such text.
pub(super) fn url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for letter in group {
            bits = (bits << 6) | u32::from(value(*letter)?);
        }
        let whole = match group.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..=whole]);
    }
    Some(bytes)
}

fn value(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_becomes_bytes_or_nothing() {
        assert_eq!(super::url("dG9rZW4").unwrap(), b"token");
        assert_eq!(super::url("").unwrap(), b"");
        assert_eq!(super::url("_-8").unwrap(), [0xff, 0xef]);
        for bad in ["a", "ab=", "a+bc", "ab/c", "a b"] {
            assert_eq!(super::url(bad), None, "{bad}");
        }
    }
}
