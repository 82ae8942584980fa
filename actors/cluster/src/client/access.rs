//! How to get to the server: what a kubeconfig says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use k8s_openapi::ByteString;
use kube::config::{AuthInfo, Cluster, ExecConfig, ExecInteractiveMode, Kubeconfig};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::credentials::{Credentials, TokenFile, basic, bearer};
use super::exec::{Plugin, State};
use super::own_key::{KeyError, OwnKey, Source};
use super::server::{Secured, Server};
use super::tls::Trust;
use super::trouble::chain;

/// The server, and how fast it may be asked. A rate below nought is no limit.
#[derive(Debug, Clone)]
pub struct Access {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// kubeAPIQPS.
    pub qps: i32,
    /// kubeAPIBurst.
    pub burst: i32,
    /// eventRecordQPS.
    pub event_qps: i32,
    /// eventBurst.
    pub event_burst: i32,
    /// Within this a heartbeat is answered, or given up.
    pub heartbeat_within: Duration,
    /// E.g. `kubelet/v1.36.0 (linux/amd64) ...`.
    pub user_agent: String,
    /// contentType. Bodies are JSON all the same.
    pub content_type: String,
    pub identity: Identity,
}

/// Whether the client certificate must be there at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// As the kubeconfig names it.
    There,
    /// It may be asked for first.
    Comes,
}

impl Access {
    pub(super) fn unlimited() -> Access {
        Access {
            kubeconfig: PathBuf::new(),
            qps: -1,
            burst: 0,
            event_qps: -1,
            event_burst: 0,
            heartbeat_within: Duration::from_secs(10),
            user_agent: String::new(),
            content_type: String::new(),
            identity: Identity::There,
        }
    }
}

/// Why a kubeconfig leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig, or a file that it names.
    #[error("{path}: cannot be read", path = .path.display())]
    Unread {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}: expected a kubeconfig: {reason}", path = .path.display())]
    Malformed { path: PathBuf, reason: String },
    #[error("{path}: {field}: expected {expected}", path = .path.display())]
    Field {
        path: PathBuf,
        field: String,
        expected: String,
    },
    #[error("the machine's own certificate authorities cannot be read")]
    NoRoots,
}

impl AccessError {
    /// Whether the same file may do later, as it is.
    pub fn transient(&self) -> bool {
        match self {
            AccessError::Unread { .. } | AccessError::NoRoots => true,
            AccessError::Malformed { .. } | AccessError::Field { .. } => false,
        }
    }
}

/// The server of a plain address.
pub(super) fn open(base: Uri) -> Server {
    Server {
        host: base
            .authority()
            .map(ToString::to_string)
            .unwrap_or_default(),
        base,
        headers: HeaderMap::new(),
        credentials: Credentials::None,
        heartbeat_within: Access::unlimited().heartbeat_within,
        secured: None,
        identity: watch::channel(None).1,
        own: OwnKey::default(),
        open: Mutex::default(),
    }
}

/// The server that the current context of a kubeconfig names.
pub(super) fn server(
    access: &Access,
    identity: watch::Receiver<Option<Arc<CertifiedKey>>>,
) -> Result<Server, AccessError> {
    let path = &access.kubeconfig;
    let text = std::fs::read_to_string(path).map_err(|source| AccessError::Unread {
        path: path.clone(),
        source,
    })?;
    let file = Kubeconfig::from_yaml(&text).map_err(|error| AccessError::Malformed {
        path: path.clone(),
        reason: place(&error),
    })?;
    let reading = Reading {
        path,
        file,
        identity: access.identity,
    };
    reading.server(access, identity)
}

/// A kubeconfig being made sense of.
struct Reading<'a> {
    path: &'a Path,
    file: Kubeconfig,
    identity: Identity,
}

