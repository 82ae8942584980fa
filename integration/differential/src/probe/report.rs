//! What has been found: texts by their paths, written as JSON.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;

/// The report in the making.
#[derive(Debug, Default)]
pub(super) struct Report(BTreeMap<String, String>);

impl Report {
    pub(super) fn put(&mut self, key: impl Display, value: impl Display) {
        self.0.insert(key.to_string(), value.to_string());
    }

    /// Returns one object in one line.
    pub(super) fn json(&self) -> String {
        let mut text = String::from("{");
        for (key, value) in &self.0 {
            if text.len() > 1 {
                text.push(',');
            }
            string(&mut text, key);
            text.push(':');
            string(&mut text, value);
        }
        text.push('}');
        text
    }
}

fn string(text: &mut String, value: &str) {
    text.push('"');
    for letter in value.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            letter if letter.is_control() || !letter.is_ascii() => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
            letter => text.push(letter),
        }
    }
    text.push('"');
}

/// Returns bytes as text; those that are not printable ASCII as `\xNN`.
pub(super) fn escaped(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Returns the kernel's name of an error, as far as containers meet it.
pub(super) fn errno(error: &io::Error) -> String {
    let name = match error.raw_os_error() {
        Some(1) => "EPERM",
        Some(2) => "ENOENT",
        Some(5) => "EIO",
        Some(6) => "ENXIO",
        Some(13) => "EACCES",
        Some(16) => "EBUSY",
        Some(17) => "EEXIST",
        Some(20) => "ENOTDIR",
        Some(21) => "EISDIR",
        Some(22) => "EINVAL",
        Some(30) => "EROFS",
        Some(38) => "ENOSYS",
        Some(40) => "ELOOP",
        Some(number) => return format!("errno {number}"),
        None => return error.to_string(),
    };
    name.to_owned()
}

/// Returns `yes`, or the error.
pub(super) fn outcome<T>(result: &io::Result<T>) -> String {
    match result {
        Ok(_) => "yes".to_owned(),
        Err(error) => errno(error),
    }
}
