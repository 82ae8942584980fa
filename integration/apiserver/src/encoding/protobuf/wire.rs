//! The wire format: numbers and bytes, each with the number of its field.

/// A field's value, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message in their order; none for what is broken, and then no more.
pub(super) fn items(bytes: &[u8]) -> impl Iterator<Item = Option<(u64, WireValue<'_>)>> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let left = rest.filter(|left| !left.is_empty())?;
        let taken = take(left);
        rest = taken.map(|(_, rest)| rest);
        Some(taken.map(|(field, _)| field))
    })
}

fn take(bytes: &[u8]) -> Option<((u64, WireValue<'_>), &[u8])> {
    let (tag, rest) = number(bytes)?;
    let (item, rest) = match tag & 7 {
        0 => number(rest).map(|(value, rest)| (WireValue::Number(value), rest))?,
        1 => fixed(rest, 8)?,
        2 => {
            let (length, rest) = number(rest)?;
            let (content, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (WireValue::Bytes(content), rest)
        }
        5 => fixed(rest, 4)?,
        _ => return None,
    };
    Some(((tag >> 3, item), rest))
}

fn fixed(bytes: &[u8], length: usize) -> Option<(WireValue<'_>, &[u8])> {
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((WireValue::Bytes(content), rest))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}