impl Reading<'_> {
    fn server(
        self,
        access: &Access,
        identity: watch::Receiver<Option<Arc<CertifiedKey>>>,
    ) -> Result<Server, AccessError> {
        let (cluster, user) = self.context()?;
        let base = self.base(&cluster)?;
        let secured = match base.scheme_str() {
            Some("https") => Some(self.secured(&cluster, &base)?),
            Some(_) | None => None,
        };
        let own = self.own_key(&user)?;
        Ok(Server {
            host: base
                .authority()
                .map(ToString::to_string)
                .unwrap_or_default(),
            headers: self.headers(&user, access)?,
            credentials: self.credentials(&user, &cluster)?,
            heartbeat_within: access.heartbeat_within,
            secured,
            identity,
            own,
            open: Mutex::default(),
            base,
        })
    }

    /// The cluster and the user of the current context. As with client-go, a user that is nowhere is nobody.
    fn context(&self) -> Result<(Cluster, AuthInfo), AccessError> {
        let current = self.file.current_context.as_deref().unwrap_or_default();
        if current.is_empty() {
            return Err(self.wrong("current-context", "the name of a context"));
        }
        let mut contexts = self.file.contexts.iter();
        let context = contexts
            .find(|named| named.name == current)
            .and_then(|named| named.context.clone())
            .ok_or_else(|| self.wrong("contexts", format!("one named {current:?}")))?;
        let mut clusters = self.file.clusters.iter();
        let cluster = clusters
            .find(|named| named.name == context.cluster)
            .and_then(|named| named.cluster.clone())
            .ok_or_else(|| self.wrong("clusters", format!("one named {:?}", context.cluster)))?;
        let wanted = context.user.unwrap_or_default();
        let mut users = self.file.auth_infos.iter();
        let user = users
            .find(|named| named.name == wanted)
            .and_then(|named| named.auth_info.clone());
        if user.is_none() && !wanted.is_empty() {
            return Err(self.wrong("users", format!("one named {wanted:?}")));
        }
        Ok((cluster, user.unwrap_or_default()))
    }

    fn base(&self, cluster: &Cluster) -> Result<Uri, AccessError> {
        let text = cluster.server.clone().unwrap_or_default();
        let wrong = || {
            self.wrong(
                "clusters[].cluster.server",
                format!("an address such as https://10.0.0.1:6443, not {text:?}"),
            )
        };
        let text = match text.contains("://") {
            true => text.clone(),
            false => format!("http://{text}"),
        };
        let base: Uri = text.parse().map_err(|_| wrong())?;
        let known = matches!(base.scheme_str(), Some("http" | "https"));
        if !known || base.host().unwrap_or_default().is_empty() {
            return Err(wrong());
        }
        if !cluster.proxy_url.clone().unwrap_or_default().is_empty() {
            return Err(self.wrong(
                "clusters[].cluster.proxy-url",
                "nothing: a proxy is not supported, the server must be reached directly",
            ));
        }
        Ok(base)
    }

    fn secured(&self, cluster: &Cluster, base: &Uri) -> Result<Secured, AccessError> {
        let name = cluster
            .tls_server_name
            .clone()
            .filter(|name| !name.is_empty());
        let host = base.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = name.unwrap_or_else(|| host.to_owned());
        let name = ServerName::try_from(name).map_err(|_| {
            self.wrong(
                "clusters[].cluster.tls-server-name",
                "a host name or address",
            )
        })?;
        let authority = self.source(
            "clusters[].cluster.certificate-authority",
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
        )?;
        if cluster.insecure_skip_tls_verify.unwrap_or_default() {
            if authority.is_some() {
                return Err(self.wrong(
                    "clusters[].cluster.insecure-skip-tls-verify",
                    "not to be set beside certificate-authority",
                ));
            }
            return Ok(Secured {
                trust: Trust::Anybody,
                name,
            });
        }
        let roots = match authority {
            Some(source) => self.roots(&source)?,
            None => native()?,
        };
        let trust = Trust::Roots(Arc::new(roots));
        Ok(Secured { trust, name })
    }

    fn roots(&self, source: &Source) -> Result<RootCertStore, AccessError> {
        let text = self.read(source)?;
        let mut roots = RootCertStore::empty();
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let (added, _) = roots.add_parsable_certificates(certificates.unwrap_or_default());
        match added {
            0 => Err(self.wrong(
                "clusters[].cluster.certificate-authority",
                "PEM certificates",
            )),
            _ => Ok(roots),
        }
    }

    fn own_key(&self, user: &AuthInfo) -> Result<OwnKey, AccessError> {
        let certificate = self.source(
            "users[].user.client-certificate",
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
        )?;
        // The only way to what kube hides so well that its type cannot be named here.
        let plain = serde_json::to_value(user).unwrap_or_default();
        let key = self.source(
            "users[].user.client-key",
            plain["client-key-data"].as_str(),
            user.client_key.as_deref(),
        )?;
        let (certificate, key) = match (certificate, key) {
            (None, None) => return Ok(OwnKey::default()),
            (Some(certificate), Some(key)) => (certificate, key),
            (None, Some(_)) => {
                return Err(self.wrong("users[].user.client-certificate", "one for the client-key"));
            }
            (Some(_), None) => {
                return Err(self.wrong("users[].user.client-key", "one for the client-certificate"));
            }
        };
        let names = match &certificate {
            Source::Inline(_) => None,
            Source::File(path) => Some(path.clone()),
        };
        let own = OwnKey::new(certificate, key, kernel::now());
        if self.identity == Identity::Comes
            && matches!(&own, Err(KeyError::Unread(error)) if error.kind() == std::io::ErrorKind::NotFound)
        {
            return Ok(OwnKey::default());
        }
        own.map_err(|error| match error {
            KeyError::Unread(source) => AccessError::Unread {
                path: names.unwrap_or_else(|| self.path.to_owned()),
                source,
            },
            KeyError::Certificate => self.wrong("users[].user.client-certificate", &error),
            KeyError::Key | KeyError::Mismatch => self.wrong("users[].user.client-key", &error),
        })
    }

    fn credentials(&self, user: &AuthInfo, cluster: &Cluster) -> Result<Credentials, AccessError> {
        let plain = serde_json::to_value(user).unwrap_or_default();
        let token = plain["token"].as_str().filter(|token| !token.is_empty());
        let token = token.map(|token| {
            bearer(token).ok_or_else(|| self.wrong("users[].user.token", "what fits a header"))
        });
        let token = token.transpose()?;
        if let Some(file) = user.token_file.as_deref().filter(|file| !file.is_empty()) {
            return Ok(Credentials::File(TokenFile::new(self.beside(file), token)));
        }
        if let Some(token) = token {
            return Ok(Credentials::Fixed(token));
        }
        if let Some(name) = user.username.as_deref().filter(|name| !name.is_empty()) {
            let password = plain["password"].as_str().unwrap_or_default();
            let header = basic(name, password);
            let header =
                header.ok_or_else(|| self.wrong("users[].user.username", "what fits a header"))?;
            return Ok(Credentials::Fixed(header));
        }
        if user.auth_provider.is_some() {
            return Err(self.wrong(
                "users[].user.auth-provider",
                "nothing: such providers are no more, use exec",
            ));
        }
        match &user.exec {
            Some(exec) => Ok(Credentials::Exec(Box::new(self.plugin(exec, cluster)?))),
            None => Ok(Credentials::None),
        }
    }

    fn plugin(&self, exec: &ExecConfig, cluster: &Cluster) -> Result<Plugin, AccessError> {
        let field = |name: &str| format!("users[].user.exec.{name}");
        let api_version = exec.api_version.clone().unwrap_or_default();
        let versions = [
            "client.authentication.k8s.io/v1",
            "client.authentication.k8s.io/v1beta1",
        ];
        if !versions.contains(&api_version.as_str()) {
            return Err(self.wrong(field("apiVersion"), versions.join(" or ")));
        }
        let command = exec.command.clone().unwrap_or_default();
        if command.is_empty() {
            return Err(self.wrong(field("command"), "the name or path of an executable"));
        }
        match exec.interactive_mode {
            Some(ExecInteractiveMode::Always) => {
                return Err(self.wrong(
                    field("interactiveMode"),
                    "Never or IfAvailable: nobody sits at a node",
                ));
            }
            None if api_version == versions[0] => {
                return Err(self.wrong(field("interactiveMode"), "Never or IfAvailable"));
            }
            Some(ExecInteractiveMode::Never | ExecInteractiveMode::IfAvailable) | None => {}
        }
        let env = exec.env.iter().flatten();
        let env =
            env.filter_map(|pair| Some((pair.get("name")?.clone(), pair.get("value")?.clone())));
        Ok(Plugin {
            command: match command.contains('/') {
                true => self.beside(&command),
                false => PathBuf::from(&command),
            },
            args: exec.args.clone().unwrap_or_default(),
            env: env.collect(),
            api_version,
            cluster: match exec.provide_cluster_info {
                true => Some(self.cluster_of_exec(cluster)?),
                false => None,
            },
            hint: exec.install_hint.clone().unwrap_or_default(),
            state: tokio::sync::Mutex::new(State::default()),
        })
    }

    /// The cluster as a plugin is told of it.
    fn cluster_of_exec(&self, cluster: &Cluster) -> Result<serde_json::Value, AccessError> {
        let authority = self.source(
            "clusters[].cluster.certificate-authority",
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
        )?;
        let authority = authority.map(|source| self.read(&source)).transpose()?;
        let mut extensions = cluster.extensions.iter().flatten();
        let config = extensions.find(|named| named.name == "client.authentication.k8s.io/exec");
        let mut told = serde_json::json!({
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": authority.map(ByteString),
            "config": config.map(|named| &named.extension),
        });
        if let Some(fields) = told.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        Ok(told)
    }

    /// What goes with every request: who asks, and whom it stands for.
    fn headers(&self, user: &AuthInfo, access: &Access) -> Result<HeaderMap, AccessError> {
        let agent = Some(access.user_agent.as_str()).filter(|agent| !agent.is_empty());
        let agent = agent.map(|agent| ("user-agent".to_owned(), agent, "the user agent"));
        let one = |name: &str, value| Some((name.to_owned(), value, "users[].user.as"));
        let name = user.impersonate.as_deref();
        let uid = user.impersonate_uid.as_deref();
        let groups = user.impersonate_groups.iter().flatten();
        let extra = user.impersonate_user_extra.iter().flatten();
        let extra = extra.flat_map(|(key, values)| {
            let name = format!("impersonate-extra-{}", key.to_lowercase());
            let field = "users[].user.as-user-extra";
            let header = move |value: &'_ String| (name.clone(), value.clone(), field);
            values.iter().map(header)
        });
        let extra: Vec<_> = extra.collect();
        let all = agent
            .into_iter()
            .chain(name.and_then(|name| one("impersonate-user", name)))
            .chain(uid.and_then(|uid| one("impersonate-uid", uid)))
            .chain(groups.filter_map(|group| one("impersonate-group", group)))
            .chain(
                extra
                    .iter()
                    .map(|(name, value, field)| (name.clone(), value.as_str(), *field)),
            );
        let mut headers = HeaderMap::new();
        for (name, value, field) in all {
            let fits = HeaderName::try_from(name)
                .ok()
                .zip(HeaderValue::from_str(value).ok());
            let (name, value) = fits.ok_or_else(|| self.wrong(field, "what fits a header"))?;
            headers.append(name, value);
        }
        Ok(headers)
    }

    /// Inline data goes before a file, as with client-go.
    fn source(
        &self,
        field: &str,
        data: Option<&str>,
        file: Option<&str>,
    ) -> Result<Option<Source>, AccessError> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let decoded = serde_json::from_value::<ByteString>(data.into());
            let decoded = decoded.map_err(|_| self.wrong(format!("{field}-data"), "base64"))?;
            return Ok(Some(Source::Inline(decoded.0)));
        }
        let file = file.filter(|file| !file.is_empty());
        Ok(file.map(|file| Source::File(self.beside(file))))
    }

    fn read(&self, source: &Source) -> Result<Vec<u8>, AccessError> {
        source.read().map_err(|error| AccessError::Unread {
            path: match source {
                Source::Inline(_) => self.path.to_owned(),
                Source::File(path) => path.clone(),
            },
            source: error,
        })
    }

    /// A path as the kubeconfig means it: from its own folder.
    fn beside(&self, file: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new(".")).join(file)
    }

    fn wrong(&self, field: impl Into<String>, expected: impl ToString) -> AccessError {
        AccessError::Field {
            path: self.path.to_owned(),
            field: field.into(),
            expected: expected.to_string(),
        }
    }
}

/// The authorities that the machine trusts.
fn native() -> Result<RootCertStore, AccessError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    match added {
        0 => Err(AccessError::NoRoots),
        _ => Ok(roots),
    }
}

/// Where a text is no kubeconfig. What else the parser says may quote the text, and the text holds secrets.
fn place(error: &dyn std::error::Error) -> String {
    let text = chain(error);
    let words: Vec<_> = text.split_whitespace().collect();
    let mut places = words.windows(4);
    let place = places.find(|words| words[0] == "line" && words[2] == "column");
    place.map_or("it is none".to_owned(), |words| {
        words.join(" ").trim_end_matches(':').to_owned()
    })
}
