//! A server of plain HTTP, and the message and the snapshot that all servers share.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use kernel::{Actor, Context, Exit};
use serde::Serialize;

use crate::http::{Limits, RequestHandler, Traffic, serve};
use crate::listen;

/// A server's own accept loop is the only sender.
pub const MAILBOX: usize = 16;

/// Messages of a server.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Fails the actor: the listener accepts no more connections.
    Deaf(AcceptError),
}

/// Why a server stopped accepting connections.
#[derive(Debug, thiserror::Error)]
#[error("{address} accepts no connections any more")]
pub struct AcceptError {
    /// Where the listener was.
    pub address: String,
    pub source: io::Error,
}

/// Snapshot: where the server listens and how busy it is.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub address: String,
    /// Open now.
    pub connections: usize,
    /// Since the start.
    pub requests: u64,
}

impl Snapshot {
    pub fn new(address: String, traffic: &Traffic) -> Self {
        Snapshot {
            address,
            connections: traffic.connections(),
            requests: traffic.requests(),
        }
    }
}

/// Connections of a client that only reads now and then.
const LIMITS: Limits = Limits {
    connections: 64,
    life: Some(Duration::from_secs(300)),
};

/// A server of plain HTTP on a TCP port: the read-only port and the health checks.
///
/// - **Owns** its listener.
/// - **Hears** nothing but its own accept loop.
/// - **Tells** no actor; what it answers, its handler knows.
#[derive(Debug)]
pub struct HttpServer<H> {
    address: SocketAddr,
    handler: Rc<H>,
    traffic: Rc<Traffic>,
}

impl<H: RequestHandler> HttpServer<H> {
    pub fn new(address: SocketAddr, handler: H) -> Self {
        HttpServer {
            address,
            handler: Rc::new(handler),
            traffic: Rc::default(),
        }
    }
}

impl<H: RequestHandler> Actor for HttpServer<H> {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let listener = listen::tcp(self.address).await?;
        self.address = listener.local_addr().unwrap_or(self.address);
        let (handler, traffic) = (Rc::clone(&self.handler), Rc::clone(&self.traffic));
        let address = self.address.to_string();
        ctx.run(async move {
            let source = serve(listener, handler, traffic, LIMITS).await;
            Msg::Deaf(AcceptError { address, source })
        });
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Deaf(deaf) => Err(deaf.into()),
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.address.to_string(), &self.traffic)
    }
}
