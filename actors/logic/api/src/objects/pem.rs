//! PEM, read as Go's `encoding/pem` reads it: what stands between blocks is passed over, a broken block as well.

use std::fmt::Write;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};

/// One block of a PEM text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemBlock {
    /// The label between the dashes: `CERTIFICATE`.
    pub label: String,
    pub bytes: Vec<u8>,
    /// Lines such as `Proc-Type: 4,ENCRYPTED` stood before its body.
    pub has_headers: bool,
}

/// A block that has begun.
#[derive(Default)]
struct OpenPemBlock {
    label: String,
    body: String,
    has_headers: bool,
}

/// Reads all blocks of a PEM text.
pub fn blocks(text: &str) -> Vec<PemBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<OpenPemBlock> = None;
    for line in text.lines().map(str::trim_end) {
        if let Some(label) = framed(line, "-----BEGIN ") {
            open = Some(OpenPemBlock {
                label: label.to_owned(),
                ..OpenPemBlock::default()
            });
        } else if line.starts_with("-----END ") {
            let ended = open.take();
            let ended = ended.filter(|block| framed(line, "-----END ") == Some(&block.label));
            blocks.extend(ended.and_then(OpenPemBlock::close));
        } else if let Some(block) = &mut open {
            block.take(line);
        }
    }
    blocks
}

fn framed<'a>(line: &'a str, begin: &str) -> Option<&'a str> {
    line.strip_prefix(begin)?.strip_suffix("-----")
}

impl OpenPemBlock {
    fn take(&mut self, line: &str) {
        if self.body.is_empty() && line.contains(':') {
            self.has_headers = true;
        } else {
            self.body.extend(line.split_ascii_whitespace());
        }
    }

    fn close(self) -> Option<PemBlock> {
        let bytes = BASE64.decode(self.body).ok()?;
        Some(PemBlock {
            label: self.label,
            bytes,
            has_headers: self.has_headers,
        })
    }
}

/// Certificates one after the other, without headers.
pub fn certificates<'a>(all: impl IntoIterator<Item = &'a [u8]>) -> String {
    const LINE: usize = 64;
    let mut text = String::new();
    for bytes in all {
        let encoded = BASE64.encode(bytes);
        let mut rest = encoded.as_str();
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(LINE));
            writeln!(text, "{line}").expect("writing to a String cannot fail");
            rest = more;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<Vec<u8>> {
        blocks(text).into_iter().map(|block| block.bytes).collect()
    }

    #[test]
    fn blocks_are_found_among_whatever_else_there_is() {
        let text = "comment\n-----BEGIN CERTIFICATE-----\r\nYWJj\r\n-----END CERTIFICATE-----  \nmore\n\
                    -----BEGIN X-----\nProc-Type: 4\n\nZGVm\n-----END X-----\n";
        let found = blocks(text);
        let facts: Vec<_> = found
            .iter()
            .map(|block| (block.label.as_str(), &*block.bytes, block.has_headers))
            .collect();
        let expected = [
            ("CERTIFICATE", &b"abc"[..], false),
            ("X", &b"def"[..], true),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn a_broken_block_hides_no_other() {
        let good = "-----BEGIN A-----\nYWJj\n-----END A-----\n";
        let broken = [
            "-----BEGIN A-----\n%%\n-----END A-----\n",
            "-----BEGIN A-----\nYWJj\n-----END B-----\n",
            "-----BEGIN A-----\nYWJj\n",
            "-----END A-----\n",
            "-----BEGIN A-----\nYWJj-----END A-----\n",
            "",
        ];
        for broken in broken {
            assert_eq!(read(&format!("{broken}{good}")), [b"abc"], "{broken:?}");
            assert!(read(broken).is_empty(), "{broken:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(bytes in proptest::collection::vec(any::<u8>(), 1..200), count in 1..4_usize) {
            let all = vec![bytes; count];
            let text = certificates(all.iter().map(Vec::as_slice));
            prop_assert_eq!(read(&text), all);
            prop_assert!(text.lines().all(|line| line.len() <= 64));
        }

        #[test]
        fn no_text_breaks_the_reader(text in "(-----(BEGIN|END) [AB]?(-----)?|[a-z:=% ]*|\n|\r)*") {
            drop(blocks(&text));
        }
    }
}
