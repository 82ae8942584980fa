//! Queues by key: jobs of one key run in order, one at a time; jobs of different keys run at the same time.

use std::collections::{BTreeMap, VecDeque};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};

/// Jobs `J` by key, and the results `T` of those that run.
pub(crate) struct KeyedQueues<J, T> {
    /// A key is here while one of its jobs runs.
    waiting: BTreeMap<String, VecDeque<J>>,
    running: FuturesUnordered<BoxFuture<'static, (String, T)>>,
    jobs: usize,
}

impl<J, T: Send + 'static> KeyedQueues<J, T> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            running: FuturesUnordered::new(),
            jobs: 0,
        }
    }

    /// Returns how many jobs are waiting or running.
    pub(crate) fn len(&self) -> usize {
        self.jobs
    }

    /// Queues a job; returns it if its key is free, to be [`run`](Self::run) now.
    pub(crate) fn push(&mut self, lane: &str, job: J) -> Option<J> {
        self.jobs += 1;
        if let Some(queue) = self.waiting.get_mut(lane) {
            queue.push_back(job);
            return None;
        }
        self.waiting.insert(lane.to_owned(), VecDeque::new());
        Some(job)
    }

    /// Starts the work of a job that [`push`](Self::push) or [`done`](Self::done) gave back.
    pub(crate) fn run(&mut self, lane: String, work: impl Future<Output = T> + Send + 'static) {
        self.running
            .push(Box::pin(async move { (lane, work.await) }));
    }

    /// Waits for the next result; for ever if nothing runs. Cancel-safe: a result is taken or left.
    pub(crate) async fn finished(&mut self) -> (String, T) {
        match self.running.next().await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }

    /// Ends a job; returns the next one of its key.
    pub(crate) fn done(&mut self, lane: &str) -> Option<J> {
        self.jobs -= 1;
        let next = self.waiting.get_mut(lane).and_then(VecDeque::pop_front);
        if next.is_none() {
            self.waiting.remove(lane);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_lane_keeps_its_order_and_does_not_hold_up_another() {
        let mut lanes: KeyedQueues<&str, &str> = KeyedQueues::new();
        let (release, held) = oneshot::channel::<()>();
        assert_eq!(lanes.push("slow", "first"), Some("first"));
        lanes.run("slow".to_owned(), async {
            held.await.unwrap();
            "first"
        });
        assert_eq!(lanes.push("slow", "second"), None);
        assert_eq!(lanes.push("quick", "only"), Some("only"));
        lanes.run("quick".to_owned(), async { "only" });
        assert_eq!(lanes.len(), 3);

        assert_eq!(lanes.finished().await, ("quick".to_owned(), "only"));
        assert_eq!(lanes.done("quick"), None);
        release.send(()).unwrap();
        assert_eq!(lanes.finished().await, ("slow".to_owned(), "first"));
        assert_eq!(lanes.done("slow"), Some("second"));
        lanes.run("slow".to_owned(), async { "second" });
        assert_eq!(lanes.finished().await.1, "second");
        assert_eq!(lanes.done("slow"), None);
        assert_eq!(lanes.len(), 0);
    }
}
