//! The grammars of names: each rule answers with what is wrong.
//!
//! Mirrors `apimachinery/pkg/util/validation` (v1.36).

type Wrong = Vec<String>;

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

pub(super) fn label(value: &str) -> Wrong {
    too_long(value, 63)
        .into_iter()
        .chain(unless(is_label(value), LABEL))
        .collect()
}

pub(super) fn subdomain(value: &str) -> Wrong {
    too_long(value, 253)
        .into_iter()
        .chain(unless(value.split('.').all(is_label), SUBDOMAIN))
        .collect()
}

/// A search path of a resolver: a subdomain that may hold underscores, or the root.
pub(super) fn search_path(value: &str) -> Wrong {
    let name = value.strip_suffix('.').unwrap_or(value).replace('_', "a");
    if value == "." {
        Vec::new()
    } else {
        subdomain(&name)
    }
}

/// `name` or `prefix/name`: label keys, resource names, conditions.
pub(super) fn qualified(value: &str) -> Wrong {
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
pub(super) fn annotation(value: &str) -> Wrong {
    qualified(&value.to_lowercase())
}

pub(super) fn label_value(value: &str) -> Wrong {
    let valid = value.is_empty() || is_qualified(value);
    too_long(value, 63)
        .into_iter()
        .chain(unless(valid, LABEL_VALUE))
        .collect()
}

/// Of an environment variable, as relaxed as upstream is since v1.34.
pub(super) fn variable(value: &str) -> Wrong {
    unless(
        value
            .bytes()
            .all(|b| (b' '..=b'~').contains(&b) && b != b'='),
        VARIABLE,
    )
    .into_iter()
    .collect()
}

pub(super) fn header(value: &str) -> Wrong {
    let valid = !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-');
    unless(valid, HEADER).into_iter().collect()
}

pub(super) fn port(value: &str) -> Wrong {
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

pub(super) fn ip(value: &str) -> Wrong {
    let valid = value.parse::<std::net::IpAddr>().is_ok();
    unless(
        valid,
        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    )
    .into_iter()
    .collect()
}

/// A path that stays below the folder it is relative to.
pub(super) fn descending(value: &str) -> Wrong {
    unless(!value.starts_with('/'), "must be a relative path")
        .into_iter()
        .chain(no_backsteps(value))
        .collect()
}

pub(super) fn no_backsteps(value: &str) -> Wrong {
    unless(
        !value.split('/').any(|part| part == ".."),
        "must not contain '..'",
    )
    .into_iter()
    .collect()
}
