//! Variables from a file of a mounted volume (`fileKeyRef`).
//!
//! Mirrors upstream's pkg/kubelet/util/env at v1.36 (KEP-3721): lines of `NAME='value'`, a subset of what a
//! POSIX shell reads. The value stands in single quotes and may go over several lines; nothing in it is
//! special. Blank lines and lines of a comment are passed over, and so is a comment behind the value.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Container;
use thiserror::Error;

/// The greatest file that is read. Upstream reads any; its bound is the length of a line.
pub const MAX_BYTES: usize = 1 << 20;
/// Bytes of all files that one container's variables come from; those beyond are not read.
pub const MAX_FILES_BYTES: usize = 4 << 20;
/// The longest line that upstream's reader takes.
const MAX_LINE: usize = (64 << 10) - 1;

/// A volume's name and a path within it.
pub type EnvFilePath = (String, String);

/// The parsed files that a container's `env[].valueFrom.fileKeyRef` refers to, as far as their volumes are mounted:
/// the caller reads those that [`required_files`] names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvFiles {
    /// What was read, by volume and path.
    pub files: BTreeMap<EnvFilePath, EnvFile>,
}

/// One file as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvFile {
    /// For the message of a key that is not there.
    pub host_path: PathBuf,
    /// None where it is missing, cannot be read, is longer than [`MAX_BYTES`] or is not UTF-8.
    pub text: Option<String>,
}

/// The files that a container's definition names.
pub fn required_files(container: &Container) -> Vec<EnvFilePath> {
    let sources = container
        .env
        .iter()
        .flatten()
        .filter_map(|variable| variable.value_from.as_ref());
    let keys = sources.filter_map(|source| source.file_key_ref.as_ref());
    let mut places: Vec<EnvFilePath> = keys
        .map(|key| (key.volume_name.clone(), key.path.clone()))
        .collect();
    places.sort();
    places.dedup();
    places
}

/// Why a file is not such a file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EnvFileError {
    #[error("invalid environment variable format at line {line}: {problem}")]
    Line { line: usize, problem: &'static str },
    #[error("invalid environment variable format starting at line {line}: unclosed single quote")]
    Unclosed { line: usize },
    #[error("line {line} is longer than {MAX_LINE} bytes")]
    TooLong { line: usize },
}

/// The value of a key; empty where the key is not there. What stands behind the key's line is not judged.
pub fn value(text: &str, key: &str) -> Result<String, EnvFileError> {
    let mut lines = EnvFileLines::new(text);
    while let Some(line) = lines.next()? {
        let line = line.trim_start_matches(BLANK);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = assignment(line, lines.number)?;
        let value = match value {
            None => String::new(),
            Some(quoted) => lines.quoted(quoted)?,
        };
        if name == key {
            return Ok(value);
        }
    }
    Ok(String::new())
}

const BLANK: [char; 2] = [' ', '\t'];

/// The name, and what follows the opening quote; none where a blank stands behind the `=`, which a shell
/// takes for an empty value.
fn assignment(line: &str, number: usize) -> Result<(&str, Option<&str>), EnvFileError> {
    let wrong = |problem| EnvFileError::Line {
        line: number,
        problem,
    };
    let (name, value) = line.split_once('=').ok_or(wrong("missing '='"))?;
    let trimmed = name.trim_end_matches(BLANK);
    if trimmed.is_empty() {
        return Err(wrong("empty variable name"));
    }
    if trimmed != name {
        return Err(wrong("whitespace before '=' is not allowed"));
    }
    if value.starts_with(BLANK) {
        return Ok((name, None));
    }
    let quoted = value.strip_prefix('\'');
    quoted
        .map(|quoted| (name, Some(quoted)))
        .ok_or(wrong("value must be enclosed in single quotes"))
}

/// Lines as Go reads them: a carriage return before the end belongs to the end.
struct EnvFileLines<'a> {
    rest: Option<&'a str>,
    /// Of the line that was read last.
    number: usize,
}

