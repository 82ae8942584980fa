//! Whether an image name means the tag `latest`, by the grammar of image references.
//!
//! The default pull policy hangs on it: a name that is no reference at all has no tag, so it is not `latest`.

/// The tag is `latest`, by name or because there is neither tag nor digest.
pub(super) fn is_latest(image: &str) -> bool {
    tag(image).is_some_and(|tag| tag == "latest")
}

/// The tag that a reference names; none for what is no reference, empty for a digest alone.
fn tag(image: &str) -> Option<&str> {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, None), |(name, digest)| (name, Some(digest)));
    let (name, tag) = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    };
    let valid = is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
    valid.then(|| tag.unwrap_or(if digest.is_some() { "" } else { "latest" }))
}

fn is_name(name: &str) -> bool {
    let is_identifier =
        name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let (domain, path) = match name.split_once('/') {
        Some((first, rest)) if is_domain_like(first) => (Some(first), rest),
        _ => (None, name),
    };
    !is_identifier
        && name.len() <= 255
        && domain.is_none_or(is_domain)
        && path.split('/').all(is_component)
}

fn is_domain_like(first: &str) -> bool {
    first == "localhost"
        || first.contains(['.', ':'])
        || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_domain(domain: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if let Some((address, port)) = domain
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        let is_address = address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = domain
        .split_once(':')
        .map_or((domain, None), |(host, port)| (host, Some(port)));
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Lower-case words, held together by one dot, one or two underscores, or any number of hyphens.
fn is_component(component: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends_well = component.bytes().next().is_some_and(is_word)
        && component.bytes().next_back().is_some_and(is_word);
    let separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends_well
        && separators
            .into_iter()
            .all(|s| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let digits = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == digits && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_latest_is_found_as_upstream_finds_it() {
        let digest = format!("busybox@sha256:{}", "a".repeat(64));
        let both = format!("busybox:latest@sha256:{}", "a".repeat(64));
        let rows = [
            ("busybox", true),
            ("busybox:latest", true),
            ("busybox:1", false),
            ("localhost:5000/a/b", true),
            ("localhost:5000/a/b:v1", false),
            ("example.org/a__b/c--d:latest", true),
            ("example.org/a___b", false),
            ("Example/a", true),
            ("example.org/A", false),
            ("[::1]:80/a", true),
            ("", false),
            ("a:", false),
            ("a b", false),
            (&digest, false),
            (&both, true),
            ("a@sha256:1", false),
        ];
        for (image, latest) in rows {
            assert_eq!(is_latest(image), latest, "{image:?}");
        }
    }
}
