//! A connection's bytes, whatever they go through.

use std::io;
use std::time::Duration;

use http_proxy::BoxedStream;
use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Upstream's HTTP2_READ_IDLE_TIMEOUT_SECONDS.
pub(super) const PING_AFTER: Duration = Duration::from_secs(30);
/// Upstream's HTTP2_PING_TIMEOUT_SECONDS.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Connects by TCP. The kernel notices a peer that is gone.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<BoxedStream> {
    let stream = TcpStream::connect((host, port)).await?;
    if let Err(error) = keep_alive(&stream) {
        tracing::debug!("connection to {host}, port {port}, without keep-alive: {error}");
    }
    Ok(Box::new(stream))
}

fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PING_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PING_TIMEOUT)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}
