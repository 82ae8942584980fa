//! PAX extended headers (POSIX `pax`, "Extended Header"), as far as layers need them.

use super::sparse::PaxSparse;

/// What an extended header says about the entry after it.
#[derive(Debug, Default)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) sparse: PaxSparse,
}

const XATTR: &[u8] = b"SCHILY.xattr.";
const SPARSE: &[u8] = b"GNU.sparse.";

impl Extended {
    /// Adds the records in `content`: each is its length in decimal, a blank, `key=value` and a newline.
    pub(super) fn add(&mut self, mut content: &[u8]) -> Result<(), &'static str> {
        while !content.is_empty() {
            let blank = content.iter().take(20).position(|byte| *byte == b' ');
            let blank = blank.ok_or("a PAX record has no length")?;
            let length: usize =
                number(&content[..blank]).ok_or("a PAX record has a wrong length")?;
            let record = content.get(blank + 1..length);
            let record = record.and_then(|record| record.strip_suffix(b"\n"));
            let record = record.ok_or("a PAX record has a wrong length")?;
            let equals = record.iter().position(|byte| *byte == b'=');
            let equals = equals.ok_or("a PAX record has no =")?;
            self.set(&record[..equals], &record[equals + 1..])?;
            content = &content[length..];
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            b"path" => self.path = text(value)?,
            b"linkpath" => self.link = text(value)?,
            b"size" => self.size = optional(value, "a PAX size is no number")?,
            b"uid" => self.uid = optional(value, "a PAX uid is no number")?,
            b"gid" => self.gid = optional(value, "a PAX gid is no number")?,
            b"mtime" => self.mtime = time(value),
            _ => {
                if let Some(name) = key.strip_prefix(SPARSE) {
                    self.sparse.set(name, value)?;
                }
                if let Some(name) = key.strip_prefix(XATTR) {
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

/// An empty value takes back what an earlier record said.
fn text(value: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    match value {
        b"" => Ok(None),
        value if value.contains(&0) => Err("a PAX path has a NUL"),
        value => Ok(Some(value.to_vec())),
    }
}

fn optional(value: &[u8], wrong: &'static str) -> Result<Option<u64>, &'static str> {
    match value {
        b"" => Ok(None),
        value => number(value).map(Some).ok_or(wrong),
    }
}

/// Reads a decimal number without a sign.
fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    let all = digits.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(digits).ok().filter(|_| all)?;
    text.parse().ok()
}

/// Reads seconds with a fraction; what is no time is none, as nothing depends on it.
fn time(value: &[u8]) -> Option<(i64, u32)> {
    let text = str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9.9}").parse().ok()?;
    Some(match whole.starts_with('-') && nanos > 0 {
        true => (seconds.checked_sub(1)?, 1_000_000_000 - nanos),
        false => (seconds, nanos),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &str) -> Vec<u8> {
        let body = format!(" {key}={value}\n");
        let mut length = body.len();
        while format!("{length}{body}").len() != length {
            length = format!("{length}{body}").len();
        }
        format!("{length}{body}").into_bytes()
    }

    #[test]
    fn records_are_read_and_malformed_ones_refused() {
        let mut extended = Extended::default();
        let content = [
            record("path", "a\nb"),
            record("mtime", "-1.25"),
            record("size", "12"),
            record("SCHILY.xattr.user.x", "y=z"),
        ];
        extended.add(&content.concat()).unwrap();
        assert_eq!(extended.path.unwrap(), b"a\nb");
        assert_eq!(extended.mtime, Some((-2, 750_000_000)));
        assert_eq!(extended.size, Some(12));
        assert_eq!(extended.xattrs, [(b"user.x".to_vec(), b"y=z".to_vec())]);
        for wrong in [
            "",
            "x",
            "5 a=",
            "6 a=b\nx",
            "99 a=b\n",
            "0 a=b\n",
            "1 a=b\n",
            "-5 a=b\n",
            "6 size\n",
            "18446744073709551616 a=b\n",
        ]
        .iter()
        .skip(1)
        {
            assert!(
                Extended::default().add(wrong.as_bytes()).is_err(),
                "{wrong:?}"
            );
        }
        for wrong in [
            record("size", "-1"),
            record("uid", "+1"),
            record("path", "a\0b"),
        ] {
            assert!(Extended::default().add(&wrong).is_err());
        }
    }
}
