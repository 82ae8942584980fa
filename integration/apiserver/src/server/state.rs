//! The state that all parts of a server share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::auth_state::AuthState;
use crate::server::faults::FaultQueue;
use crate::server::options::ServerOptions;
use crate::server::request_log::RequestLog;
use crate::store::VersionedStore;

/// One server's state. It outlives an outage: only the thread that serves it ends.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: ServerOptions,
    store: Mutex<VersionedStore>,
    faults: Mutex<FaultQueue>,
    request_log: Mutex<RequestLog>,
    pub(crate) auth: AuthState,
    /// The number of connections so far.
    connections: AtomicU64,
}

impl State {
    pub(crate) fn new(options: ServerOptions) -> anyhow::Result<Arc<State>> {
        let auth = AuthState::new(&options)?;
        let store = VersionedStore::new(options.history);
        Ok(Arc::new(State {
            options,
            store: Mutex::new(store),
            faults: Mutex::default(),
            request_log: Mutex::default(),
            auth,
            connections: AtomicU64::new(0),
        }))
    }

    /// Returns the number of a new connection, from 1 on.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, VersionedStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, FaultQueue> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn request_log(&self) -> MutexGuard<'_, RequestLog> {
        self.request_log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
