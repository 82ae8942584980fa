//! Where a registry is reached: containerd's `hosts.toml` (`docs/hosts.md` there), mirrors first, in the file's order; or
//! a folder with certificates alone, Docker's way.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Uri};
use serde::Deserialize;

use super::certificates;
use crate::disk::{DiskError, read};
use crate::reference::Reference;

/// Bytes of a hosts.toml.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Mirrors of one registry.
const MAX_HOSTS: usize = 64;
/// The longest `dial_timeout` that is kept.
const MAX_DIAL_TIMEOUT: Duration = Duration::from_secs(60);

/// A hosts.toml, or a file that it names, that is of no use.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// A file can't be read.
    #[error(transparent)]
    Read(#[from] DiskError),
    /// It is no TOML of the expected shape.
    #[error("{path:?} is malformed")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where it is wrong.
        source: Box<toml::de::Error>,
    },
    /// A value in it is wrong.
    #[error("{path:?} has {value:?}: {reason}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// TLS can't be set up.
    #[error("no TLS with the certificates of {path:?}: {reason}")]
    Tls {
        /// The file of certificates or a key, or the system's.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// One host that serves a repository.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    /// What stands before `/REPOSITORY/manifests` in its URLs.
    pub(super) path: String,
    pub(super) resolves: bool,
    pub(super) pulls: bool,
    /// Whether it may see the credentials of the registry.
    pub(super) trusted: bool,
    pub(super) tls: TlsFiles,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// How long a connection may take to be made, where the file says so.
    pub(super) dial_timeout: Option<Duration>,
}

impl Host {
    /// Returns the URL that it begins with: what is remembered of it is kept by this.
    pub(super) fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// Tells whether it is asked for several registries, and told which one is meant (`ns`).
    pub(super) fn is_proxy(&self, registry: &str) -> bool {
        let own = match registry {
            "docker.io" => "registry-1.docker.io",
            other => other,
        };
        self.authority != registry && self.authority != own
    }
}

/// What TLS to a host needs beside the system's certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) authorities: Vec<PathBuf>,
    /// Certificate and key; one file may have both.
    pub(super) client: Vec<(PathBuf, PathBuf)>,
    pub(super) skip_verify: bool,
}

#[derive(Deserialize)]
struct File {
    server: Option<String>,
    #[serde(default)]
    host: toml::Table,
    #[serde(flatten)]
    own: HostFields,
}

