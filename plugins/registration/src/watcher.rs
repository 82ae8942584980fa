//! The task that scans the registration folder: at once when inotify reports a change, and at an interval.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use inotify::{EventStream, Inotify, Watches};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{BlockingCalls, Board, PluginHandler, introduce, rpc, sockets};

/// What inotify should have reported is found after that long; without inotify it is the only way.
const SCAN_INTERVAL: Duration = Duration::from_secs(10);
const SCAN_INTERVAL_WITHOUT_INOTIFY: Duration = Duration::from_secs(1);
/// Between two looks: a folder that changes all the time costs a look so often.
const SCAN_MIN_INTERVAL: Duration = Duration::from_millis(20);
/// How long a look through the folder may take: a disk that takes longer hangs.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the sockets of the first scan are waited for before `Synced` is sent.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
const INOTIFY_BUFFER: usize = 16 * 1024;

/// The task that scans the registration folder.
pub(crate) struct Watcher<H: PluginHandler, T> {
    folder: PathBuf,
    threads: T,
    board: Arc<Board<H>>,
    watches: Option<Watches>,
    /// The last warning, which is not repeated.
    complaint: Option<String>,
}

impl<H: PluginHandler, T: BlockingCalls> Watcher<H, T> {
    pub(crate) fn new(folder: PathBuf, threads: T, board: Arc<Board<H>>) -> Self {
        Self {
            folder,
            threads,
            board,
            watches: None,
            complaint: None,
        }
    }

    /// Looks until `end` says otherwise.
    pub(crate) async fn run(mut self, mut end: watch::Receiver<()>) {
        let mut reports = self.reports();
        let settle = Instant::now() + SETTLE_TIMEOUT;
        loop {
            self.scan().await;
            let now = Instant::now();
            if now >= settle {
                self.board.change(|table| ((), table.settle()));
            }
            let every = if reports.is_some() {
                SCAN_INTERVAL
            } else {
                SCAN_INTERVAL_WITHOUT_INOTIFY
            };
            let (again, settled) = {
                let table = self.board.table();
                (table.next(), table.is_settled())
            };
            let unsettled = (!settled).then_some(settle);
            let next = [again, unsettled]
                .into_iter()
                .flatten()
                .fold(now + every, Instant::min);
            // Cancel-safe: whichever arm wins, the rescan finds every socket.
            tokio::select! {
                _ = end.changed() => return,
                () = sleep_until(next) => {}
                () = reported(&mut reports) => {}
                () = self.board.again.notified() => {}
            }
            sleep(SCAN_MIN_INTERVAL).await;
        }
    }

    fn reports(&mut self) -> Option<EventStream<Vec<u8>>> {
        let begun = Inotify::init().and_then(|inotify| {
            let watches = inotify.watches();
            Ok((inotify.into_event_stream(vec![0; INOTIFY_BUFFER])?, watches))
        });
        match begun {
            Ok((reports, watches)) => {
                self.watches = Some(watches);
                Some(reports)
            }
            Err(error) => {
                tracing::warn!(
                    "{} is looked at every so often: {error}",
                    self.folder.display()
                );
                None
            }
        }
    }

    async fn scan(&mut self) {
        let (folder, mut watches) = (self.folder.clone(), self.watches.clone());
        let what = format!("looking for {} below {}", H::NOUN, folder.display());
        let looked = self.threads.run(&what, SCAN_TIMEOUT, move || {
            sockets::scan(&folder, watches.as_mut()).map_err(|error| {
                let why = rpc::os_error_text(&error);
                format!("cannot look below {}: {why}", folder.display())
            })
        });
        let looked = match looked.await {
            Ok(looked) => looked,
            Err(why) => return self.complain(Some(why)),
        };
        let folder = self.folder.display();
        self.complain(
            looked
                .more
                .then(|| format!("{folder} holds more than is looked at")),
        );
        for ask in self
            .board
            .change(|table| table.found(Instant::now(), looked))
        {
            tokio::spawn(introduce(self.board.clone(), ask));
        }
    }

    fn complain(&mut self, complaint: Option<String>) {
        if let Some(why) = complaint.as_ref().filter(|_| self.complaint != complaint) {
            tracing::warn!("{why}");
        }
        self.complaint = complaint;
    }
}

/// Waits until something is reported, and takes all that is.
async fn reported(reports: &mut Option<EventStream<Vec<u8>>>) {
    let Some(stream) = reports else {
        return std::future::pending().await;
    };
    let mut next = Some(stream.next().await);
    while let Some(report) = next {
        if let Some(Ok(_)) = report {
            next = stream.next().now_or_never();
            continue;
        }
        let error = report.and_then(Result::err).map(|error| error.to_string());
        tracing::warn!(
            "inotify does not report any more: {}",
            error.unwrap_or_default()
        );
        *reports = None;
        return;
    }
}
