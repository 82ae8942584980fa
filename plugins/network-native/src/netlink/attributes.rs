//! Attributes of netlink messages: type, length, value, each at a multiple of four bytes (netlink(7)).

const HEADER: usize = 4;
const NESTED: u16 = 1 << 15;
/// The bits that are no flags.
const KIND: u16 = 0x3fff;

/// Attributes that are being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(HEADER + value.len()).expect("an attribute of ours is small");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(HEADER), 0);
        self
    }

    pub(crate) fn nested(self, kind: u16, inner: Self) -> Self {
        self.nested_bytes(kind, &inner.0)
    }

    /// Nests attributes as they were read.
    pub(crate) fn nested_bytes(self, kind: u16, inner: &[u8]) -> Self {
        self.bytes(kind | NESTED, inner)
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut value = value.as_bytes().to_vec();
        value.push(0);
        self.bytes(kind, &value)
    }

    pub(crate) fn u8(self, kind: u16, value: u8) -> Self {
        self.bytes(kind, &[value])
    }

    pub(crate) fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// In the network's order, as netfilter has its numbers.
    pub(crate) fn be32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// In the network's order.
    pub(crate) fn be64(self, kind: u16, value: u64) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Writes the attributes of `other` behind these.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.0.extend(&other.0);
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Reads attributes; what is cut off ends them.
pub(crate) fn each(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(HEADER..length)?;
        rest = rest
            .get(length.next_multiple_of(HEADER)..)
            .unwrap_or_default();
        Some((kind & KIND, value))
    })
}

/// Returns the value of the first attribute of a kind.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    each(bytes)
        .find(|(at, _)| *at == kind)
        .map(|(_, value)| value)
}

/// Returns the number of the first attribute of a kind.
pub(crate) fn find_u32(bytes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_ne_bytes(find(bytes, kind)?.try_into().ok()?))
}

/// Returns the text of a value, without the NUL at its end.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_off_is_left_out() {
        let inner = Attributes::new().u8(7, 1).text(8, "name");
        let all = Attributes::new().u32(1, 5).nested(2, inner);
        assert_eq!(find_u32(all.as_bytes(), 1), Some(5));
        let inner = find(all.as_bytes(), 2).unwrap();
        assert_eq!(find(inner, 7), Some(&[1][..]));
        assert_eq!(text(find(inner, 8).unwrap()), "name");
        for length in 0..all.as_bytes().len() {
            assert!(each(&all.as_bytes()[..length]).count() < 2);
        }
    }
}