#[derive(Deserialize, Default)]
struct HostFields {
    capabilities: Option<Vec<String>>,
    ca: Option<OneOrMany<String>>,
    client: Option<OneOrMany<OneOrMany<String>>>,
    #[serde(default)]
    skip_verify: bool,
    #[serde(default)]
    override_path: bool,
    header: Option<std::collections::BTreeMap<String, OneOrMany<String>>>,
    dial_timeout: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn list(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// Returns the hosts to try for a reference, in order, by the folder `certs` if there is one.
pub(super) fn hosts(certs: Option<&Path>, reference: &Reference) -> Result<Vec<Host>, HostsError> {
    let registry = reference.registry_host();
    let folder = certs.and_then(|certs| find(certs, reference.registry()));
    let Some(folder) = folder else {
        let place = PathBuf::from(registry);
        return Ok(vec![host(&place, registry, HostFields::default(), true)?]);
    };
    let path = folder.join("hosts.toml");
    let content = match read(&path, MAX_FILE_BYTES) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    if content.is_empty() {
        return Ok(vec![with_certificates(&folder, registry)?]);
    }
    let malformed = |source| HostsError::Malformed {
        path: path.clone(),
        source: Box::new(source),
    };
    let file: File = match str::from_utf8(&content) {
        Ok(text) => toml::from_str(text).map_err(malformed)?,
        Err(_) => {
            let source = io::Error::from(io::ErrorKind::InvalidData);
            return Err(DiskError::new("read", &path, source).into());
        }
    };
    let mut hosts = Vec::new();
    if file.host.len() > MAX_HOSTS {
        return Err(HostsError::Value {
            path,
            value: format!("{} hosts", file.host.len()),
            reason: "expected at most 64",
        });
    }
    for (url, fields) in file.host {
        let fields = fields.try_into().map_err(malformed)?;
        hosts.push(host(&path, &url, fields, false)?);
    }
    let server = file.server.unwrap_or_else(|| registry.to_owned());
    hosts.push(host(&path, &server, file.own, true)?);
    // A mirror that names the registry itself is the registry.
    let own = hosts
        .last()
        .map(|host| (host.scheme.clone(), host.authority.clone()));
    for host in &mut hosts {
        host.trusted |= own == Some((host.scheme.clone(), host.authority.clone()));
    }
    Ok(hosts)
}

/// Returns a registry without mirrors, whose certificates lie in `folder`.
fn with_certificates(folder: &Path, registry: &str) -> Result<Host, HostsError> {
    let tls = certificates::files(folder)?;
    // This machine is spoken to without TLS, unless there are certificates for it.
    let url = match tls == TlsFiles::default() {
        true => registry.to_owned(),
        false => format!("https://{registry}"),
    };
    let plain = host(folder, &url, HostFields::default(), true)?;
    Ok(Host { tls, ..plain })
}

/// Returns the folder of a registry: of the names that containerd tries, the first that is there.
fn find(certs: &Path, registry: &str) -> Option<PathBuf> {
    let with_port = registry
        .rsplit_once(':')
        .map(|(host, port)| format!("{host}_{port}_"));
    let names = with_port
        .into_iter()
        .chain([registry.to_owned(), "_default".to_owned()]);
    let mut folders = names.map(|name| certs.join(name));
    folders.find(|folder| fs::metadata(folder).is_ok())
}

fn host(path: &Path, url: &str, fields: HostFields, trusted: bool) -> Result<Host, HostsError> {
    let wrong = |value: &str, reason| HostsError::Value {
        path: path.to_owned(),
        value: value.to_owned(),
        reason,
    };
    let full = match url.contains("://") {
        true => url.to_owned(),
        // This machine is spoken to without TLS, unless there are certificates for it.
        false if is_loopback(url) && fields.ca.is_none() && fields.client.is_none() => {
            format!("http://{url}")
        }
        false => format!("https://{url}"),
    };
    let uri: Uri = full.parse().map_err(|_| wrong(url, "no URL"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
        return Err(wrong(url, "no URL with a host"));
    };
    if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
        return Err(wrong(url, "the scheme is neither http nor https"));
    }
    let base = uri.path().trim_end_matches('/');
    let prefix = match fields.override_path || base.ends_with("/v2") {
        true => base.to_owned(),
        false => format!("{base}/v2"),
    };
    let capabilities = fields
        .capabilities
        .unwrap_or_else(|| vec!["pull".to_owned(), "resolve".to_owned()]);
    let known = ["pull", "resolve", "push", "referrers"];
    let is_unknown = |word: &&String| !known.contains(&word.to_lowercase().as_str());
    if let Some(unknown) = capabilities.iter().find(is_unknown) {
        return Err(wrong(unknown, "no capability"));
    }
    let can = |wanted: &str| {
        capabilities.is_empty()
            || capabilities
                .iter()
                .any(|word| word.to_lowercase() == wanted)
    };
    let dial_timeout = match &fields.dial_timeout {
        None => None,
        Some(text) => Some(
            duration(text)
                .ok_or_else(|| wrong(text, "no duration such as 5s"))?
                .min(MAX_DIAL_TIMEOUT),
        ),
    };
    let folder = path.parent().unwrap_or(path);
    Ok(Host {
        scheme: scheme.clone(),
        authority: authority.clone(),
        path: prefix,
        resolves: can("resolve") && can("pull"),
        pulls: can("pull"),
        trusted,
        tls: TlsFiles {
            authorities: fields
                .ca
                .map_or_else(Vec::new, OneOrMany::list)
                .iter()
                .map(|file| folder.join(file))
                .collect(),
            client: client(folder, fields.client),
            skip_verify: fields.skip_verify,
        },
        headers: headers(fields.header.unwrap_or_default())
            .map_err(|name| wrong(&name, "no header"))?,
        dial_timeout,
    })
}

/// Reads a duration as Go writes it: `1m30s`, `500ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let units = [
            ("ms", 0.001),
            ("us", 0.000_001),
            ("ns", 0.000_000_001),
            ("h", 3600.0),
            ("m", 60.0),
            ("s", 1.0),
        ];
        let (unit, seconds) = units.iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        sum = sum.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
    }
    (!text.is_empty()).then_some(sum)
}

/// Reads `client`: one file with both, a list of such files, or a list of pairs.
fn client(folder: &Path, client: Option<OneOrMany<OneOrMany<String>>>) -> Vec<(PathBuf, PathBuf)> {
    let files = client.map_or_else(Vec::new, OneOrMany::list);
    let pair = |files: OneOrMany<String>| {
        let files = files.list();
        let first = files.first()?;
        let key = files.get(1).filter(|key| !key.is_empty()).unwrap_or(first);
        Some((folder.join(first), folder.join(key)))
    };
    files.into_iter().filter_map(pair).collect()
}

fn headers(
    fields: std::collections::BTreeMap<String, OneOrMany<String>>,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    for (name, values) in fields {
        for value in values.list() {
            let header = name.parse().ok().zip(value.parse().ok());
            headers.push(header.ok_or_else(|| name.clone())?);
        }
    }
    Ok(headers)
}