impl<'a> EnvFileLines<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            rest: Some(text).filter(|text| !text.is_empty()),
            number: 0,
        }
    }

    fn next(&mut self) -> Result<Option<&'a str>, EnvFileError> {
        let Some(rest) = self.rest else {
            return Ok(None);
        };
        let (line, rest) = match rest.split_once('\n') {
            Some((line, rest)) => (line, Some(rest).filter(|rest| !rest.is_empty())),
            None => (rest, None),
        };
        (self.rest, self.number) = (rest, self.number + 1);
        if line.len() > MAX_LINE {
            return Err(EnvFileError::TooLong { line: self.number });
        }
        Ok(Some(line.strip_suffix('\r').unwrap_or(line)))
    }

    /// All up to the closing quote, given what stands behind the opening one.
    fn quoted(&mut self, first: &'a str) -> Result<String, EnvFileError> {
        let (start, mut part, mut value) = (self.number, first, String::new());
        loop {
            if let Some((end, behind)) = part.split_once('\'') {
                let behind = behind.trim_start_matches(BLANK);
                if !behind.is_empty() && !behind.starts_with('#') {
                    let problem = "unexpected content after closing quote";
                    return Err(EnvFileError::Line {
                        line: self.number,
                        problem,
                    });
                }
                return Ok(value + end);
            }
            value.push_str(part);
            value.push('\n');
            part = self.next()?.ok_or(EnvFileError::Unclosed { line: start })?;
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, FileKeySelector};
    use proptest::prelude::*;

    use super::*;
    use crate::pod::PodView;
    use crate::testing::*;

    /// Upstream's TestParseEnv: files that are read.
    #[test]
    fn a_value_stands_in_single_quotes_and_is_taken_as_it_is() {
        let cases = [
            (
                "   KEY1='val1'\n\t\tKEY2='val2'\nKEY3='val3'\n",
                "KEY2",
                "val2",
            ),
            (
                "# comment\n\nKEY1='foo'\n   # another comment\n\nKEY2='bar'\n",
                "KEY2",
                "bar",
            ),
            ("KEY1='foo'\nKEY2='bar'\n", "KEY3", ""),
            (
                "KEY1='foo#notcomment'\nKEY2='bar'\n",
                "KEY1",
                "foo#notcomment",
            ),
            ("KEY1='   foo bar   '\n", "KEY1", "   foo bar   "),
            ("KEY1='foo'\nKEY2=''\nKEY3='bar'\n", "KEY2", ""),
            ("KEY1='foo=bar=baz'\nKEY2='bar'\n", "KEY1", "foo=bar=baz"),
            ("KEY1='foo'\nKEY2='bar' # comment\n", "KEY2", "bar"),
            ("KEY1='$VAR'\nKEY2='bar'", "KEY1", "$VAR"),
            (
                "KEY1='foo$BAR-${HOME}_$'\nKEY2='bar'",
                "KEY1",
                "foo$BAR-${HOME}_$",
            ),
            ("KEY1= 'val1'\nKEY2='val2'", "KEY1", ""),
            ("KEY1= 'val1'\nKEY2='val2'", "KEY2", "val2"),
            (
                "KEY1='!@#$%^&*()_+-=[]{}|;:,.<>?/'",
                "KEY1",
                "!@#$%^&*()_+-=[]{}|;:,.<>?/",
            ),
            (
                "KEY1='line1\\nline2\\tline3'",
                "KEY1",
                "line1\\nline2\\tline3",
            ),
            ("KEY1='中文 Español 🌍'", "KEY1", "中文 Español 🌍"),
            (
                "KEY1='value with \"nested\" quotes'",
                "KEY1",
                "value with \"nested\" quotes",
            ),
            (
                "KEY1='one\n  two\n\n    three   '\nKEY2='bar'\n",
                "KEY1",
                "one\n  two\n\n    three   ",
            ),
            (
                "KEY1='one\n  two\n\n    three   '\nKEY2='bar'\n",
                "KEY2",
                "bar",
            ),
            ("KEY1='one\r\ntwo'\r\nKEY2='bar'\r\n", "KEY1", "one\ntwo"),
            ("KEY1='one'\nKEY1='two'\nnonsense", "KEY1", "one"),
            ("", "KEY1", ""),
        ];
        for (text, key, expected) in cases {
            assert_eq!(value(text, key).as_deref(), Ok(expected), "{text:?}");
        }
    }

    /// Upstream's TestParseEnv: files that are refused.
    #[test]
    fn a_bad_line_is_refused_with_its_number() {
        const BLANK: &str = "at line 1: whitespace before '=' is not allowed";
        const QUOTES: &str = "at line 2: value must be enclosed in single quotes";
        let cases = [
            ("KEY1 = 'val1'\nKEY2=   'val2'\n", "KEY2", BLANK),
            ("KEY1 ='foo'\nKEY2='bar'\n", "KEY1", BLANK),
            (
                "='foo'\nKEY2='bar'\n",
                "KEY2",
                "at line 1: empty variable name",
            ),
            (
                "KEY1='foo'\nINVALID_LINE\nKEY2='bar'\n",
                "KEY2",
                "at line 2: missing '='",
            ),
            ("KEY1='foo'\nKEY2=bar\nKEY3='baz'\n", "KEY2", QUOTES),
            ("KEY1='foo'\nKEY2=\"bar\"\nKEY3='baz'\n", "KEY2", QUOTES),
            ("KEY1='foo'\nKEY2=\n", "KEY2", QUOTES),
            (
                "KEY1='foo''bar'",
                "KEY1",
                "at line 1: unexpected content after closing quote",
            ),
            (
                "KEY1='foo'\nKEY2='bar\nKEY3='baz'\n",
                "KEY2",
                "at line 3: unexpected content after closing quote",
            ),
            (
                "KEY1='a \\'b\\' c'\n",
                "KEY1",
                "at line 1: unexpected content after closing quote",
            ),
            (
                "KEY1='foo'\nKEY2='bar\n",
                "KEY2",
                "starting at line 2: unclosed single quote",
            ),
        ];
        for (text, key, expected) in cases {
            let said = value(text, key).unwrap_err().to_string();
            assert_eq!(
                said,
                format!("invalid environment variable format {expected}"),
                "{text:?}"
            );
        }
        let long = format!("KEY='{}'", "x".repeat(MAX_LINE));
        assert_eq!(value(&long, "KEY"), Err(EnvFileError::TooLong { line: 1 }));
    }

    #[test]
    fn each_file_is_wanted_once() {
        let key = |volume: &str, path: &str| EnvVar {
            value_from: Some(EnvVarSource {
                file_key_ref: Some(FileKeySelector {
                    volume_name: volume.into(),
                    path: path.into(),
                    ..FileKeySelector::default()
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        };
        let pod = pod("p").app_with("c", |c| {
            c.env = Some(vec![
                key("v", "b"),
                key("v", "a"),
                EnvVar::default(),
                key("v", "b"),
            ]);
        });
        let places = required_files(&pod.app_containers()[0]);
        assert_eq!(places, [("v".into(), "a".into()), ("v".into(), "b".into())]);
    }

    proptest! {
        #[test]
        fn whatever_stands_in_quotes_comes_back(text in "[^'\r]{0,40}") {
            let file = format!("A='x'\nKEY='{text}'\n");
            prop_assert_eq!(value(&file, "KEY"), Ok(text));
        }

        #[test]
        fn no_file_breaks_the_reader(text in "(?s).{0,80}") {
            value(&text, "KEY").ok();
        }
    }
}
