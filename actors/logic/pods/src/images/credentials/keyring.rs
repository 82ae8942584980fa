//! Credentials by registry, and the order in which those for an image are tried.
//!
//! Mirrors upstream's BasicDockerKeyring (keyring.go, v1.36): longer names of registries first, so that
//! `example.com/team` is tried before `example.com`.

use std::collections::BTreeMap;

use super::docker::DockerConfig;
use super::matching::{ImageLocation, matches};
use super::{Credential, CredentialSource};

/// The registry of credentials that name none.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Credentials, by the place that each is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring(BTreeMap<String, Vec<Credential>>);

impl Keyring {
    /// Adds the credentials of one file, secret or provider. An invalid registry name is ignored, as upstream does.
    pub fn add(&mut self, source: &CredentialSource, config: &DockerConfig) {
        for (place, auth) in config {
            let Some(key) = key(place) else { continue };
            self.0.entry(key).or_default().push(Credential {
                auth: auth.clone(),
                source: source.clone(),
            });
        }
    }

    /// The credentials for an image's repository (without tag), in the order to try them in.
    pub fn lookup(&self, repository: &str) -> Vec<Credential> {
        let found: Vec<Credential> = self
            .0
            .iter()
            .rev()
            .filter(|(place, _)| matches(place, repository))
            .flat_map(|(_, credentials)| credentials.iter().cloned())
            .collect();
        if found.is_empty() && is_of_default_registry(repository) {
            return self.0.get(DEFAULT_REGISTRY).cloned().unwrap_or_default();
        }
        found
    }
}

/// A registry without scheme; `/v1/` and `/v2/` are a registry's own paths and are ignored.
fn key(place: &str) -> Option<String> {
    let bare = place
        .strip_prefix("https://")
        .or_else(|| place.strip_prefix("http://"))
        .unwrap_or(place);
    let location = ImageLocation::parse(bare).ok()?;
    let path = match location.path.get(..4) {
        Some("/v1/" | "/v2/") => &location.path[3..],
        _ => location.path.as_str(),
    };
    let path = if path == "/" { "" } else { path };
    Some(format!("{}{path}", location.authority))
}

fn is_of_default_registry(image: &str) -> bool {
    match image.split_once('/') {
        None => !image.is_empty(),
        Some(("docker.io" | "index.docker.io", _)) => true,
        Some((first, _)) => !first.is_empty() && !first.contains(['.', ':']),
    }
}

#[cfg(test)]
mod tests {
    use super::super::AuthConfig;
    use super::*;

    fn auth(username: &str) -> AuthConfig {
        AuthConfig {
            username: username.to_owned(),
            password: "bar".to_owned(),
            email: "foo@example.com".to_owned(),
        }
    }

    fn keyring(places: &[&str]) -> Keyring {
        let mut keyring = Keyring::default();
        let config = places
            .iter()
            .map(|place| ((*place).to_owned(), auth(place)))
            .collect();
        keyring.add(&CredentialSource::Node, &config);
        keyring
    }

    fn names(found: &[Credential]) -> Vec<&str> {
        let names = found.iter().map(|found| found.auth.username.as_str());
        names.collect()
    }

    /// Upstream's TestDockerKeyringForGlob.
    #[test]
    fn a_credential_is_found_by_the_place_it_is_for() {
        let cases = [
            ("https://hello.kubernetes.io", "hello.kubernetes.io"),
            ("https://*.sample.io", "prefix.sample.io"),
            ("https://prefix.*.io", "prefix.sample.io"),
            ("https://prefix.sample.*", "prefix.sample.io"),
            ("https://*.sample.io/path", "prefix.sample.io/path"),
            ("https://prefix.*.io/path", "prefix.sample.io/path/subpath"),
            ("https://prefix.sample.*/path", "prefix.sample.io/path"),
            ("https://*.sample.io:8888", "prefix.sample.io:8888"),
            ("https://prefix.*.io:8888", "prefix.sample.io:8888"),
            ("https://prefix.sample.*:8888", "prefix.sample.io:8888"),
            (
                "https://*.sample.io/path:1111",
                "prefix.sample.io/path:1111",
            ),
            ("https://*.sample.io/v1/", "prefix.sample.io/path:1111"),
            ("https://*.sample.io/v2/", "prefix.sample.io/path:1111"),
            (
                "https://prefix.sample.*/path:1111",
                "prefix.sample.io/path:1111",
            ),
            ("prefix.sample.io:1111", "prefix.sample.io:1111/path"),
            ("*.sample.io:1111", "prefix.sample.io:1111/path"),
        ];
        for (place, target) in cases {
            let found = keyring(&[place]).lookup(&format!("{target}/foo/bar"));
            assert_eq!(names(&found), [place], "{target}");
        }
    }

    /// Upstream's TestKeyringMiss and TestKeyringMissWithDockerHubCredentials.
    #[test]
    fn a_credential_for_another_place_is_not_found() {
        let cases = [
            ("https://hello.kubernetes.io", "world.mesos.org/foo/bar"),
            ("https://*.sample.com", "prefix.sample.io/foo/bar"),
            ("https://suffix.*.io", "prefix.sample.io/foo/bar"),
            ("https://prefix.sample.c*", "prefix.sample.io/foo/bar"),
            (
                "https://prefix.*.io/path:1111",
                "prefix.sample.io/path/subpath:1111/foo/bar",
            ),
            ("suffix.*.io", "prefix.sample.io/foo/bar"),
            ("https://index.docker.io/v1/", "world.mesos.org/foo/bar"),
        ];
        for (place, target) in cases {
            assert!(keyring(&[place]).lookup(target).is_empty(), "{place}");
        }
    }

    /// Upstream's TestKeyringHitWithUnqualifiedDockerHub, …UnqualifiedLibraryDockerHub and …QualifiedDockerHub.
    #[test]
    fn the_default_registrys_credential_is_for_images_without_registry() {
        let keyring = keyring(&["https://index.docker.io/v1/"]);
        for image in [
            "google/docker-registry",
            "jenkins",
            "docker.io/library/jenkins",
            "index.docker.io/v1//google/docker-registry",
        ] {
            assert_eq!(keyring.lookup(image).len(), 1, "{image}");
        }
    }

    /// Upstream's TestIsDefaultRegistryMatch.
    #[test]
    fn the_default_registry_is_known_by_the_first_part_of_a_name() {
        let cases = [
            ("foo/bar", true),
            ("docker.io/foo/bar", true),
            ("index.docker.io/foo/bar", true),
            ("foo", true),
            ("", false),
            ("registry.tld/foo/bar", false),
            ("registry:5000/foo/bar", false),
            ("myhostdocker.io/foo/bar", false),
        ];
        for (image, expected) in cases {
            assert_eq!(is_of_default_registry(image), expected, "{image}");
        }
    }

    #[test]
    fn the_longer_place_is_tried_first_and_equal_ones_in_the_order_of_their_sources() {
        let mut keyring = keyring(&["example.com", "https://example.com/team"]);
        let later = [("example.com/v2/".to_owned(), auth("later"))].into();
        keyring.add(&CredentialSource::Node, &later);
        let found = keyring.lookup("example.com/team/app");
        assert_eq!(
            names(&found),
            ["https://example.com/team", "example.com", "later"]
        );
        assert_eq!(
            names(&keyring.lookup("example.com/other")),
            ["example.com", "later"]
        );
    }

    #[test]
    fn a_place_that_cannot_be_read_hides_no_other() {
        let keyring = keyring(&["bad host", "example.com"]);
        assert_eq!(names(&keyring.lookup("example.com/a")), ["example.com"]);
    }
}
