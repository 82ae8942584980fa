//! The grammars of names: each rule returns what is wrong.
//!
//! Mirrors `apimachinery/pkg/util/validation` (v1.36).

type NameErrors = Vec<String>;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                     end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                         start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                         character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                           start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
                           used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const VARIABLE: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                          'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
                      validation is '[-A-Za-z0-9]+')";

fn too_long(value: &str, limit: usize) -> Option<String> {
    (value.len() > limit).then(|| format!("must be no more than {limit} bytes"))
}

fn unless(valid: bool, wrong: &str) -> Option<String> {
    (!valid).then(|| wrong.to_owned())
}

/// Inside characters throughout, and another set at both ends.
fn is_framed(value: &str, end: fn(u8) -> bool, inside: fn(u8) -> bool) -> bool {
    let ends = value.bytes().next().is_some_and(end) && value.bytes().next_back().is_some_and(end);
    ends && value.bytes().all(inside)
}

fn is_lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label(value: &str) -> bool {
    is_framed(value, is_lower, |b| is_lower(b) || b == b'-')
}

fn is_qualified(value: &str) -> bool {
    is_framed(
        value,
        |b| b.is_ascii_alphanumeric(),
        |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'),
    )
}

pub fn label(value: &str) -> NameErrors {
    too_long(value, 63)
        .into_iter()
        .chain(unless(is_label(value), LABEL))
        .collect()
}

pub fn subdomain(value: &str) -> NameErrors {
    too_long(value, 253)
        .into_iter()
        .chain(unless(value.split('.').all(is_label), SUBDOMAIN))
        .collect()
}

/// A search path of a resolver: a subdomain that may hold underscores, or the root.
pub fn search_path(value: &str) -> NameErrors {
    let name = value.strip_suffix('.').unwrap_or(value).replace('_', "a");
    if value == "." {
        Vec::new()
    } else {
        subdomain(&name)
    }
}

