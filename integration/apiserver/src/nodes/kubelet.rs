//! The server as a client of kubelets: with the certificate of a master, and content with any certificate of theirs, as
//! API servers are by default.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::location::ProxyTarget;
use crate::NoServerVerification;
use crate::auth::CertificateWithKey;
use crate::endpoints::answer::{Body, StatusError};
use crate::endpoints::request_info::UserInfo;
use crate::server::state::State;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DAY: i64 = 24 * 3600;

/// Sends a request on a connection of its own, and returns the answer's head; the connection lives as long as its body.
pub(super) async fn ask(
    state: &State,
    place: &ProxyTarget,
    request: Request<Body>,
) -> Result<Response<Incoming>, StatusError> {
    let failed = |why: String| {
        StatusError::new(
            500,
            "InternalError",
            format!("Get \"https://{}{}\": {why}", place.host(), place.path),
        )
    };
    let config = config(state).map_err(|why| failed(format!("{why:#}")))?;
    let connecting = async {
        let stream = TcpStream::connect((place.address.as_str(), place.port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(place.address.clone()).map_err(std::io::Error::other)?;
        TlsConnector::from(config).connect(name, stream).await
    };
    let dial =
        |why: &dyn std::fmt::Display| failed(format!("dial tcp {}: connect: {why}", place.host()));
    let stream = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return Err(dial(&why)),
        Err(_) => return Err(dial(&"i/o timeout")),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|why| failed(why.to_string()))?;
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    sender
        .send_request(request)
        .await
        .map_err(|why| failed(why.to_string()))
}

fn config(state: &State) -> anyhow::Result<Arc<ClientConfig>> {
    let user = UserInfo {
        name: "kube-apiserver-kubelet-client".to_string(),
        groups: vec!["system:masters".to_string()],
        ..UserInfo::default()
    };
    let CertificateWithKey { certificate, key } = state.auth.authority.client(&user, DAY)?;
    let chain =
        CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let any = Arc::new(NoServerVerification::new(provider.clone()));
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = builder
        .dangerous()
        .with_custom_certificate_verifier(any)
        .with_client_auth_cert(chain, key)?;
    Ok(Arc::new(config))
}
