//! A running server: a thread with its own runtime, and the state that outlives it.

mod connection;
mod control;
mod direct;
pub(crate) mod faults;
pub(crate) mod options;
pub(crate) mod request_log;
mod routes;
mod simulated;
pub(crate) mod state;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context as _;
use held_port::HeldPort;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::clock::simulation;
use crate::pods::scheduler;
use crate::server::faults::ApiFault;
use crate::server::options::{AccessControl, ServerOptions};
use crate::server::request_log::RecordedRequest;
use crate::server::state::State;
use crate::{certificates, verbs};

/// A server on 127.0.0.1; it ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    pub(crate) state: Arc<State>,
    address: SocketAddr,
    /// Nobody else takes the port during an outage; `None` where the options name it.
    _port: Option<HeldPort>,
    thread: Mutex<Option<RunningServer>>,
}

#[derive(Debug)]
enum RunningServer {
    /// On a thread of its own, with its own runtime.
    Threaded {
        stop: oneshot::Sender<()>,
        thread: JoinHandle<()>,
    },
    /// On the caller's runtime: its tasks and connections, which end with the set.
    Simulated(JoinSet<()>),
}

impl Server {
    /// Starts a server; it answers when this returns.
    pub async fn start(options: ServerOptions) -> anyhow::Result<Server> {
        Server::start_now(options)
    }

    /// Starts a server from where there is no runtime.
    pub fn start_now(options: ServerOptions) -> anyhow::Result<Server> {
        let port = (options.port == 0).then(HeldPort::pick).transpose()?;
        let listener = listen(port.as_ref().map_or(options.port, HeldPort::number))?;
        let address = listener.local_addr().context("cannot learn the port")?;
        let state = State::new(options)?;
        verbs::found(&state);
        let running = run(state.clone(), listener)?;
        Ok(Server {
            state,
            address,
            _port: port,
            thread: Mutex::new(Some(running)),
        })
    }

    /// Returns where clients find it, without a slash at the end.
    pub fn url(&self) -> String {
        let scheme = if self.state.options.security == AccessControl::Plain {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends serving: the port is closed, connections are cut. What is kept stays kept, and can be changed directly.
    pub fn stop(&self) {
        let running = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(RunningServer::Threaded { stop, thread }) = running {
            stop.send(()).unwrap_or_default();
            thread.join().unwrap_or_default();
        }
    }

    /// Serves again on the same port, with all that is kept: the end of an outage.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.stop();
        let listener = listen(self.address.port())?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(run(self.state.clone(), listener)?);
        Ok(())
    }

    /// Returns the requests received so far, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.request_log().all()
    }

    /// Clears the journal of requests.
    pub fn forget_requests(&self) {
        self.state.request_log().clear();
    }

    /// Lets something go wrong with the requests that match.
    pub fn fault(&self, fault: ApiFault) {
        self.state.faults().add(fault);
    }

    /// Forgets the faults that have not happened, and lets muted watches speak.
    pub fn clear_faults(&self) {
        self.state.faults().clear();
    }

    /// Returns the faults that are still to come.
    pub fn faults(&self) -> Vec<ApiFault> {
        self.state.faults().waiting().to_vec()
    }

    /// Ends all watches that are open, as a restarted server or a proxy does.
    pub fn close_watches(&self) {
        self.state.faults().close_watches();
    }

    /// Keeps all watches open and silent, or lets them speak again.
    pub fn mute_watches(&self, muted: bool) {
        self.state.faults().mute_watches(muted);
    }

    /// Forgets what happened until now: watches and pages from older versions are answered with 410.
    pub fn expire_history(&self) {
        self.state.store().expire_history();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_simulated() {
            simulation::end();
        }
        self.stop();
    }
}

fn listen(port: u16) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("cannot listen on port {port}"))?;
    listener
        .set_nonblocking(true)
        .context("cannot listen without blocking")?;
    Ok(listener)
}

fn run(state: Arc<State>, listener: TcpListener) -> anyhow::Result<RunningServer> {
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot make a runtime")?;
    let serve = move || {
        runtime.block_on(async {
            let listener =
                tokio::net::TcpListener::from_std(listener).expect("the listener does not block");
            tokio::select! {
                () = accept(state.clone(), listener) => {}
                () = scheduler::run(state.clone()) => {}
                () = certificates::pods::run(state) => {}
                _ = stopped => {}
            }
        });
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new()
        .name("apiserver".to_string())
        .spawn(serve)
        .context("cannot start a thread")?;
    Ok(RunningServer::Threaded { stop, thread })
}

async fn accept(state: Arc<State>, listener: tokio::net::TcpListener) {
    loop {
        // An error is of one connection that went away, or of too many files: the next one may do.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        tokio::spawn(connection::serve(state.clone(), stream));
    }
}
