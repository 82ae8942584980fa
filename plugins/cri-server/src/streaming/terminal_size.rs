//! The sizes of a client's terminal, as its resize stream carries them.

use serde::Deserialize;

/// Bytes of an unfinished size that are kept.
const MAX_UNREAD_BYTES: usize = 4 << 10;

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase")]
pub struct TerminalSize {
    /// The width in columns.
    pub width: u16,
    /// The height in lines.
    pub height: u16,
}

/// Reads the JSON objects of a resize stream (`{"Width":80,"Height":24}`), which chunks may cut anywhere.
#[derive(Debug, Default)]
pub struct TerminalSizeReader(Vec<u8>);

impl TerminalSizeReader {
    /// Reads the next chunk; returns the last complete size in it.
    pub fn read(&mut self, chunk: &[u8]) -> Option<TerminalSize> {
        self.0.extend_from_slice(chunk);
        let mut sizes = serde_json::Deserializer::from_slice(&self.0).into_iter::<TerminalSize>();
        let mut last = None;
        let mut done = 0;
        while let Some(Ok(size)) = sizes.next() {
            (last, done) = (Some(size), sizes.byte_offset());
        }
        self.0.drain(..done);
        self.0.truncate(MAX_UNREAD_BYTES);
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_may_come_in_pieces() {
        let mut sizes = TerminalSizeReader::default();
        assert_eq!(sizes.read(br#"{"Width":80,"Hei"#), None);
        let two = br#"ght":24}{"Width":100,"Height":40}{"W"#;
        assert_eq!(
            sizes.read(two),
            Some(TerminalSize {
                width: 100,
                height: 40
            })
        );
        assert_eq!(
            sizes.read(br#"idth":1,"Height":2}"#),
            Some(TerminalSize {
                width: 1,
                height: 2
            })
        );
    }
}
