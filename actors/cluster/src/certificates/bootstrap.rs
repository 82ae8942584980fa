//! From bootstrap credentials to a kubeconfig of the node's own.
//!
//! Upstream: pkg/kubelet/certificate/bootstrap/bootstrap.go (LoadClientConfig, LoadClientCert, 1.36).

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::config::{AuthInfo, Kubeconfig, KubeconfigError};
use serde_json::json;

use super::key_pair::TlsKeyPair;
use super::store::load;

/// Errors while preparing the kubeconfig at startup.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error("cannot read bootstrap kubeconfig {}", path.display())]
    Read {
        path: PathBuf,
        source: Box<KubeconfigError>,
    },
    #[error("bootstrap kubeconfig {}: current-context names no cluster", path.display())]
    NoCluster { path: PathBuf },
    #[error("cannot write kubeconfig {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Whether the existing kubeconfig was kept or a new one written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootstrapOutcome {
    /// The existing one: its credentials are valid.
    Kept,
    /// A new one, which names the rotated certificate's path.
    Written,
}

/// Makes sure that there is a kubeconfig: one with valid credentials stays; otherwise one is written that leads
/// to the bootstrap kubeconfig's cluster with the certificate at `current`, which may have to be requested first.
pub fn prepare(
    kubeconfig: &Path,
    bootstrap: &Path,
    current: &Path,
    now: Timestamp,
) -> Result<BootstrapOutcome, BootstrapError> {
    let present = Kubeconfig::read_from(kubeconfig).ok();
    if present.is_some_and(|present| is_good(&present, now)) {
        return Ok(BootstrapOutcome::Kept);
    }
    let given = Kubeconfig::read_from(bootstrap).map_err(|source| BootstrapError::Read {
        path: bootstrap.to_owned(),
        source: Box::new(source),
    })?;
    let cluster = cluster(&given).ok_or_else(|| BootstrapError::NoCluster {
        path: bootstrap.to_owned(),
    })?;
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "default-cluster", "cluster": cluster }],
        "users": [{
            "name": "default-auth",
            "user": { "client-certificate": current, "client-key": current },
        }],
        "contexts": [{
            "name": "default-context",
            "context": { "cluster": "default-cluster", "user": "default-auth", "namespace": "default" },
        }],
        "current-context": "default-context",
    });
    write(kubeconfig, &format!("{text:#}\n")).map_err(|source| BootstrapError::Write {
        path: kubeconfig.to_owned(),
        source,
    })?;
    Ok(BootstrapOutcome::Written)
}

/// The cluster of the current context; the reader of the file has made its paths absolute.
fn cluster(config: &Kubeconfig) -> Option<serde_json::Value> {
    let named = config.current_context.as_ref()?;
    let context = config.contexts.iter().find(|one| &one.name == named)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = config.clusters.iter().find(|one| &one.name == name)?;
    serde_json::to_value(cluster.cluster.as_ref()?).ok()
}

/// Whether the user can authenticate now: with a valid certificate, or with something that is no certificate.
fn is_good(config: &Kubeconfig, now: Timestamp) -> bool {
    let user = || -> Option<&AuthInfo> {
        let named = config.current_context.as_ref()?;
        let context = config.contexts.iter().find(|one| &one.name == named)?;
        let name = context.context.as_ref()?.user.as_ref()?;
        let user = config.auth_infos.iter().find(|one| &one.name == name)?;
        user.auth_info.as_ref()
    };
    user().is_some_and(|user| match certificate(user) {
        Some(pair) => pair.is_some_and(|pair| !pair.lifetime.is_over(now)),
        None => user.token.is_some() || user.token_file.is_some() || user.exec.is_some(),
    })
}

/// The user's certificate, if one is named; the inner option is none if it cannot be read.
fn certificate(user: &AuthInfo) -> Option<Option<TlsKeyPair>> {
    if let (Some(certificate), Some(key)) = (&user.client_certificate, &user.client_key) {
        return Some(load(Path::new(certificate), Path::new(key)).ok());
    }
    let named = user.client_certificate_data.is_some() || user.client_certificate.is_some();
    named.then(|| {
        let user = serde_json::to_value(user).ok()?;
        let data =
            |field: &str| serde_json::from_value::<ByteString>(user.get(field)?.clone()).ok();
        let (certificate, key) = (data("client-certificate-data")?, data("client-key-data")?);
        TlsKeyPair::parse(&certificate.0, &key.0).ok()
    })
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    drop(fs::remove_file(&new));
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{signed, signed_until};
    use super::*;

    const BOOTSTRAP: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: QUJD}}]
