//! Limits on a listener's connections: of all, of those of which no request was permitted yet, and of these by source.
//!
//! At a limit another connection is closed, never the new one refused: whoever opens connections without requests, or without
//! permission, keeps nobody else out. Connections of which a request was permitted are closed while they are idle alone.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// The bits of an IPv6 address that name a network: whoever has one address of it has all.
const NETWORK: u128 = !0 << 64;

/// Whom a connection is counted against: an address, or a network of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Source {
        Source(match address.to_canonical() {
            IpAddr::V6(own) => Ipv6Addr::from_bits(own.to_bits() & NETWORK).into(),
            own @ IpAddr::V4(_) => own,
        })
    }
}

/// A connection: how many requests of it are being answered, since when none is, and how the last were decided.
#[derive(Debug)]
pub(crate) struct TrackedConnection {
    source: Option<Source>,
    /// A request of it was permitted.
    permitted: AtomicBool,
    refused: AtomicBool,
    answering: AtomicUsize,
    since: Mutex<Instant>,
    freed: Arc<Notify>,
}

/// A request that is being answered, until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<TrackedConnection>);

impl TrackedConnection {
    /// Takes note of a request.
    pub(crate) fn begin(self: &Arc<Self>) -> RequestGuard {
        self.answering.fetch_add(1, Ordering::Relaxed);
        RequestGuard(Arc::clone(self))
    }

    /// Takes note of a permitted request: from now on the connection is not closed while it is busy.
    pub(crate) fn permit(&self) {
        self.permitted.store(true, Ordering::Relaxed);
    }

    /// Takes note of a refused request.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether its requests were refused and none was permitted: it is to be closed.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) && !self.is_permitted()
    }

    fn is_permitted(&self) -> bool {
        self.permitted.load(Ordering::Relaxed)
    }

    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.answering.load(Ordering::Relaxed) == 0;
        is_idle.then(|| *self.since.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let guest = &self.0;
        *guest.since.lock().unwrap_or_else(PoisonError::into_inner) = kernel::now();
        guest.answering.fetch_sub(1, Ordering::Relaxed);
        guest.freed.notify_one();
    }
}

/// How many connections a listener has at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Connections at a time, each with up to a head of 64 KiB and its TLS buffers.
    pub(crate) all: usize,
    /// Of these, connections without a permitted request.
    pub(crate) unknown: usize,
    /// Of these, connections of one source.
    pub(crate) unknown_of_source: usize,
}

impl ConnectionLimits {
    /// The limits of a port that permits every request.
    pub(crate) fn of_open_port(all: usize) -> ConnectionLimits {
        ConnectionLimits {
            all,
            unknown: all,
            unknown_of_source: all.div_ceil(2),
        }
    }
}

/// All connections of a listener, up to its limits.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    limits: ConnectionLimits,
    /// In the order in which they came.
    all: Vec<(AbortHandle, Arc<TrackedConnection>)>,
    freed: Arc<Notify>,
}

impl ConnectionLimiter {
    pub(crate) fn new(limits: ConnectionLimits) -> ConnectionLimiter {
        ConnectionLimiter {
            limits,
            all: Vec::new(),
            freed: Arc::default(),
        }
    }

    /// Whether another connection may come: the limit is not reached, or one of them can make room.
    pub(crate) fn has_room(&mut self) -> bool {
        self.all.retain(|(task, _)| !task.is_finished());
        let mut guests = self.all.iter();
        self.all.len() < self.limits.all
            || guests.any(|(_, guest)| !guest.is_permitted() || guest.idle_since().is_some())
    }

    /// Ends when a connection may have become idle.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Returns a new connection; at a limit it replaces another one.
    pub(crate) fn welcome(&mut self, from: Option<IpAddr>) -> Arc<TrackedConnection> {
        let source = from.map(Source::from);
        if let Some(at) = self.crowded_out(source) {
            // The order of the others stays.
            self.all.remove(at).0.abort();
        }
        Arc::new(TrackedConnection {
            source,
            permitted: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            answering: AtomicUsize::new(0),
            since: Mutex::new(kernel::now()),
            freed: Arc::clone(&self.freed),
        })
    }

    pub(crate) fn seat(&mut self, guest: Arc<TrackedConnection>, task: AbortHandle) {
        self.all.push((task, guest));
    }

