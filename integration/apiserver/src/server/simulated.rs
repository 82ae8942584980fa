//! A server on the caller's runtime, reached through pipes: no thread, no port, and nothing that is not its seed's.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

use super::{RunningServer, Server, connection};
use crate::clock::simulation;
use crate::pods::scheduler;
use crate::server::options::ServerOptions;
use crate::server::state::State;
use crate::{certificates, verbs};

/// What a pipe holds before its writer waits, in bytes.
const PIPE: usize = 64 * 1024;

impl Server {
    /// Starts a server on this thread's runtime, without TLS. Its time of day is `start` and goes along with the runtime's
    /// clock, which may be paused; ids follow from `seed`. [`connect`](Server::connect) is the only way to it.
    ///
    /// The thread can have one at a time.
    pub fn simulated(
        options: ServerOptions,
        start: Timestamp,
        seed: u64,
    ) -> anyhow::Result<Server> {
        simulation::begin(start, seed);
        let state = State::new(options)?;
        verbs::found(&state);
        let server = Server {
            state,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            _port: None,
            thread: Mutex::default(),
        };
        server.resume_simulated();
        Ok(server)
    }

    /// Connects to a simulated server: the pipe's end on which the client speaks HTTP/2.
    ///
    /// # Errors
    /// Refused during an outage, and by a server that has a port.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let mut running = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(RunningServer::Simulated(tasks)) = running.as_mut() else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let (ours, theirs) = tokio::io::duplex(PIPE);
        tasks.spawn(connection::serve_pipe(self.state.clone(), ours));
        Ok(theirs)
    }

    /// Ends the outage of a simulated server, which [`stop`](Server::stop) began.
    pub fn resume_simulated(&self) {
        let mut tasks = JoinSet::new();
        tasks.spawn(scheduler::run(self.state.clone()));
        tasks.spawn(certificates::pods::run(self.state.clone()));
        let mut running = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        *running = Some(RunningServer::Simulated(tasks));
    }

    /// A simulated server has no port.
    pub(super) fn is_simulated(&self) -> bool {
        self.address.port() == 0
    }

    /// Has `observer` hear of each request, its body, and its answer's status, as lines that begin with its number.
    pub fn observe(&self, observer: impl FnMut(String) + Send + 'static) {
        self.state.request_log().observe(Box::new(observer));
    }
}
