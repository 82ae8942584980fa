//! The forms of secrets in text.

use std::ops::Range;

use super::REMOVED;

/// Last words of the names of secrets, without their separators: `DB_PASSWORD`, `client-secret`, `apiKey`.
const SECRET_NAMES: [&str; 20] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "tokens",
    "credential",
    "credentials",
    "apikey",
    "accesskey",
    "accesskeyid",
    "secretkey",
    "privatekey",
    "encryptionkey",
    "signingkey",
    "authorization",
    "cookie",
    "auth",
    "lastappliedconfiguration",
];
/// Longer than any of them with its separators.
const MAX_NAME_BYTES: usize = 128;
/// Of a bootstrap token: an id, a point, the secret.
const BOOTSTRAP_TOKEN: (usize, usize) = (6, 16);
/// The base64 of `{"`, with which the parts of a JSON web token begin.
const JSON_IN_BASE64: &str = "eyJ";
const MIN_JSON_BYTES: usize = 20;

/// Whether the value of this name is a secret, by the name's end.
pub(super) fn is_secret_name(name: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let letters: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    SECRET_NAMES.iter().any(|last| letters.ends_with(last))
}

/// The text without what looks like a secret.
pub(super) fn without(text: &str) -> String {
    let text = without_private_keys(text);
    let mut clean = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let line = without_named_values(line);
        clean.push_str(&without_words(&line));
        clean.push_str(end);
    }
    clean
}

/// Takes each block of a private key out; one whose begin or end is not in the text, from or to the text's own.
fn without_private_keys(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    const DASHES: &str = "-----";
    /// The label, and what is behind it.
    fn labelled<'a>(text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
        text.strip_prefix(mark)?.split_once(DASHES)
    }
    let is_key = |label: &str| label.len() < 64 && label.contains("PRIVATE KEY");
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(DASHES) {
        let (before, mark) = rest.split_at(at);
        let begun = labelled(mark, BEGIN).filter(|(label, _)| is_key(label));
        let ended = labelled(mark, END).filter(|(label, _)| is_key(label));
        match (begun, ended) {
            (Some((_, behind)), _) => {
                clean.push_str(before);
                clean.push_str(REMOVED);
                rest = match behind.find(END) {
                    Some(end) => labelled(&behind[end..], END).map_or("", |(_, rest)| rest),
                    None => "",
                };
            }
            // Its begin was before this text.
            (None, Some((_, behind))) => {
                clean = REMOVED.to_owned();
                rest = behind;
            }
            (None, None) => {
                clean.push_str(before);
                clean.push_str(DASHES);
                rest = &mark[DASHES.len()..];
            }
        }
    }
    clean.push_str(rest);
    clean
}

