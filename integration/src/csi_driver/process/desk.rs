//! Where every call passes: noted, struck by its fault, one after the other for a volume.

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
use super::said::Said;
use crate::csi_driver::Options;
use crate::csi_driver::faults::{self, Act, Fault, When};
use crate::csi_driver::journal::{self, Complaint, Line};

/// How long a call that seems to come beside another may wait for that other's end: the news that its caller gave it
/// up, or died, is under way.
const NEWS_TRAVELS: Duration = Duration::from_millis(300);

/// All of the driver's calls.
pub(super) struct Desk {
    pub(super) options: Options,
    lanes: Mutex<BTreeMap<String, Lane>>,
    number: AtomicU64,
}

/// The calls about one volume.
#[derive(Default)]
struct Lane {
    lock: Arc<tokio::sync::Mutex<()>>,
    last: Option<Arc<Flight>>,
}

/// A call that is under way, or was.
struct Flight {
    call: &'static str,
    caller: Option<i32>,
    stands: watch::Sender<Stands>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    UnderWay,
    GivenUp,
    Answered,
}

/// A call's turn; dropped unfinished, its caller has given up.
struct Turn {
    flight: Arc<Flight>,
    lock: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.flight.stands.send_if_modified(|stands| {
            let open = *stands == Stands::UnderWay;
            if open {
                *stands = Stands::GivenUp;
            }
            open
        });
    }
}

/// What the work of one call needs to know.
pub(super) struct Bench {
    pub(super) options: Options,
    call: &'static str,
    volume: String,
    between: bool,
}

/// Why the driver refuses, and whether its caller is to blame.
pub(super) struct Wrong {
    pub(super) code: Code,
    pub(super) text: String,
}

impl Wrong {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }
}

impl Bench {
    /// Refuses, and complains of the caller.
    pub(super) fn refuse(&self, wrong: Wrong) -> Status {
        self.complain(&wrong.text);
        Status::new(wrong.code, wrong.text)
    }

    /// Notes what the caller, or somebody else on the node, did wrong.
    pub(super) fn complain(&self, text: &str) {
        complain(&self.options, self.call, &self.volume, text);
    }

    /// Where everything is done and nothing written down.
    pub(super) fn between(&self) {
        if self.between {
            crash();
        }
    }
}