/// Tells whether `host`, with or without a port, is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host().trim_matches(['[', ']']);
    name == "localhost"
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(file: &str) -> Result<Vec<Host>, HostsError> {
        let certs = tempfile::tempdir().unwrap();
        let folder = certs.path().join("registry.test_5000_");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("hosts.toml"), file).unwrap();
        hosts(
            Some(certs.path()),
            &"registry.test:5000/a/b:c".parse().unwrap(),
        )
    }

    #[test]
    fn mirrors_are_tried_in_the_files_order_and_the_server_last() {
        let file = r#"
            server = "https://registry.test:5000"
            [host."http://z.test"]
              capabilities = ["pull"]
            [host."https://a.test/mirror/v2"]
              override_path = true
              skip_verify = true
              ca = ["ca.pem", "/etc/other.pem"]
              client = [["c.pem", "k.pem"]]
              [host."https://a.test/mirror/v2".header]
                x-key = ["one", "two"]
            [host."https://m.test/base"]
        "#;
        let hosts = of(file).unwrap();
        let urls: Vec<_> = hosts
            .iter()
            .map(|host| format!("{}://{}{}", host.scheme, host.authority, host.path))
            .collect();
        let expected = [
            "http://z.test/v2",
            "https://a.test/mirror/v2",
            "https://m.test/base/v2",
            "https://registry.test:5000/v2",
        ];
        assert_eq!(urls, expected);
        assert_eq!(
            hosts.iter().map(|host| host.trusted).collect::<Vec<_>>(),
            [false, false, false, true]
        );
        assert!(!hosts[0].resolves && hosts[0].pulls);
        assert_eq!(hosts[1].headers.len(), 2);
        assert!(
            hosts[1].tls.skip_verify && hosts[1].tls.authorities[1] == Path::new("/etc/other.pem")
        );
        assert!(
            hosts[1].tls.client[0]
                .1
                .ends_with("registry.test_5000_/k.pem")
        );
    }

    #[test]
    fn plain_http_is_for_this_machine_and_where_a_file_says_so() {
        let plain = |name: &str| {
            let reference = format!("{name}/x").parse().unwrap();
            hosts(None, &reference).unwrap()[0].scheme == Scheme::HTTP
        };
        assert!(plain("127.0.0.1:5000") && plain("localhost:80") && plain("[::1]:5000"));
        assert!(!plain("registry.test") && !plain("10.0.0.1:5000") && !plain("localhost.test"));
        assert_eq!(
            of("server = 'http://registry.test'").unwrap()[0].scheme,
            Scheme::HTTP
        );
    }

    #[test]
    fn a_folder_with_certificates_alone_is_dockers_form() {
        let certs = tempfile::tempdir().unwrap();
        let reference = "registry.test:5000/a:b".parse().unwrap();
        let folder = certs.path().join("registry.test:5000");
        fs::create_dir(&folder).unwrap();
        let plain = hosts(Some(certs.path()), &reference).unwrap();
        assert_eq!(plain[0].tls, TlsFiles::default());
        for name in ["b.crt", "a.crt", "c.cert", "c.key", "d.cert", "notes.txt"] {
            fs::write(folder.join(name), "").unwrap();
        }
        fs::create_dir(folder.join("e.crt")).unwrap();
        let found = hosts(Some(certs.path()), &reference).unwrap();
        let path = |name: &str| folder.join(name);
        assert_eq!(found[0].tls.authorities, [path("a.crt"), path("b.crt")]);
        let pairs = [
            (path("c.cert"), path("c.key")),
            (path("d.cert"), path("d.cert")),
        ];
        assert_eq!(found[0].tls.client, pairs);
        // An empty hosts.toml changes nothing.
        fs::write(path("hosts.toml"), "").unwrap();
        let again = hosts(Some(certs.path()), &reference).unwrap();
        assert_eq!(again[0].tls, found[0].tls);
        let local = certs.path().join("127.0.0.1:5000");
        fs::create_dir(&local).unwrap();
        fs::write(local.join("ca.crt"), "").unwrap();
        let local = hosts(Some(certs.path()), &"127.0.0.1:5000/a:b".parse().unwrap()).unwrap();
        assert_eq!(local[0].scheme, Scheme::HTTPS);
    }

    #[test]
    fn a_dial_timeout_is_a_duration_of_go() {
        for (text, expected) in [
            ("5s", Some(5_000)),
            ("1m30s", Some(90_000)),
            ("1.5s", Some(1_500)),
            ("200ms", Some(200)),
            ("", None),
            ("5", None),
            ("s", None),
            ("5 s", None),
        ] {
            assert_eq!(
                duration(text),
                expected.map(Duration::from_millis),
                "{text}"
            );
        }
        let hosts =
            of("[host.'http://x']\ndial_timeout = '2h'\ncapabilities = ['Pull', 'referrers']")
                .unwrap();
        assert_eq!(hosts[0].dial_timeout, Some(MAX_DIAL_TIMEOUT));
        assert!(hosts[0].pulls && !hosts[0].resolves);
    }

    #[test]
    fn a_wrong_file_is_told_with_its_path() {
        for file in [
            "server = 5",
            "[host.'ftp://x']",
            "[host.'http://x']\ncapabilities = ['fly']",
            "= =",
        ] {
            assert!(
                of(file).unwrap_err().to_string().contains("hosts.toml"),
                "{file}"
            );
        }
    }
}