users: [{name: u, user: {token: abcdef.0123456789abcdef}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";

    struct BootstrapFixture {
        folder: tempfile::TempDir,
    }

    impl BootstrapFixture {
        fn new() -> Self {
            let fixture = BootstrapFixture {
                folder: tempfile::tempdir().unwrap(),
            };
            fs::write(fixture.path("bootstrap"), BOOTSTRAP).unwrap();
            fixture
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn prepare(&self) -> Result<(BootstrapOutcome, String), BootstrapError> {
            let now = kernel::timestamp();
            let (kubeconfig, bootstrap) = (self.path("kubeconfig"), self.path("bootstrap"));
            let prepared = prepare(&kubeconfig, &bootstrap, &self.path("current.pem"), now)?;
            Ok((prepared, fs::read_to_string(kubeconfig).unwrap()))
        }
    }

    /// Upstream's TestLoadClientConfig: without a kubeconfig.
    #[test]
    fn a_kubeconfig_is_written_that_leads_to_the_certificate_to_come() {
        let fixture = BootstrapFixture::new();
        let (prepared, text) = fixture.prepare().unwrap();
        assert_eq!(prepared, BootstrapOutcome::Written);
        let written = Kubeconfig::from_yaml(&text).unwrap();
        assert!(text.contains("https://127.0.0.1:1"), "{text}");
        assert!(
            text.contains("QUJD") && text.contains("current.pem"),
            "{text}"
        );
        assert!(!text.contains("0123456789abcdef"), "{text}");
        assert_eq!(written.current_context.unwrap(), "default-context");
    }

    /// Upstream's TestLoadRESTClientConfig.
    #[test]
    fn of_several_contexts_the_current_one_leads() {
        let fixture = BootstrapFixture::new();
        let two = "
apiVersion: v1
kind: Config
clusters:
- {name: cluster-a, cluster: {server: 'https://cluster-a.com', certificate-authority: ca-a.crt}}
- {name: cluster-b, cluster: {server: 'https://cluster-b.com', certificate-authority-data: VGVzdA==}}
contexts:
- {name: context-a, context: {cluster: cluster-a, namespace: ns-a, user: user-a}}
- {name: context-b, context: {cluster: cluster-b, namespace: ns-b, user: user-b}}
current-context: context-b
users:
- {name: user-a, user: {token: mytoken-a}}
- {name: user-b, user: {token: mytoken-b}}
";
        fs::write(fixture.path("bootstrap"), two).unwrap();
        let (_, text) = fixture.prepare().unwrap();
        assert!(
            text.contains("https://cluster-b.com") && text.contains("VGVzdA=="),
            "{text}"
        );
        assert!(
            !text.contains("cluster-a") && !text.contains("mytoken"),
            "{text}"
        );
    }

    /// Upstream's TestLoadClientConfig: with one that is valid.
    #[test]
    fn a_kubeconfig_with_a_good_certificate_stays() {
        let fixture = BootstrapFixture::new();
        fixture.prepare().unwrap();
        let (certificate, key) = signed();
        fs::write(fixture.path("current.pem"), certificate + &key).unwrap();
        let mark = fixture.path("kubeconfig");
        let before = fs::metadata(&mark).unwrap().modified().unwrap();
        assert_eq!(fixture.prepare().unwrap().0, BootstrapOutcome::Kept);
        assert_eq!(fs::metadata(&mark).unwrap().modified().unwrap(), before);
    }

    /// Upstream's TestLoadClientConfig: with one that has expired.
    #[test]
    fn a_kubeconfig_whose_certificate_is_over_is_written_anew() {
        let fixture = BootstrapFixture::new();
        let (certificate, key) = signed_until(kernel::wall() - std::time::Duration::from_secs(9));
        fs::write(fixture.path("old.pem"), certificate + &key).unwrap();
        let old = fixture.path("old.pem").display().to_string();
        let before = BOOTSTRAP.replace(
            "token: abcdef.0123456789abcdef",
            &format!("client-certificate: {old}, client-key: {old}"),
        );
        fs::write(fixture.path("kubeconfig"), before).unwrap();
        let (prepared, text) = fixture.prepare().unwrap();
        assert!(prepared == BootstrapOutcome::Written && text.contains("current.pem"));
    }

    #[test]
    fn a_bad_bootstrap_file_is_named_and_nothing_is_written() {
        let fixture = BootstrapFixture::new();
        fs::write(fixture.path("bootstrap"), "clusters: 7").unwrap();
        let error = fixture.prepare().unwrap_err();
        assert!(error.to_string().contains("bootstrap"), "{error}");
        assert!(!fixture.path("kubeconfig").exists());
    }
}
