//! Docker's credential files: `config.json`, and the older `.dockercfg`.
//!
//! Mirrors upstream's pkg/credentialprovider/config.go (v1.36): where a node's own file is looked for, and
//! how an entry is read. A file with one wrong entry is no file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use serde::Deserialize;
use serde::de::Error as _;
use thiserror::Error;

use super::AuthConfig;

/// Credentials by registry, as a file, secret or provider gives them.
pub type DockerConfig = BTreeMap<String, AuthConfig>;

/// Which of the two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DockerConfigFormat {
    /// The registries stand under `auths`.
    ConfigJson,
    /// The registries are the whole.
    Dockercfg,
}

/// Why a text gives no credentials. It shows nothing of the text, which may hold a password.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DockerConfigError {
    #[error("it is not a docker configuration: line {line} column {column}")]
    Syntax { line: usize, column: usize },
}

#[derive(Deserialize)]
struct ConfigJson {
    #[serde(default)]
    auths: Option<BTreeMap<String, Option<DockerAuth>>>,
}

#[derive(Default, Deserialize)]
#[serde(try_from = "RawDockerAuth")]
struct DockerAuth(AuthConfig);

#[derive(Deserialize)]
struct RawDockerAuth {
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    auth: Option<String>,
}

impl TryFrom<RawDockerAuth> for DockerAuth {
    type Error = serde_json::Error;

    fn try_from(raw: RawDockerAuth) -> Result<Self, serde_json::Error> {
        let mut auth = AuthConfig {
            username: raw.username.unwrap_or_default(),
            password: raw.password.unwrap_or_default(),
            email: raw.email.unwrap_or_default(),
        };
        let field = raw.auth.unwrap_or_default();
        if !field.is_empty() {
            (auth.username, auth.password) =
                decoded(&field).ok_or_else(|| serde_json::Error::custom("auth"))?;
        }
        Ok(Self(auth))
    }
}

