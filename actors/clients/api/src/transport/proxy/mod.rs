//! A proxy between the node and the API server: by a kubeconfig's `proxy-url`, or by the environment.
//!
//! Upstream: client-go's rest.Config.Proxy and clientcmd (`proxy-url`).

#[cfg(test)]
mod tests;

use std::io;

use http_proxy::{BoxedStream, Proxy, ProxyError};

use super::stream;
use super::tls::TlsContext;

/// Connects with the server behind the proxy. `tls` is for a proxy that speaks it.
pub(super) async fn connect(
    proxy: &Proxy,
    host: &str,
    port: u16,
    tls: Option<&TlsContext>,
) -> Result<BoxedStream, ProxyError> {
    let stream = reach(proxy, tls)
        .await
        .map_err(|source| proxy.unreachable(source))?;
    proxy.open(stream, host, port).await
}

async fn reach(proxy: &Proxy, tls: Option<&TlsContext>) -> io::Result<BoxedStream> {
    let stream = stream::connect(proxy.host(), proxy.port()).await?;
    Ok(match tls {
        Some(tls) => Box::new(tls.connect(stream).await?),
        None => stream,
    })
}
