//! The life of a plugin process: its socket, its service, its end.

use std::ffi::CString;
use std::os::unix::net::UnixListener;
use std::os::unix::process::parent_id;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::base::Base;
use crate::gate::Gate;
use crate::plugin::{Info, Refusal, Setup};
use crate::start::Start;
use crate::{listen, log};

/// How long calls in flight may take after SIGTERM without a Drain before it.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last answers may take to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(50);
/// How long a plugin without any connection waits before it checks that its agent lives.
const ALONE_FOR: Duration = Duration::from_secs(10);

/// Serves a plugin until its agent is done with it; `main` returns the result.
///
/// `build` makes the service of the plugin's kind. It runs when the agent calls Configure, and what
/// it refuses becomes the answer. Everything runs on one thread.
pub fn serve<F, Fut>(info: Info, build: F) -> ExitCode
where
    F: Fn(Setup) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Routes, Refusal>> + Send + 'static,
{
    let program = info.name;
    match start_and_run(info, build) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            log::start(log::LogReader::Person);
            tracing::error!("{program}: {refusal}");
            ExitCode::from(2)
        }
    }
}

fn start_and_run<F, Fut>(info: Info, build: F) -> Result<(), Refusal>
where
    F: Fn(Setup) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Routes, Refusal>> + Send + 'static,
{
    heap::set_up();
    // For ps and pidof, which cut it off after 15 letters: a program may be several plugins.
    rustix::thread::set_name(&CString::new(info.name)?)?;
    let start = Start::read(&info)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match start {
        Start::Inherited {
            identity,
            listener,
            agent,
        } => {
            log::start(log::LogReader::Agent);
            let base = Base::new(info, identity, build);
            runtime.block_on(run(base, listener, Some(agent)))
        }
        Start::ByHand {
            identity,
            listener,
            configuration,
        } => {
            log::start(log::LogReader::Person);
            let base = Base::new(info, identity, build);
            runtime.block_on(async {
                if let Some(bytes) = configuration {
                    base.set_up(bytes)
                        .await
                        .map_err(|status| Refusal::new(status.message()))?;
                }
                run(base, listener, None).await
            })
        }
    }
}

/// Serves until the plugin has been drained or terminated, or is an orphan.
async fn run(base: Base, listener: UnixListener, agent: Option<u32>) -> Result<(), Refusal> {
    let connections = watch::Sender::new(0);
    let served = accept(base.clone(), listener, connections.clone())?;
    tokio::pin!(served);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    tokio::select! {
        result = &mut served => return Ok(result?),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = orphaned(connections.subscribe(), agent) => tracing::warn!("the agent is gone"),
        never = heap::keep_small() => match never {},
    }
    let finished = async {
        base.finish(FINISH_TIMEOUT).await;
        tokio::time::sleep(FLUSH_TIMEOUT).await;
    };
    tokio::select! {
        result = &mut served => Ok(result?),
        () = finished => Ok(()),
    }
}

/// Serves a listening socket; resolves when the plugin was drained and its last connection closed.
pub(crate) fn accept(
    base: Base,
    listener: UnixListener,
    connections: watch::Sender<usize>,
) -> Result<impl Future<Output = Result<(), tonic::transport::Error>> + Send, std::io::Error> {
    listener.set_nonblocking(true)?;
    let incoming = listen::connections(tokio::net::UnixListener::from_std(listener)?, connections);
    Ok(async move {
        let ending = base.clone();
        let gate = Gate::new(base);
        Server::builder()
            .serve_with_incoming_shutdown(gate, incoming, async move { ending.ending().await })
            .await
    })
}

/// Resolves when no client has been connected for a while and the agent is not the parent any more.
async fn orphaned(mut connections: watch::Receiver<usize>, agent: Option<u32>) {
    let Some(agent) = agent else {
        return std::future::pending().await;
    };
    loop {
        // `run` holds the sender for longer than this lives: waiting cannot fail.
        drop(connections.wait_for(|open| *open == 0).await);
        let connected = tokio::time::timeout(ALONE_FOR, connections.wait_for(|open| *open > 0))
            .await
            .is_ok();
        if !connected && parent_id() != agent {
            return;
        }
    }
}
