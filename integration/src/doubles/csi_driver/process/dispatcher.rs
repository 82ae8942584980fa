//! The dispatcher of all calls: it journals each, injects its fault, and serializes those of one volume.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use tokio::sync::{OwnedMutexGuard, watch};
use tonic::transport::server::UdsConnectInfo;
use tonic::{Code, Request, Response, Status};

use super::broken;
use super::request_json::CsiRequest;
use crate::doubles::csi_driver::DriverOptions;
use crate::doubles::csi_driver::faults::{self, DriverFault, DriverFaultAction, FaultPoint};
use crate::doubles::csi_driver::journal::{self, ContractViolation, JournalLine};

/// How long a call that seems to come beside another may wait for that other's end: the news that its caller gave it
/// up, or died, is under way.
const CANCELLATION_GRACE: Duration = Duration::from_millis(300);

/// All of the driver's calls.
pub(super) struct Dispatcher {
    pub(super) options: DriverOptions,
    volume_calls: Mutex<BTreeMap<String, VolumeCalls>>,
    number: AtomicU64,
}

/// The calls about one volume.
#[derive(Default)]
struct VolumeCalls {
    lock: Arc<tokio::sync::Mutex<()>>,
    last: Option<Arc<PendingCall>>,
}

/// A call that is under way, or was.
struct PendingCall {
    call: &'static str,
    caller: Option<i32>,
    state: watch::Sender<CallState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    UnderWay,
    GivenUp,
    Answered,
}

/// A call's permit; dropped unfinished, its caller has given up.
struct CallPermit {
    pending: Arc<PendingCall>,
    lock: Option<OwnedMutexGuard<()>>,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.pending.state.send_if_modified(|state| {
            let open = *state == CallState::UnderWay;
            if open {
                *state = CallState::GivenUp;
            }
            open
        });
    }
}

/// The context of one call's work.
pub(super) struct CallContext {
    pub(super) options: DriverOptions,
    call: &'static str,
    volume: String,
    between: bool,
}

/// Why the driver refuses, and whether its caller is to blame.
pub(super) struct ProtocolError {
    pub(super) code: Code,
    pub(super) text: String,
}

impl ProtocolError {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }
}

impl CallContext {
    /// Refuses, and complains of the caller.
    pub(super) fn refuse(&self, error: ProtocolError) -> Status {
        self.complain(&error.text);
        Status::new(error.code, error.text)
    }

    /// Journals what the caller, or another process of the node, did wrong.
    pub(super) fn complain(&self, text: &str) {
        complain(&self.options, self.call, &self.volume, text);
    }

    /// The step after a call's work, before its record is saved: crashes if a fault orders it.
    pub(super) fn between(&self) {
        if self.between {
            crash();
        }
    }
}

fn complain(options: &DriverOptions, call: &str, volume: &str, text: &str) {
    let complaint = ContractViolation {
        call: call.to_owned(),
        volume: volume.to_owned(),
        text: text.to_owned(),
    };
    if let Err(error) = journal::complain(&options.dir, &complaint) {
        eprintln!("csi-driver: {text}; not noted: {error:#}");
    }
}

fn crash() -> ! {
    // As if from outside: nothing is tidied up.
    raise(Signal::SIGKILL).ok();
    std::process::abort()
}

/// Returns the status of the driver's own failure, INTERNAL.
pub(super) fn failed(error: anyhow::Error) -> Status {
    Status::internal(format!("{error:#}"))
}

impl Dispatcher {
    pub(super) fn new(options: DriverOptions) -> Self {
        Self {
            options,
            volume_calls: Mutex::default(),
            number: AtomicU64::new(0),
        }
    }

    /// Carries out a call that may be made beside others.
    pub(super) async fn read<R, A>(
        &self,
        request: Request<R>,
        work: impl FnOnce(&CallContext, R) -> Result<A, Status> + Send + 'static,
    ) -> Result<Response<A>, Status>
    where
        R: CsiRequest + Send + 'static,
        A: Send + 'static,
    {
        let request = request.into_inner();
        let mut note = JournalGuard::begin(self, &request);
        let answer = self.carry_out(request, None, work).await;
        note.end(&answer);
        answer.map(Response::new)
    }

    /// Carries out a call that changes its volume: one at a time.
    pub(super) async fn write<R, A>(
        &self,
        request: Request<R>,
        work: impl FnOnce(&CallContext, R) -> Result<A, Status> + Send + 'static,
    ) -> Result<Response<A>, Status>
    where
        R: CsiRequest + Send + 'static,
        A: Send + 'static,
    {
        let connection = request.extensions().get::<UdsConnectInfo>();
        let caller = connection.and_then(|info| info.peer_cred?.pid());
        let request = request.into_inner();
        let mut note = JournalGuard::begin(self, &request);
        let permit = self.permit(R::NAME, request.volume(), caller).await;
        let answer = match permit {
            Ok(permit) => self.carry_out(request, Some(permit), work).await,
            Err(status) => Err(status),
        };
        note.end(&answer);
        answer.map(Response::new)
    }

