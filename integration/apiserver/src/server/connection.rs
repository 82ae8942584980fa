//! One connection: TLS if there is any, then HTTP/1.1 or HTTP/2, as the client wants it.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::routes::{self, RoutedRequest};
use crate::auth::ConnectionPeer;
use crate::clock::simulation;
use crate::server::state::State;

/// The start of HTTP/2 without TLS.
const PREFACE: &[u8; 4] = b"PRI ";

pub(super) async fn serve(state: Arc<State>, stream: TcpStream) {
    let number = state.next_connection();
    stream.set_nodelay(true).unwrap_or_default();
    let Some(tls) = state.auth.tls() else {
        let mut start = [0; PREFACE.len()];
        let second = matches!(stream.peek(&mut start).await, Ok(4)) && start == *PREFACE;
        return speak(
            RoutedRequest {
                state,
                peer: ConnectionPeer::default(),
                number,
            },
            stream,
            second,
        )
        .await;
    };
    let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await else {
        return;
    };
    let session = stream.get_ref().1;
    let second = session.alpn_protocol() == Some(b"h2");
    let certificates = session
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|one| one.clone().into_owned())
        .collect();
    speak(
        RoutedRequest {
            state,
            peer: ConnectionPeer { certificates },
            number,
        },
        stream,
        second,
    )
    .await;
}

/// Serves HTTP/2 in clear on one end of a pipe.
pub(super) async fn serve_pipe(state: Arc<State>, stream: DuplexStream) {
    let context = RoutedRequest {
        number: state.next_connection(),
        state,
        peer: ConnectionPeer::default(),
    };
    speak(context, stream, true).await;
}

async fn speak(
    context: RoutedRequest,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    second: bool,
) {
    let context = Arc::new(context);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        routes::answer(context.clone(), request)
    });
    // A connection that ends badly is the client's affair, or a fault that was asked for.
    if second {
        let server = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .auto_date_header(!simulation::is_on())
            .serve_connection(TokioIo::new(stream), service);
        server.await.unwrap_or_default();
    } else {
        let server = http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        server.with_upgrades().await.unwrap_or_default();
    }
}
