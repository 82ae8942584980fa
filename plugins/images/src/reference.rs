//! Names of images, normalised as containerd's CRI plugin does (`distribution/reference`, `ParseDockerRef`).

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;

/// The registry of names without one, the prefix of its official images, and the host that really serves it.
const DEFAULT_REGISTRY: &str = "docker.io";
const LEGACY_REGISTRY: &str = "index.docker.io";
const OFFICIAL: &str = "library/";
const DEFAULT_REGISTRY_HOST: &str = "registry-1.docker.io";
const NAME_BYTES_MAX: usize = 255;

/// `registry/repository`, and a tag or a digest: where both are given, the digest alone counts, as in CRI.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    registry: String,
    repository: String,
    target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Target {
    Tag(String),
    Digest(Digest),
}

/// A text that names no image.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no image reference: {reason}")]
pub struct InvalidReference {
    text: String,
    reason: &'static str,
}

impl Reference {
    /// Returns the registry as it is written in names: a host with or without a port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the host that serves the registry where no `hosts.toml` says otherwise.
    pub fn registry_host(&self) -> &str {
        match self.registry.as_str() {
            DEFAULT_REGISTRY => DEFAULT_REGISTRY_HOST,
            other => other,
        }
    }

    /// Returns the path of the repository within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the tag, if the reference has no digest.
    pub fn tag(&self) -> Option<&str> {
        match &self.target {
            Target::Tag(tag) => Some(tag),
            Target::Digest(_) => None,
        }
    }

    /// Returns the digest of the manifest or index, if there is one.
    pub fn digest(&self) -> Option<&Digest> {
        match &self.target {
            Target::Tag(_) => None,
            Target::Digest(digest) => Some(digest),
        }
    }

    /// Returns the same repository with a digest.
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self {
            target: Target::Digest(digest),
            ..self.clone()
        }
    }

    /// Returns the tag or the digest, as it stands in a registry's URL.
    pub(crate) fn target(&self) -> String {
        match &self.target {
            Target::Tag(tag) => tag.clone(),
            Target::Digest(digest) => digest.to_string(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match &self.target {
            Target::Tag(tag) => write!(f, ":{tag}"),
            Target::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        parse(text).map_err(|reason| InvalidReference {
            text: text.chars().take(NAME_BYTES_MAX).collect(),
            reason,
        })
    }
}

fn parse(text: &str) -> Result<Reference, &'static str> {
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => (
            name,
            Some(
                digest
                    .parse()
                    .map_err(|_| "what follows @ is no sha256 digest")?,
            ),
        ),
        None => (text, None),
    };
    // A colon after the last slash begins a tag; one before it, a port.
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    let tag = tag.unwrap_or("latest");
    if !is_tag(tag) {
        return Err("the tag has other than 128 letters, digits, _, - and .");
    }
    let (registry, repository) = split_registry(path);
    if registry.len() + repository.len() > NAME_BYTES_MAX {
        return Err("the name is longer than 255 bytes");
    }
    if !is_registry(&registry) {
        return Err("the registry is no host with an optional port");
    }
    if !repository.split('/').all(is_component) {
        return Err(
            "the repository has other than lowercase letters, digits and single separators",
        );
    }
    Ok(Reference {
        registry,
        repository,
        target: digest.map_or_else(|| Target::Tag(tag.to_owned()), Target::Digest),
    })
}

fn split_registry(path: &str) -> (String, String) {
    let (registry, repository) = match path.split_once('/') {
        Some((first, rest)) if looks_like_host(first) => (first, rest),
        _ => (DEFAULT_REGISTRY, path),
    };
    let registry = match registry {
        LEGACY_REGISTRY => DEFAULT_REGISTRY,
        other => other,
    };
    match registry == DEFAULT_REGISTRY && !repository.contains('/') {
        true => (registry.to_owned(), format!("{OFFICIAL}{repository}")),
        false => (registry.to_owned(), repository.to_owned()),
    }
}

fn looks_like_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase)
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || b".-".contains(&byte))
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((address, rest)) => match (address.parse::<std::net::Ipv6Addr>(), rest) {
            (Ok(_), "") => return true,
            (Ok(_), rest) => ("v6", rest.strip_prefix(':')),
            (Err(_), _) => return false,
        },
        None => match registry.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (registry, Some("0")),
        },
    };
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.split('.').all(label)
        && port.is_some_and(|port| port.parse::<u16>().is_ok() && !port.starts_with('+'))
}

/// Tells whether it is words of lowercase letters and digits, joined by one `.`, one or two `_`, or any number of `-`.
fn is_component(component: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let edges = component.bytes().next().is_some_and(word)
        && component.bytes().next_back().is_some_and(word);
    edges
        && component
            .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn names_are_normalised_as_cri_does() {
        for (text, expected) in [
            ("busybox", "docker.io/library/busybox:latest".to_owned()),
            ("busybox:1.36", "docker.io/library/busybox:1.36".to_owned()),
            ("a/b", "docker.io/a/b:latest".to_owned()),
            ("index.docker.io/x", "docker.io/library/x:latest".to_owned()),
            ("localhost/x", "localhost/x:latest".to_owned()),
            ("127.0.0.1:5000/x/y:v1", "127.0.0.1:5000/x/y:v1".to_owned()),
            ("[::1]:5000/x:v1", "[::1]:5000/x:v1".to_owned()),
            (
                &format!("r.test/x:v1@{DIGEST}"),
                format!("r.test/x@{DIGEST}"),
            ),
            (
                &format!("x@{DIGEST}"),
                format!("docker.io/library/x@{DIGEST}"),
            ),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.to_string(), expected);
            assert_eq!(expected.parse::<Reference>().unwrap(), reference);
        }
    }

    #[test]
    fn what_could_leave_a_path_or_a_url_is_no_reference() {
        for text in [
            "",
            "/",
            "..",
            "r.test/../x",
            "r.test//x",
            "r.test/x:",
            "r.test/x:../y",
            "r.test/X",
            "r.test/x?y",
            "r.test/x#y",
            "r.test/x y",
            "r.test/x@sha256:1",
            "r.test:99999/x",
            "-r.test/x",
            "user@r.test/x",
            "r.test/x\n",
            "r.test/a..b",
            "r.test/a___b",
            "[::1/x",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text}");
        }
    }
}