/// `name` or `prefix/name`: label keys, resource names, conditions.
pub fn qualified(value: &str) -> NameErrors {
    let (prefix, name) = value
        .split_once('/')
        .map_or((None, value), |(prefix, name)| (Some(prefix), name));
    if name.contains('/') {
        let wrong = format!(
            "a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        );
        return vec![wrong];
    }
    let mut wrong = Vec::new();
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => wrong.extend(
            subdomain(prefix)
                .into_iter()
                .map(|text| format!("prefix part {text}")),
        ),
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    wrong.extend(too_long(name, 63).map(|text| format!("name part {text}")));
    wrong.extend(unless(
        is_qualified(name),
        &format!("name part {QUALIFIED}"),
    ));
    wrong
}

/// As [`qualified`]; upper case in the prefix does not matter for annotations.
pub fn annotation(value: &str) -> NameErrors {
    qualified(&value.to_lowercase())
}

pub fn label_value(value: &str) -> NameErrors {
    let valid = value.is_empty() || is_qualified(value);
    too_long(value, 63)
        .into_iter()
        .chain(unless(valid, LABEL_VALUE))
        .collect()
}

/// Of an environment variable, as relaxed as upstream is since v1.34.
pub fn variable(value: &str) -> NameErrors {
    unless(
        value
            .bytes()
            .all(|b| (b' '..=b'~').contains(&b) && b != b'='),
        VARIABLE,
    )
    .into_iter()
    .collect()
}

pub fn header(value: &str) -> NameErrors {
    let valid = !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-');
    unless(valid, HEADER).into_iter().collect()
}

pub fn port(value: &str) -> NameErrors {
    let rules = [
        (value.len() > 15, "must be no more than 15 bytes"),
        (
            value.is_empty() || !value.bytes().all(|b| is_lower(b) || b == b'-'),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            !value.bytes().any(|b| b.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (value.contains("--"), "must not contain consecutive hyphens"),
        (
            value.starts_with('-') || value.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ];
    rules
        .into_iter()
        .filter(|(broken, _)| *broken)
        .map(|(_, wrong)| wrong.to_owned())
        .collect()
}

pub fn ip(value: &str) -> NameErrors {
    let valid = value.parse::<std::net::IpAddr>().is_ok() || is_padded_ip(value);
    unless(
        valid,
        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    )
    .into_iter()
    .collect()
}

/// Upstream goes on taking addresses with zeros before their numbers.
fn is_padded_ip(value: &str) -> bool {
    let is_byte = |part: &str| {
        let digits = part.trim_start_matches('0');
        let padded = !part.is_empty() && digits.is_empty();
        padded || part.bytes().all(|b| b.is_ascii_digit()) && digits.parse::<u8>().is_ok()
    };
    value.split('.').count() == 4 && value.split('.').all(is_byte)
}

/// A path that stays below the directory it is relative to.
pub fn descending(value: &str) -> NameErrors {
    unless(!value.starts_with('/'), "must be a relative path")
        .into_iter()
        .chain(no_backsteps(value))
        .collect()
}

pub fn no_backsteps(value: &str) -> NameErrors {
    unless(
        !value.split('/').any(|part| part == ".."),
        "must not contain '..'",
    )
    .into_iter()
    .collect()
}

/// As [`descending`], and not one of the names that the writer of such files keeps for itself.
pub fn non_reserved(value: &str) -> NameErrors {
    let reserved = value.starts_with("..") && !value.starts_with("../");
    let mut wrong = descending(value);
    wrong.extend(unless(!reserved, "must not start with '..'"));
    wrong
}

/// A key of a ConfigMap or a Secret: it becomes a file's name.
pub fn config_key(value: &str) -> NameErrors {
    let valid = !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    let mut wrong: NameErrors = too_long(value, 253).into_iter().collect();
    wrong.extend(unless(valid, CONFIG_KEY));
    match value {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        other => wrong.extend(unless(!other.starts_with(".."), "must not start with '..'")),
    }
    wrong
}

/// A subdomain that may be the beginning of one, so that a dash may end it.
pub fn subdomain_beginning(value: &str) -> NameErrors {
    match value.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut end = rest.char_indices();
            let cut = end.next_back().map_or(0, |(at, _)| at);
            subdomain(&format!("{}a", &rest[..cut]))
        }
        Some(_) | None => subdomain(value),
    }
}

/// Names between dots or slashes, as the kernel's settings have them.
pub fn sysctl(value: &str) -> NameErrors {
    let part = |part: &str| is_framed(part, is_lower, |b| is_lower(b) || matches!(b, b'-' | b'_'));
    let valid = value.len() <= 253 && value.split(['.', '/']).all(part);
    unless(
        valid,
        "must have at most 253 characters and match regex \
         ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
    )
    .into_iter()
    .collect()
}

/// A signer's name, `domain/path`. Returns the wrong parts, each with its error.
pub fn signer(value: &str) -> Vec<(String, String)> {
    let Some((domain, path)) = value
        .split_once('/')
        .filter(|(_, path)| !path.contains('/'))
    else {
        let wrong =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return vec![(value.to_owned(), wrong.to_owned())];
    };
    let mut wrong = first_wrong(domain, label);
    if !domain.contains('.') {
        let text = "should be a domain with at least two segments separated by dots";
        wrong.push((domain.to_owned(), text.to_owned()));
    }
    wrong.extend(first_wrong(path, subdomain));
    wrong
}

/// What is wrong with the first part that is wrong.
fn first_wrong(value: &str, rule: fn(&str) -> NameErrors) -> Vec<(String, String)> {
    let mut parts = value.split('.').map(|part| (part, rule(part)));
    let found = parts.find(|(_, wrong)| !wrong.is_empty());
    let texts = found.into_iter().flat_map(|(part, wrong)| {
        wrong
            .into_iter()
            .map(move |text| format!("validating label {part:?}: {text}"))
    });
    texts.map(|text| (value.to_owned(), text)).collect()
}

/// The name of an iSCSI node, in one of its three forms.
pub fn is_iscsi_node(value: &str) -> bool {
    let of_letters = |kind: &str, length: usize| {
        let rest = value.strip_prefix(kind).unwrap_or_default();
        rest.len() == length + 1 && rest.bytes().skip(1).all(|b| b.is_ascii_alphanumeric())
    };
    match value.get(..3) {
        Some("eui") => of_letters("eui", 16),
        Some("naa") => of_letters("naa", 32),
        Some(_) | None => is_iqn(value),
    }
}

/// `iqn.YYYY-MM.domain:anything`.
fn is_iqn(value: &str) -> bool {
    let Some((month, rest)) = value
        .strip_prefix("iqn.")
        .and_then(|rest| rest.split_once('.'))
    else {
        return false;
    };
    let digits =
        |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
    let is_month = month
        .split_once('-')
        .is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    let is_name = rest.split_once(':').is_some_and(|(domain, unique)| {
        let inside = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        let outside = |c: char| c.is_ascii_whitespace() || ",;*&$|".contains(c);
        !domain.is_empty()
            && domain.bytes().all(inside)
            && !unique.is_empty()
            && !unique.contains(outside)
    });
    is_month && is_name
}
