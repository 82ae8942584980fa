//! The cluster of a kubeconfig's current context; `auth::auth_info` reads its user.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use http::Uri;
use http_proxy::Proxy;
use kernel::watch;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;

use super::client_config::{Identity, RestConfig, RestConfigError};
use crate::auth::client_certificate::PemSource;
use crate::transport::address::place;
use crate::transport::server::{ConnectionSecurity, ServerEndpoint};
use crate::transport::tls::Trust;

/// A kubeconfig that is being read.
pub(super) struct KubeconfigReader<'a> {
    pub(super) path: &'a Path,
    pub(super) file: Kubeconfig,
    pub(super) identity: Identity,
}

impl KubeconfigReader<'_> {
    pub(super) fn server(
        self,
        access: &RestConfig,
        identity: watch::Receiver<Option<Arc<CertifiedKey>>>,
    ) -> Result<ServerEndpoint, RestConfigError> {
        let (cluster, user) = self.context()?;
        let base = self.base(&cluster)?;
        let secured = match base.scheme_str() {
            Some("https") => Some(self.secured(&cluster, &base)?),
            Some(_) | None => None,
        };
        let own = self.client_certificate_key(&user)?;
        let proxy = self.proxy(&cluster, &base, access)?;
        Ok(ServerEndpoint {
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
            dial: access.dial.clone(),
            proxy,
            open: Mutex::default(),
            base,
        })
    }

    /// The cluster and the user of the current context. A context without a user gets empty credentials.
    fn context(&self) -> Result<(Cluster, AuthInfo), RestConfigError> {
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

    fn base(&self, cluster: &Cluster) -> Result<Uri, RestConfigError> {
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
        Ok(base)
    }

    /// The cluster's own proxy, else the environment's for its server.
    fn proxy(
        &self,
        cluster: &Cluster,
        base: &Uri,
        access: &RestConfig,
    ) -> Result<Option<Proxy>, RestConfigError> {
        if let Some(url) = cluster.proxy_url.as_deref().filter(|url| !url.is_empty()) {
            let wrong = |error| self.wrong("clusters[].cluster.proxy-url", error);
            return Proxy::parse(url).map(Some).map_err(wrong);
        }
        let (host, port) = place(base);
        let has_tls = base.scheme_str() == Some("https");
        let found = access.proxies.proxy(has_tls, &host, port);
        found.map_err(|(variable, error)| RestConfigError::Proxy {
            variable,
            expected: error.to_string(),
        })
    }

    fn secured(
        &self,
        cluster: &Cluster,
        base: &Uri,
    ) -> Result<ConnectionSecurity, RestConfigError> {
        let name = cluster
            .tls_server_name
            .clone()
            .filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| place(base).0);
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
            return Ok(ConnectionSecurity {
                trust: Trust::Anybody,
                name,
            });
        }
        let roots = match authority {
            Some(source) => self.roots(&source)?,
            None => native()?,
        };
        let trust = Trust::Roots(Arc::new(roots));
        Ok(ConnectionSecurity { trust, name })
    }

    fn roots(&self, source: &PemSource) -> Result<RootCertStore, RestConfigError> {
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

    /// Inline data goes before a file, as with client-go.
    pub(super) fn source(
        &self,
        field: &str,
        data: Option<&str>,
        file: Option<&str>,
    ) -> Result<Option<PemSource>, RestConfigError> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let decoded = BASE64.decode(data);
            let decoded = decoded.map_err(|_| self.wrong(format!("{field}-data"), "base64"))?;
            return Ok(Some(PemSource::Inline(decoded)));
        }
        let file = file.filter(|file| !file.is_empty());
        Ok(file.map(|file| PemSource::File(self.beside(file))))
    }

    pub(super) fn read(&self, source: &PemSource) -> Result<Vec<u8>, RestConfigError> {
        source.read().map_err(|error| RestConfigError::Unread {
            path: match source {
                PemSource::Inline(_) => self.path.to_owned(),
                PemSource::File(path) => path.clone(),
            },
            source: error,
        })
    }

    /// A path as the kubeconfig means it: from its own folder.
    pub(super) fn beside(&self, file: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new(".")).join(file)
    }

    pub(super) fn wrong(
        &self,
        field: impl Into<String>,
        expected: impl ToString,
    ) -> RestConfigError {
        RestConfigError::Field {
            path: self.path.to_owned(),
            field: field.into(),
            expected: expected.to_string(),
        }
    }
}

/// The authorities that the machine trusts.
fn native() -> Result<RootCertStore, RestConfigError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    match added {
        0 => Err(RestConfigError::NoRoots),
        _ => Ok(roots),
    }
}
