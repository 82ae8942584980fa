//! Who looks below the registration folder: at once when inotify says so, and every so often.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use inotify::{EventStream, Inotify, Watches};
use mounts::bench::Bench;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Board, introduce, sockets};

/// What inotify should have reported is found after that long; without inotify it is the only way.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_EVERY_ALONE: Duration = Duration::from_secs(1);
/// Between two looks: a folder that changes all the time costs a look so often.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// How long those found first are waited for before it is said that all is told.
const SETTLE_WITHIN: Duration = Duration::from_secs(2);
const INOTIFY_BUFFER: usize = 16 * 1024;

/// Who looks.
pub(super) struct Lookout {
    folder: PathBuf,
    bench: Bench,
    board: Arc<Board>,
    watches: Option<Watches>,
    /// What was complained of last: once is enough.
    trouble: Option<String>,
}

impl Lookout {
    pub(super) fn new(folder: PathBuf, bench: Bench, board: Arc<Board>) -> Self {
        Self {
            folder,
            bench,
            board,
            watches: None,
            trouble: None,
        }
    }

    /// Looks until `end` says otherwise.
    pub(super) async fn run(mut self, mut end: watch::Receiver<()>) {
        let mut reports = self.reports();
        let settle = Instant::now() + SETTLE_WITHIN;
        loop {
            self.look().await;
            let now = Instant::now();
            if now >= settle {
                self.board.change(|table| ((), table.settle()));
            }
            let every = if reports.is_some() {
                LOOK_EVERY
            } else {
                LOOK_EVERY_ALONE
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
            // Nothing is lost when another arm wins: a look finds everything, whoever asked for it.
            tokio::select! {
                _ = end.changed() => return,
                () = sleep_until(next) => {}
                () = reported(&mut reports) => {}
                () = self.board.again.notified() => {}
            }
            sleep(LOOK_PAUSE).await;
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

    async fn look(&mut self) {
        let (folder, mut watches) = (self.folder.clone(), self.watches.clone());
        let what = format!("looking for drivers below {}", folder.display());
        let looked = self.bench.run(&what, LOOK_WITHIN, move || {
            sockets::look(&folder, watches.as_mut()).map_err(|error| {
                mounts::answer::failed(format!("cannot look below {}", folder.display()), error)
            })
        });
        let looked = match looked.await {
            Ok(looked) => looked,
            Err(status) => return self.complain(Some(status.message().to_owned())),
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

    fn complain(&mut self, trouble: Option<String>) {
        if let Some(why) = trouble.as_ref().filter(|_| self.trouble != trouble) {
            tracing::warn!("{why}");
        }
        self.trouble = trouble;
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
