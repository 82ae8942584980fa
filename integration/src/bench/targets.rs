//! The servers that are probed: a port each, which records when a probe connects. Independent of the agent's metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longer than any probe that only connects.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// The ports that the probes of one pod connect to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbePorts {
    pub(super) http: u16,
    pub(super) tcp: u16,
}

/// The ports of many pods; they are closed when this is dropped.
#[derive(Debug)]
pub(super) struct ProbeTargets {
    pods: Vec<ProbePorts>,
    visits: Arc<ProbeHits>,
    _listeners: JoinSet<()>,
}

impl ProbeTargets {
    /// Listens for the probes of so many pods.
    pub(super) async fn listen(pods: usize) -> Result<Self> {
        let visits = Arc::new(ProbeHits::new(pods * 2));
        let mut listeners = JoinSet::new();
        let mut ports = Vec::new();
        for nth in 0..pods * 2 {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            ports.push(listener.local_addr()?.port());
            let visits = visits.clone();
            listeners.spawn(async move {
                while let Ok((visitor, _)) = listener.accept().await {
                    visits.note(nth, Instant::now());
                    tokio::spawn(tokio::time::timeout(RESPONSE_TIMEOUT, answer(visitor)));
                }
            });
        }
        let pair = |pair: &[u16]| ProbePorts {
            http: pair[0],
            tcp: pair[1],
        };
        Ok(Self {
            pods: ports.chunks_exact(2).map(pair).collect(),
            visits,
            _listeners: listeners,
        })
    }

    pub(super) fn pods(&self) -> &[ProbePorts] {
        &self.pods
    }

    /// Whether every probe has come at least once.
    pub(super) fn all_visited(&self) -> bool {
        self.visits.lock().iter().all(|visit| visit.last.is_some())
    }

    /// Counts gaps from now on.
    pub(super) fn begin(&self) {
        let mut visits = self.visits.lock();
        visits
            .iter_mut()
            .for_each(|visit| visit.longest = Duration::ZERO);
    }

    /// Returns the longest time that any port was without a visit; one that does not end counts up to now.
    pub(super) fn longest_gap(&self) -> Duration {
        let now = Instant::now();
        let visits = self.visits.lock();
        let gaps = visits.iter().map(|visit| visit.longest_until(now));
        gaps.max().unwrap_or_default()
    }
}

/// When each port had its visits.
#[derive(Debug)]
struct ProbeHits(Mutex<Vec<ProbeHit>>);

#[derive(Clone, Copy, Debug, Default)]
struct ProbeHit {
    last: Option<Instant>,
    longest: Duration,
}

impl ProbeHits {
    fn new(ports: usize) -> Self {
        Self(Mutex::new(vec![ProbeHit::default(); ports]))
    }

    fn note(&self, port: usize, now: Instant) {
        if let Some(visit) = self.lock().get_mut(port) {
            visit.longest = visit.longest_until(now);
            visit.last = Some(now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ProbeHit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProbeHit {
    fn longest_until(&self, now: Instant) -> Duration {
        let open = self.last.map(|last| now.saturating_duration_since(last));
        self.longest.max(open.unwrap_or_default())
    }
}

/// Answers a request; a TCP probe is done once it is connected.
async fn answer(mut visitor: TcpStream) {
    let mut request = [0; 2048];
    if visitor.read(&mut request).await.is_ok_and(|read| read > 0) {
        // A client that does not wait for the answer does not want it.
        drop(visitor.write_all(ANSWER).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    #[tokio::test(start_paused = true)]
    async fn the_longest_gap_is_told_even_if_it_has_not_ended() {
        let targets = ProbeTargets::listen(1).await.unwrap();
        let second = |n| Duration::from_secs(n);
        let note = |port| targets.visits.note(port, Instant::now());
        note(0);
        note(1);
        assert!(targets.all_visited());
        tokio::time::advance(second(5)).await;
        note(0);
        note(1);
        targets.begin();
        for _ in 0..3 {
            tokio::time::advance(second(1)).await;
            note(0);
            note(1);
        }
        assert_eq!(targets.longest_gap(), second(1));
        tokio::time::advance(second(1)).await;
        note(0);
        tokio::time::advance(second(1)).await;
        assert_eq!(targets.longest_gap(), second(2));
    }

    #[tokio::test]
    async fn a_request_is_answered_and_noted_by_its_port_alone() {
        let targets = ProbeTargets::listen(1).await.unwrap();
        let ProbePorts { http, tcp } = targets.pods()[0];
        assert_eq!(http::get(http, "/").await.unwrap().status, 200);
        assert!(!targets.all_visited());
        drop(TcpStream::connect(("127.0.0.1", tcp)).await.unwrap());
        let noted = crate::wait_until(second(5), "both are noted", async || targets.all_visited());
        noted.await.unwrap();
    }

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }
}