fn complain(options: &Options, call: &str, volume: &str, text: &str) {
    let complaint = Complaint {
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

/// What is answered for the driver's own failure.
pub(super) fn failed(error: anyhow::Error) -> Status {
    Status::internal(format!("{error:#}"))
}

impl Desk {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            lanes: Mutex::default(),
            number: AtomicU64::new(0),
        }
    }

    /// Carries out a call that may be made beside others.
    pub(super) async fn read<R, A>(
        &self,
        request: Request<R>,
        work: impl FnOnce(&Bench, R) -> Result<A, Status> + Send + 'static,
    ) -> Result<Response<A>, Status>
    where
        R: Said + Send + 'static,
        A: Send + 'static,
    {
        let request = request.into_inner();
        let mut note = Note::begin(self, &request);
        let answer = self.carry_out(request, None, work).await;
        note.end(&answer);
        answer.map(Response::new)
    }

    /// Carries out a call that changes its volume: one at a time.
    pub(super) async fn write<R, A>(
        &self,
        request: Request<R>,
        work: impl FnOnce(&Bench, R) -> Result<A, Status> + Send + 'static,
    ) -> Result<Response<A>, Status>
    where
        R: Said + Send + 'static,
        A: Send + 'static,
    {
        let connection = request.extensions().get::<UdsConnectInfo>();
        let caller = connection.and_then(|info| info.peer_cred?.pid());
        let request = request.into_inner();
        let mut note = Note::begin(self, &request);
        let turn = self.turn(R::NAME, request.volume(), caller).await;
        let answer = match turn {
            Ok(turn) => self.carry_out(request, Some(turn), work).await,
            Err(status) => Err(status),
        };
        note.end(&answer);
        answer.map(Response::new)
    }

    async fn carry_out<R, A>(
        &self,
        request: R,
        mut turn: Option<Turn>,
        work: impl FnOnce(&Bench, R) -> Result<A, Status> + Send + 'static,
    ) -> Result<A, Status>
    where
        R: Said + Send + 'static,
        A: Send + 'static,
    {
        let volume = request.volume().to_owned();
        let fault = faults::take(&self.options.dir, R::NAME, &volume).map_err(failed)?;
        strike(fault.as_ref(), When::Before).await?;
        let bench = Bench {
            options: self.options.clone(),
            call: R::NAME,
            volume,
            between: fault
                .as_ref()
                .is_some_and(|fault| fault.when == When::Between),
        };
        // Whoever asked may be gone: the volume is free again only when the work has ended.
        let lock = turn.as_mut().and_then(|turn| turn.lock.take());
        let worked = tokio::task::spawn_blocking(move || {
            let answer = work(&bench, request);
            drop(lock);
            answer
        });
        let answer = worked.await.map_err(|error| failed(error.into()))?;
        strike(fault.as_ref(), When::After).await?;
        if let Some(turn) = turn {
            turn.flight.stands.send_replace(Stands::Answered);
        }
        answer
    }

    /// Waits for the volume; complains of a caller who does not.
    async fn turn(
        &self,
        call: &'static str,
        volume: &str,
        caller: Option<i32>,
    ) -> Result<Turn, Status> {
        let flight = Arc::new(Flight {
            call,
            caller,
            stands: watch::Sender::new(Stands::UnderWay),
        });
        let (before, lock) = {
            let mut lanes = self.lanes.lock().expect("nobody panics with it");
            let lane = lanes.entry(volume.to_owned()).or_default();
            (lane.last.replace(flight.clone()), lane.lock.clone())
        };
        let mut turn = Turn { flight, lock: None };
        if let Some(before) = before
            && before.is_beside().await
        {
            let text = format!("{call} beside {} of the same volume", before.call);
            complain(&self.options, call, volume, &text);
            return Err(Status::aborted(text));
        }
        turn.lock = Some(lock.lock_owned().await);
        Ok(turn)
    }
}

impl Flight {
    /// Whether its caller still waited for it when the next call came.
    async fn is_beside(&self) -> bool {
        let mut stands = self.stands.subscribe();
        if *stands.borrow() != Stands::UnderWay {
            return false;
        }
        let ended = stands.wait_for(|stands| *stands != Stands::UnderWay);
        let how = tokio::time::timeout(NEWS_TRAVELS, ended).await;
        let given_up = matches!(how, Ok(Ok(stands)) if *stands == Stands::GivenUp);
        !given_up && self.caller.is_none_or(lives)
    }
}

fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

async fn strike(fault: Option<&Fault>, now: When) -> Result<(), Status> {
    let Some(fault) = fault.filter(|fault| fault.when == now) else {
        return Ok(());
    };
    match &fault.act {
        Act::Crash => crash(),
        Act::Hang => std::future::pending().await,
        Act::Delay(milliseconds) => {
            tokio::time::sleep(Duration::from_millis(*milliseconds)).await;
            Ok(())
        }
        Act::Error { code, message } => Err(Status::new(Code::from(*code), message)),
        Act::Garbage => Err(broken::status(broken::Kind::Garbage)),
        Act::Noise => Err(broken::status(broken::Kind::Noise)),
    }
}

/// A call's lines in the journal; dropped without an end, its caller has given up.
struct Note<'a> {
    desk: &'a Desk,
    call: &'static str,
    number: u64,
    ended: bool,
}

impl<'a> Note<'a> {
    fn begin<R: Said>(desk: &'a Desk, request: &R) -> Self {
        let note = Note {
            desk,
            call: R::NAME,
            number: desk.number.fetch_add(1, Ordering::Relaxed),
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
        let line = Line {
            process: std::process::id(),
            number: self.number,
            call: self.call.to_owned(),
            request,
            answer,
        };
        if let Err(error) = journal::write(&self.desk.options.dir, &line) {
            eprintln!("csi-driver: {line:?} not noted: {error:#}");
        }
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.write(None, Some("given up by the caller".to_owned()));
        }
    }
}
