//! Who asks, and whether he may; the TLS of the server.

use std::sync::Arc;

use http::HeaderMap;
use rustls::{ServerConfig, pki_types::CertificateDer};

use crate::{
    answer::Failure,
    call::{Call, User},
    options::Options,
    state::State,
};

#[derive(Debug)]
pub(crate) struct Auth {}

/// What is known of a connection's other end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
}

impl Auth {
    pub(crate) fn new(_options: &Options) -> anyhow::Result<Auth> {
        Ok(Auth {})
    }

    /// Returns the TLS of the server; none is plain HTTP. It offers h2 and http/1.1.
    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        None
    }
}

pub(crate) fn user(_state: &State, _peer: &Peer, _headers: &HeaderMap) -> Result<User, Failure> {
    Ok(User::default())
}

pub(crate) fn permit(_state: &State, _call: &Call) -> Result<(), Failure> {
    Ok(())
}