/// Takes the values of `name=value`, `name: value` and `"name":"value"` out where the name is a secret's.
fn without_named_values(line: &str) -> String {
    let (mut clean, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find(['=', ':']) {
        let (before, after) = rest.split_at(at);
        let (sign, after) = after.split_at(1);
        clean.push_str(before);
        clean.push_str(sign);
        rest = after;
        let Some(name) = name_before(before).filter(|name| is_secret_name(name)) else {
            continue;
        };
        let value = value_of(name, after);
        if !value.is_empty() {
            clean.push_str(&after[..value.start]);
            clean.push_str(REMOVED);
            rest = &after[value.end..];
        }
    }
    clean.push_str(rest);
    clean
}

/// The name that ends a text, but for quotes and blanks behind it.
fn name_before(text: &str) -> Option<&str> {
    let text = text.trim_end_matches(['"', '\'', '\\', ' ', '\t']);
    let part = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let start = text
        .char_indices()
        .rev()
        .take(MAX_NAME_BYTES)
        .take_while(|(_, letter)| part(*letter))
        .last();
    start.map(|(at, _)| &text[at..])
}

/// Where a value is: what its quotes hold, or a word. Of a header all of the line counts, and of the last applied
/// configuration, which is JSON.
fn value_of(name: &str, text: &str) -> Range<usize> {
    const HEADERS: [&str; 2] = ["authorization", "cookie"];
    let start = text.len() - text.trim_start().len();
    let value = &text[start..];
    let name = name.to_ascii_lowercase();
    if name.ends_with("configuration") {
        return start..text.len();
    }
    let quote = ["\\\"", "\\'", "\"", "'"]
        .into_iter()
        .find(|quote| value.starts_with(quote));
    if let Some(quote) = quote {
        let start = start + quote.len();
        return start..start + quoted(&text[start..], quote);
    }
    if value.starts_with(['[', '{']) {
        let end = value.find([']', '}']).map_or(value.len(), |end| end + 1);
        return start..start + end;
    }
    let ends: &[char] = match HEADERS.iter().any(|header| name.ends_with(header)) {
        true => &['"', '\'', '\\', ']', '}'],
        false => &[' ', '\t', ',', ';', '&', '"', '\'', '\\', ')', ']', '}'],
    };
    start..start + value.find(ends).unwrap_or(value.len())
}

/// The length of what is before the closing quote, which is no escaped one.
fn quoted(text: &str, quote: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find(quote) {
        let at = from + at;
        let escaped = quote.len() == 1 && text[..at].ends_with('\\');
        if !escaped {
            return at;
        }
        from = at + quote.len();
    }
    text.len()
}

/// Takes words out that are secrets by themselves, or follow `Bearer` and `Basic`; and of URLs users and queries.
fn without_words(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut follows_scheme = false;
    for word in line.split_inclusive(|letter: char| {
        letter.is_whitespace() || "\"'`,;()[]{}<>|\\".contains(letter)
    }) {
        let last = word.chars().next_back().filter(|last| !is_part(*last));
        let (bare, end) = word.split_at(word.len() - last.map_or(0, char::len_utf8));
        match follows_scheme && !bare.is_empty() {
            true => clean.push_str(REMOVED),
            false => clean.push_str(&without_secret_parts(bare)),
        }
        clean.push_str(end);
        let scheme = ["bearer", "basic"].iter().any(|scheme| {
            bare.rsplit([':', '='])
                .next()
                .is_some_and(|last| last.eq_ignore_ascii_case(scheme))
        });
        follows_scheme = scheme || (follows_scheme && bare.is_empty());
    }
    clean
}

fn is_part(letter: char) -> bool {
    !letter.is_whitespace() && !"\"'`,;()[]{}<>|\\".contains(letter)
}

fn without_secret_parts(word: &str) -> String {
    if let Some((scheme, rest)) = word.split_once("://") {
        return format!("{scheme}://{}", without_user_and_query(rest));
    }
    // A token may stand behind a name or a slash.
    let parts = word.split_inclusive(['=', ':', '/', '&', '@']);
    let clean = parts.map(|part| {
        let end = part
            .chars()
            .next_back()
            .filter(|last| "=:/&@".contains(*last));
        let (bare, end) = part.split_at(part.len() - end.map_or(0, char::len_utf8));
        match is_token(bare) {
            true => format!("{REMOVED}{end}"),
            false => part.to_owned(),
        }
    });
    clean.collect()
}

fn without_user_and_query(rest: &str) -> String {
    let (place, query) = match rest.split_once('?') {
        Some((place, _)) => (place, format!("?{REMOVED}")),
        None => (rest, String::new()),
    };
    let (host, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let host = match host.rsplit_once('@') {
        Some((_, host)) => format!("{REMOVED}@{host}"),
        None => host.to_owned(),
    };
    format!("{host}{path}{query}")
}

/// A JSON web token or other JSON in base64, or a bootstrap token.
fn is_token(word: &str) -> bool {
    if word.starts_with(JSON_IN_BASE64) && word.len() >= MIN_JSON_BYTES {
        return true;
    }
    let (id, secret) = BOOTSTRAP_TOKEN;
    let small = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    word.split_once('.').is_some_and(|(left, right)| {
        left.len() == id && right.len() == secret && small(left) && small(right)
    })
}