    async fn carry_out<R, A>(
        &self,
        request: R,
        mut permit: Option<CallPermit>,
        work: impl FnOnce(&CallContext, R) -> Result<A, Status> + Send + 'static,
    ) -> Result<A, Status>
    where
        R: CsiRequest + Send + 'static,
        A: Send + 'static,
    {
        let volume = request.volume().to_owned();
        let fault = faults::take(&self.options.dir, R::NAME, &volume).map_err(failed)?;
        inject(fault.as_ref(), FaultPoint::Before).await?;
        let context = CallContext {
            options: self.options.clone(),
            call: R::NAME,
            volume,
            between: fault
                .as_ref()
                .is_some_and(|fault| fault.when == FaultPoint::Between),
        };
        // The caller may be gone: the volume is free again only when the work has ended.
        let lock = permit.as_mut().and_then(|permit| permit.lock.take());
        let worked = kernel::spawn_blocking(move || {
            let answer = work(&context, request);
            drop(lock);
            answer
        });
        let answer = worked.await.map_err(|error| failed(error.into()))?;
        inject(fault.as_ref(), FaultPoint::After).await?;
        if let Some(permit) = permit {
            permit.pending.state.send_replace(CallState::Answered);
        }
        answer
    }

    /// Waits for the volume; records a caller that has two calls about it at once.
    async fn permit(
        &self,
        call: &'static str,
        volume: &str,
        caller: Option<i32>,
    ) -> Result<CallPermit, Status> {
        let pending = Arc::new(PendingCall {
            call,
            caller,
            state: watch::Sender::new(CallState::UnderWay),
        });
        let (before, lock) = {
            let mut volume_calls = self.volume_calls.lock().expect("nobody panics with it");
            let volume_calls = volume_calls.entry(volume.to_owned()).or_default();
            (
                volume_calls.last.replace(pending.clone()),
                volume_calls.lock.clone(),
            )
        };
        let mut permit = CallPermit {
            pending,
            lock: None,
        };
        if let Some(before) = before
            && before.is_beside().await
        {
            let text = format!("{call} beside {} of the same volume", before.call);
            complain(&self.options, call, volume, &text);
            return Err(Status::aborted(text));
        }
        permit.lock = Some(lock.lock_owned().await);
        Ok(permit)
    }
}

impl PendingCall {
    /// Whether its caller still waited for it when the next call came.
    async fn is_beside(&self) -> bool {
        let mut state = self.state.subscribe();
        if *state.borrow() != CallState::UnderWay {
            return false;
        }
        let ended = state.wait_for(|state| *state != CallState::UnderWay);
        let how = tokio::time::timeout(CANCELLATION_GRACE, ended).await;
        let given_up = matches!(how, Ok(Ok(state)) if *state == CallState::GivenUp);
        !given_up && self.caller.is_none_or(is_alive)
    }
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

async fn inject(fault: Option<&DriverFault>, now: FaultPoint) -> Result<(), Status> {
    let Some(fault) = fault.filter(|fault| fault.when == now) else {
        return Ok(());
    };
    match &fault.act {
        DriverFaultAction::Crash => crash(),
        DriverFaultAction::Hang => std::future::pending().await,
        DriverFaultAction::Delay(milliseconds) => {
            tokio::time::sleep(Duration::from_millis(*milliseconds)).await;
            Ok(())
        }
        DriverFaultAction::Error { code, message } => Err(Status::new(Code::from(*code), message)),
        DriverFaultAction::Garbage => Err(broken::status(broken::BreakageKind::Garbage)),
        DriverFaultAction::Noise => Err(broken::status(broken::BreakageKind::Noise)),
    }
}

/// A call's lines in the journal; dropped without an end, its caller has given up.
struct JournalGuard<'a> {
    dispatcher: &'a Dispatcher,
    call: &'static str,
    number: u64,
    ended: bool,
}

impl<'a> JournalGuard<'a> {
    fn begin<R: CsiRequest>(dispatcher: &'a Dispatcher, request: &R) -> Self {
        let note = JournalGuard {
            dispatcher,
            call: R::NAME,
            number: dispatcher.number.fetch_add(1, Ordering::Relaxed),
            ended: false,
        };
        note.write(Some(request.json()), None);
        note
    }

    fn end<A>(&mut self, answer: &Result<A, Status>) {
        self.ended = true;
        let said = match answer {
            Ok(_) => "OK".to_owned(),
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        };
        self.write(None, Some(said));
    }

    fn write(&self, request: Option<serde_json::Value>, answer: Option<String>) {
        let line = JournalLine {
            process: std::process::id(),
            number: self.number,
            call: self.call.to_owned(),
            request,
            answer,
        };
        if let Err(error) = journal::write(&self.dispatcher.options.dir, &line) {
            eprintln!("csi-driver: {line:?} not noted: {error:#}");
        }
    }
}

impl Drop for JournalGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.write(None, Some("given up by the caller".to_owned()));
        }
    }
}
