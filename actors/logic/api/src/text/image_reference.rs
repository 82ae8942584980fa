//! Names of images: registry, path, tag, digest. Mirrors distribution's reference grammar as util/parsers uses it
//! (1.36).

use thiserror::Error;

/// The registry of an image that names none.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Why an image name is refused; the waiting reason is [`INVALID_IMAGE_NAME`].
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ImageNameError {
    #[error("couldn't parse image name {image:?}: it is empty")]
    Empty { image: String },
    #[error("couldn't parse image name {image:?}: {part} {text:?} is not valid")]
    Part {
        image: String,
        part: &'static str,
        text: String,
    },
    #[error("couldn't parse image name {image:?}: repository name must be lowercase")]
    Uppercase { image: String },
    #[error(
        "couldn't parse image name {image:?}: a repository name cannot be a 64-byte hexadecimal string"
    )]
    Identifier { image: String },
    #[error(
        "couldn't parse image name {image:?}: repository name must not be more than 255 characters"
    )]
    TooLong { image: String },
}

/// An image name in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    /// Registry and path, without tag and digest.
    pub name: String,
    /// `latest` where neither tag nor digest is given.
    pub tag: Option<String>,
    /// As `sha256:...`; none for a reference by tag.
    pub digest: Option<String>,
}

impl ImageReference {
    pub fn parse(image: &str) -> Result<Self, ImageNameError> {
        let wrong = |part, text: &str| ImageNameError::Part {
            image: image.to_owned(),
            part,
            text: text.to_owned(),
        };
        if image.is_empty() {
            return Err(ImageNameError::Empty {
                image: image.to_owned(),
            });
        }
        let (rest, digest) = match image.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (image, None),
        };
        if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
            return Err(wrong("digest", digest));
        }
        let path_start = rest.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match rest[path_start..].rfind(':') {
            Some(at) => (&rest[..path_start + at], Some(&rest[path_start + at + 1..])),
            None => (rest, None),
        };
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(wrong("tag", tag));
        }
        check_name(image, name)?;
        let tag = match (tag, digest) {
            (None, None) => Some("latest"),
            (tag, _) => tag,
        };
        Ok(Self {
            name: name.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }
}

/// The name as it is handed to the runtime: `:latest` is added where there is neither tag nor digest.
pub fn with_default_tag(image: &str) -> Result<String, ImageNameError> {
    // Such a text is an image's id, and not a name.
    if image.len() == 64 && image.bytes().all(is_lowercase_hex) {
        return Err(ImageNameError::Identifier {
            image: image.to_owned(),
        });
    }
    let reference = ImageReference::parse(image)?;
    let implied = reference.digest.is_none()
        && !image.ends_with(&format!(
            ":{}",
            reference.tag.as_deref().unwrap_or_default()
        ));
    Ok(if implied {
        format!("{image}:latest")
    } else {
        image.to_owned()
    })
}

/// An image's name as it was written, without tag and digest: the key of a record of pulls, and what an allowlist of
/// images names. Upstream's `trimImageTagDigest`.
pub fn without_tag(image: &str) -> Result<String, ImageNameError> {
    ImageReference::parse(image).map(|reference| reference.name)
}

/// An image's repository in full, as registries and credentials know it: without tag and digest, with its
/// registry (`docker.io/library/busybox`).
pub fn repository(image: &str) -> Result<String, ImageNameError> {
    let name = ImageReference::parse(image)?.name;
    let (domain, path) = match name.split_once('/') {
        Some((first, rest)) if looks_like_domain(first) => (first, rest),
        _ => (DEFAULT_REGISTRY, name.as_str()),
    };
    let domain = match domain {
        "index.docker.io" => DEFAULT_REGISTRY,
        other => other,
    };
    let official = domain == DEFAULT_REGISTRY && !path.contains('/');
    let library = if official { "library/" } else { "" };
    Ok(format!("{domain}/{library}{path}"))
}

fn check_name(image: &str, name: &str) -> Result<(), ImageNameError> {
    let wrong = |part, text: &str| ImageNameError::Part {
        image: image.to_owned(),
        part,
        text: text.to_owned(),
    };
    let (domain, path) = match name.split_once('/') {
        Some((first, rest)) if looks_like_domain(first) => (Some(first), rest),
        _ => (None, name),
    };
    if let Some(domain) = domain.filter(|domain| !is_domain(domain)) {
        return Err(wrong("registry", domain));
    }
    if path.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(ImageNameError::Uppercase {
            image: image.to_owned(),
        });
    }
    if let Some(part) = path.split('/').find(|part| !is_path_part(part)) {
        return Err(wrong("repository name", part));
    }
    if path.len() > 255 {
        return Err(ImageNameError::TooLong {
            image: image.to_owned(),
        });
    }
    Ok(())
}

fn looks_like_domain(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost" || text.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port_fits =
        port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host_fits = match bracketed {
        Some(address) => {
            !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':')
        }
        None => host.split('.').all(|label| {
            let inner = label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-');
            !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
        }),
    };
    port_fits && host_fits
}

/// Lowercase letters and digits, joined by `.`, `_`, `__` or any number of `-`.
fn is_path_part(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends_fit = text.bytes().next().is_some_and(word) && text.bytes().last().is_some_and(word);
    let mut separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends_fit
        && separators.all(|s| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(is_lowercase_hex)
}

fn is_lowercase_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}