/// `user:password` in base64, padded or not.
fn decoded(field: &str) -> Option<(String, String)> {
    let mut field: String = field
        .chars()
        .filter(|c| !matches!(c, '\r' | '\n'))
        .collect();
    if !field.ends_with('=') {
        field.extend(std::iter::repeat_n('=', (4 - field.len() % 4) % 4));
    }
    let text = String::from_utf8(BASE64.decode(field).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Reads a Docker configuration of this format.
pub fn parse(format: DockerConfigFormat, text: &[u8]) -> Result<DockerConfig, DockerConfigError> {
    let entries = match format {
        DockerConfigFormat::ConfigJson => {
            serde_json::from_slice::<ConfigJson>(text).map(|config| config.auths)
        }
        DockerConfigFormat::Dockercfg => serde_json::from_slice(text),
    };
    let entries = entries.map_err(|error| DockerConfigError::Syntax {
        line: error.line(),
        column: error.column(),
    })?;
    let entries = entries.into_iter().flatten();
    Ok(entries
        .map(|(place, entry)| (place, entry.unwrap_or_default().0))
        .collect())
}

/// The directories that are searched for a node's own file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerConfigDirs {
    /// The agent's root directory.
    pub root_dir: PathBuf,
    /// The agent's working directory.
    pub working: PathBuf,
    /// The home of the agent's user.
    pub home: PathBuf,
}

/// Where a node's own file may be; the first that reads is taken, and no other.
pub fn search(folders: &DockerConfigDirs) -> Vec<(PathBuf, DockerConfigFormat)> {
    let DockerConfigDirs {
        root_dir,
        working,
        home,
    } = folders;
    let slash = Path::new("/");
    let new = [
        root_dir.clone(),
        working.clone(),
        home.join(".docker"),
        slash.join(".docker"),
    ];
    let old = [root_dir, working, home, slash];
    let new = new
        .into_iter()
        .map(|folder| (folder.join("config.json"), DockerConfigFormat::ConfigJson));
    let old = old
        .into_iter()
        .map(|folder| (folder.join(".dockercfg"), DockerConfigFormat::Dockercfg));
    new.chain(old).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(username: &str, password: &str, email: &str) -> AuthConfig {
        AuthConfig {
            username: username.into(),
            password: password.into(),
            email: email.into(),
        }
    }

    /// Upstream's TestDockerConfigJSONDecode and TestDockerConfigDecode.
    #[test]
    fn both_formats_say_the_same() {
        let entries = r#"{"http://foo.example.com": {"username": "foo", "password": "bar", "email": "foo@example.com"},
            "http://bar.example.com": {"username": "bar", "password": "baz", "email": "bar@example.com"}}"#;
        let expected = DockerConfig::from([
            (
                "http://foo.example.com".into(),
                auth("foo", "bar", "foo@example.com"),
            ),
            (
                "http://bar.example.com".into(),
                auth("bar", "baz", "bar@example.com"),
            ),
        ]);
        let json = format!(r#"{{"auths": {entries}, "HttpHeaders": {{"X": "y"}}}}"#);
        assert_eq!(
            parse(DockerConfigFormat::ConfigJson, json.as_bytes()),
            Ok(expected.clone())
        );
        assert_eq!(
            parse(DockerConfigFormat::Dockercfg, entries.as_bytes()),
            Ok(expected)
        );
        assert_eq!(
            parse(DockerConfigFormat::ConfigJson, b"{}"),
            Ok(DockerConfig::new())
        );
    }

    /// Upstream's TestDockerConfigEntryJSONDecode.
    #[test]
    fn an_entry_is_read_from_its_fields_or_from_auth() {
        let cases = [
            (
                r#"{"username": "foo", "password": "bar", "email": "e"}"#,
                Some(auth("foo", "bar", "e")),
            ),
            (r#"{"username": "foo"}"#, Some(auth("foo", "", ""))),
            (
                r#"{"auth": "Zm9vOmJhcg==", "email": "e"}"#,
                Some(auth("foo", "bar", "e")),
            ),
            (
                r#"{"auth": "Zm9vOmJhcg", "email": "e"}"#,
                Some(auth("foo", "bar", "e")),
            ),
            (
                r#"{"username": "u", "password": "p", "auth": "Zm9vOmJhcg=="}"#,
                Some(auth("foo", "bar", "")),
            ),
            (r#"{"auth": "pants", "email": "e"}"#, None),
            (r#"{"email": false}"#, None),
            ("null", Some(AuthConfig::default())),
        ];
        for (entry, expected) in cases {
            let read = parse(
                DockerConfigFormat::Dockercfg,
                format!(r#"{{"r": {entry}}}"#).as_bytes(),
            );
            assert_eq!(
                read.ok().and_then(|mut config| config.remove("r")),
                expected,
                "{entry}"
            );
        }
    }

    /// Upstream's TestDecodeDockerConfigFieldAuth.
    #[test]
    fn auth_is_user_and_password_in_base64() {
        let cases = [
            ("Zm9vOmJhcg==", Some(("foo", "bar"))),
            ("Zm9vOmJhcg==\n", Some(("foo", "bar"))),
            ("Zm9vOmJhcg", Some(("foo", "bar"))),
            ("Zm9vOmJhcg\n", Some(("foo", "bar"))),
            ("Zm9vOmJhcjpiYXo=", Some(("foo", "bar:baz"))),
            ("pants", None),
            ("Zm9v", None),
            ("Zm9vOmJhcg==invalid", None),
        ];
        for (field, expected) in cases {
            let expected = expected.map(|(user, password)| (user.into(), password.into()));
            assert_eq!(decoded(field), expected, "{field:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_its_place_and_never_shown() {
        let error = parse(
            DockerConfigFormat::Dockercfg,
            br#"{"r": {"password": hunter2}}"#,
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is not a docker configuration: line 1 column 20"
        );
    }

    /// Upstream's DefaultDockerConfigJSONPaths and DefaultDockercfgPaths, in this order.
    #[test]
    fn the_newer_format_is_looked_for_everywhere_before_the_older() {
        let folders = DockerConfigDirs {
            root_dir: "/var/lib/kubelet".into(),
            working: "/work".into(),
            home: "/root".into(),
        };
        let paths: Vec<String> = search(&folders)
            .into_iter()
            .map(|(path, _)| path.display().to_string())
            .collect();
        let expected = [
            "/var/lib/kubelet/config.json",
            "/work/config.json",
            "/root/.docker/config.json",
            "/.docker/config.json",
            "/var/lib/kubelet/.dockercfg",
            "/work/.dockercfg",
            "/root/.dockercfg",
            "/.dockercfg",
        ];
        assert_eq!(paths, expected);
    }
}