    /// Which connection makes room for one of this source; none where there is room.
    fn crowded_out(&self, source: Option<Source>) -> Option<usize> {
        let of_source = |one: Option<Source>| {
            let mut own = self.unknown().filter(move |(_, guest)| guest.source == one);
            own.next().map(|(at, _)| at)
        };
        let mut crowds: BTreeMap<Option<Source>, usize> = BTreeMap::new();
        for (_, guest) in self.unknown() {
            *crowds.entry(guest.source).or_default() += 1;
        }
        let own = crowds.get(&source).copied().unwrap_or_default();
        if source.is_some() && own >= self.limits.unknown_of_source {
            return of_source(source);
        }
        if crowds.values().sum::<usize>() >= self.limits.unknown {
            let largest = crowds.iter().max_by_key(|(_, count)| **count);
            return largest.and_then(|(source, _)| of_source(*source));
        }
        if self.all.len() < self.limits.all {
            return None;
        }
        let all = self.all.iter().enumerate();
        let idle = all.filter_map(|(at, (_, guest))| Some((guest.idle_since()?, at)));
        let longest = idle.min().map(|(_, at)| at);
        longest.or_else(|| self.unknown().next().map(|(at, _)| at))
    }

    /// Connections without a permitted request, the oldest first.
    fn unknown(&self) -> impl Iterator<Item = (usize, &TrackedConnection)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(at, (_, guest))| (!guest.is_permitted()).then_some((at, &**guest)))
    }
}

#[cfg(test)]
mod tests {
    use kernel::testing::run_paused;

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        all: 8,
        unknown: 4,
        unknown_of_source: 2,
    };

    struct TestConnection {
        task: tokio::task::JoinHandle<()>,
        connection: Arc<TrackedConnection>,
        _busy: RequestGuard,
    }

    impl TestConnection {
        /// Whether it was closed.
        async fn is_gone(&self) -> bool {
            tokio::task::yield_now().await;
            self.task.is_finished()
        }
    }

    /// A connection that a request keeps busy.
    fn come(limiter: &mut ConnectionLimiter, from: &str) -> TestConnection {
        assert!(limiter.has_room());
        let connection = limiter.welcome(Some(from.parse().unwrap()));
        let task = tokio::task::spawn_local(std::future::pending());
        limiter.seat(Arc::clone(&connection), task.abort_handle());
        TestConnection {
            task,
            _busy: connection.begin(),
            connection,
        }
    }

    #[test]
    fn an_address_pushes_out_its_own_connections_only() {
        run_paused(|| async {
            let mut limiter = ConnectionLimiter::new(LIMITS);
            let other = come(&mut limiter, "192.0.2.1");
            let all: Vec<TestConnection> =
                (0..10).map(|_| come(&mut limiter, "192.0.2.2")).collect();
            for (number, guest) in all.iter().enumerate() {
                assert_eq!(guest.is_gone().await, number < 8, "{number}");
            }
            assert!(!other.is_gone().await);
        });
    }

    #[test]
    fn a_network_of_ipv6_is_one_source_and_an_address_of_ipv4_is_one_however_it_is_written() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("::ffff:192.0.2.1"), source("::ffff:192.0.2.2"));
    }

    #[test]
    fn the_largest_crowd_makes_room_for_a_newcomer() {
        run_paused(|| async {
            let mut limiter = ConnectionLimiter::new(LIMITS);
            let early = come(&mut limiter, "192.0.2.1");
            let crowd = [
                come(&mut limiter, "192.0.2.2"),
                come(&mut limiter, "192.0.2.2"),
            ];
            let late = come(&mut limiter, "192.0.2.3");
            let newcomer = come(&mut limiter, "192.0.2.4");
            assert!(crowd[0].is_gone().await && !crowd[1].is_gone().await);
            assert!(!early.is_gone().await && !late.is_gone().await && !newcomer.is_gone().await);
        });
    }

    #[test]
    fn a_permitted_connection_is_closed_while_it_is_idle_alone() {
        run_paused(|| async {
            let mut limiter = ConnectionLimiter::new(LIMITS);
            let permitted: Vec<TestConnection> = (0..8)
                .map(|_| {
                    let guest = come(&mut limiter, "192.0.2.1");
                    guest.connection.permit();
                    guest
                })
                .collect();
            assert!(!limiter.has_room());
            let mut permitted = permitted.into_iter();
            let TestConnection { task, _busy, .. } = permitted.next().unwrap();
            drop(_busy);
            let _unknown = come(&mut limiter, "192.0.2.2");
            tokio::task::yield_now().await;
            assert!(task.is_finished());
            for guest in permitted {
                assert!(!guest.is_gone().await);
            }
        });
    }
}
