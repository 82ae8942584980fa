//! What a registry says with an error: the errors document of the distribution-spec ("Error Codes"), what token services
//! send instead, or the beginning of a text.

use std::fmt;

use serde::Deserialize;

/// Bytes of an answer that are looked at for words; what is longer is no errors document.
pub(super) const MAX_ERROR_BYTES: usize = 64 << 10;
/// Characters that are kept.
const MAX_CHARACTERS: usize = 512;
/// Errors of one document that are kept.
const MAX_ERRORS: usize = 4;

/// A registry's own words, without control characters and of a bounded length; empty where it said nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(String);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.0),
        }
    }
}

#[derive(Deserialize)]
struct ErrorsDocument {
    errors: Option<Vec<ErrorEntry>>,
    /// OAuth's, of token services.
    error: Option<serde_json::Value>,
    error_description: Option<String>,
    message: Option<String>,
    details: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct ErrorEntry {
    #[serde(default)]
    code: serde_json::Value,
    message: Option<String>,
}

impl Words {
    /// Reads the body of an error of this content type.
    pub(super) fn read(content_type: &str, body: &[u8]) -> Self {
        if let Ok(document) = serde_json::from_slice::<ErrorsDocument>(body) {
            return Self::clean(&document.text());
        }
        // A page is for a browser.
        match content_type.to_ascii_lowercase().starts_with("text/plain") {
            true => Self::clean(&String::from_utf8_lossy(body)),
            false => Self::default(),
        }
    }

    /// Keeps what can be shown in one line.
    fn clean(text: &str) -> Self {
        let mut kept = String::new();
        // Characters that turn the direction of a line, or take no room, hide what is written.
        let shown = |letter: &char| !letter.is_control() && !is_format(*letter);
        for word in text.split(|letter: char| letter.is_whitespace()) {
            let word: String = word.chars().filter(shown).collect();
            if !word.is_empty() {
                if !kept.is_empty() {
                    kept.push(' ');
                }
                kept.push_str(&word);
            }
            if kept.len() > 4 * MAX_CHARACTERS {
                break;
            }
        }
        Self(kept.chars().take(MAX_CHARACTERS).collect())
    }
}

impl ErrorsDocument {
    fn text(&self) -> String {
        if let Some(errors) = self.errors.as_deref().filter(|errors| !errors.is_empty()) {
            let texts: Vec<_> = errors
                .iter()
                .take(MAX_ERRORS)
                .map(ErrorEntry::text)
                .collect();
            return texts.join("; ");
        }
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        [
            self.error.as_ref().and_then(text),
            self.error_description.clone(),
            self.message.clone(),
            self.details.as_ref().and_then(text),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(": ")
    }
}

impl ErrorEntry {
    fn text(&self) -> String {
        let code = self.code.as_str().map(str::to_owned);
        code.into_iter()
            .chain(self.message.clone())
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(": ")
    }
}

/// Unicode's format characters of the general punctuation, and the mark of a byte order.
fn is_format(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_one_bounded_line_of_what_the_registry_says() {
        let json = "application/json";
        for (kind, body, words) in [
            (
                json,
                r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow\n down"}]}"#,
                ": TOOMANYREQUESTS: slow down",
            ),
            (
                json,
                r#"{"errors":[{"code":"A"},{"message":"b"},{"code":5}]}"#,
                ": A; b; ",
            ),
            (
                json,
                r#"{"details":"incorrect username or password"}"#,
                ": incorrect username or password",
            ),
            (
                json,
                r#"{"error":"invalid_grant","error_description":"no"}"#,
                ": invalid_grant: no",
            ),
            (json, r#"{"message":"\u001b[31mred\u202e"}"#, ": [31mred"),
            (json, r#"{"errors":null}"#, ""),
            (json, "{", ""),
            ("text/html", "<h1>no</h1>", ""),
            (
                "text/plain; charset=utf-8",
                "quota\r\nexceeded",
                ": quota exceeded",
            ),
        ] {
            let read = Words::read(kind, body.as_bytes()).to_string();
            assert_eq!(read.trim_end(), words.trim_end(), "{body}");
        }
        let long = Words::read("text/plain", "x y ".repeat(10_000).as_bytes());
        assert_eq!(long.0.chars().count(), MAX_CHARACTERS);
    }
}
