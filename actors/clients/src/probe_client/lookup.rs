//! Look-ups of host names, on threads of their own.
//!
//! A look-up lasts for as long as the system's resolver takes, even after its attempt has timed out: with a dead DNS server
//! half a minute. In the pool for blocking work it would hold up files, logs, checkpoints and plugins.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::{Semaphore, oneshot};

/// Look-ups of the process at a time, each with a thread.
const MAX_LOOKUPS: usize = 32;
/// Bytes of the stack of such a thread: the C library's resolver needs some ten thousand.
const STACK: usize = 256 * 1024;

/// The addresses of a name, or why there are none, in the words of Go.
pub(super) type LookupResult = Result<Vec<IpAddr>, String>;
type SharedLookup = Shared<oneshot::Receiver<LookupResult>>;

/// Those of the whole process.
static LOOKUPS: LazyLock<Lookups> = LazyLock::new(|| Lookups::new(resolve));

/// Looks the name up; the look-up goes on when the caller leaves.
pub(super) async fn lookup(host: &str) -> LookupResult {
    LOOKUPS.lookup(host).await
}

fn resolve(host: &str) -> LookupResult {
    let found = (host, 0).to_socket_addrs();
    let found = found.map_err(|error| super::go_error_text(&error))?;
    let addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    match addresses.is_empty() {
        true => Err("no such host".to_owned()),
        false => Ok(addresses),
    }
}

/// Look-ups under way: one a name, so that a hundred pods that name one dead host cost one thread.
struct Lookups {
    resolve: fn(&str) -> LookupResult,
    threads: Arc<Semaphore>,
    under_way: Arc<Mutex<BTreeMap<String, SharedLookup>>>,
}

impl Lookups {
    fn new(resolve: fn(&str) -> LookupResult) -> Lookups {
        Lookups {
            resolve,
            threads: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            under_way: Arc::default(),
        }
    }

    async fn lookup(&self, host: &str) -> LookupResult {
        if let Some(same) = self.same(host) {
            return ended(same).await;
        }
        let room = Arc::clone(&self.threads).acquire_owned().await;
        let room = room.map_err(|closed| closed.to_string())?;
        // Another attempt may have begun it meanwhile.
        if let Some(same) = self.same(host) {
            return ended(same).await;
        }
        let (told, answer) = oneshot::channel();
        let answer = answer.shared();
        self.with(|under_way| under_way.insert(host.to_owned(), answer.clone()));
        let (resolve, name, under_way) =
            (self.resolve, host.to_owned(), Arc::clone(&self.under_way));
        let thread = std::thread::Builder::new()
            .name("lookup".to_owned())
            .stack_size(STACK);
        let spawned = thread.spawn(move || {
            let found = resolve(&name);
            locked(&under_way).remove(&name);
            // Nobody may be waiting any more.
            drop(told.send(found));
            drop(room);
        });
        if let Err(error) = spawned {
            self.with(|under_way| under_way.remove(host));
            return Err(super::go_error_text(&error));
        }
        ended(answer).await
    }

    fn same(&self, host: &str) -> Option<SharedLookup> {
        self.with(|under_way| under_way.get(host).cloned())
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<String, SharedLookup>) -> T) -> T {
        act(&mut locked(&self.under_way))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn ended(lookup: SharedLookup) -> LookupResult {
    lookup
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::Interrupted).to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, MutexGuard};
    use std::time::Duration;

    use super::*;

    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static ANSWERS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn answering() -> MutexGuard<'static, bool> {
        locked(&ANSWERS.0)
    }

    /// A DNS server that does not answer names that begin with `dead`, until it is told to.
    fn slow(host: &str) -> LookupResult {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        if host.starts_with("dead") {
            drop(ANSWERS.1.wait_while(answering(), |answers| !*answers));
            return Err("i/o timeout".to_owned());
        }
        Ok(vec![IpAddr::from([192, 0, 2, 1])])
    }

    /// A thread may begin after its caller has gone.
    async fn until_begun(count: usize) {
        let begun = async {
            while BEGUN.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        let begun = tokio::time::timeout(Duration::from_secs(10), begun);
        begun.await.unwrap();
    }

    #[tokio::test]
    async fn a_dead_server_holds_up_no_other_name_and_costs_one_thread_a_name() {
        let lookups = Lookups::new(slow);
        let soon = Duration::from_millis(10);
        for attempt in 0..100 {
            let late = tokio::time::timeout(soon, lookups.lookup("dead.example"));
            assert!(late.await.is_err(), "{attempt}");
        }
        assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
        let alive = lookups.lookup("alive.example").await;
        assert_eq!(alive, Ok(vec![IpAddr::from([192, 0, 2, 1])]));
        // As many names as there are threads, and one: it waits for room, and its caller no longer than it wants to.
        for n in 0..MAX_LOOKUPS {
            let name = format!("dead-{n}.example");
            assert!(
                tokio::time::timeout(soon, lookups.lookup(&name))
                    .await
                    .is_err()
            );
        }
        until_begun(2 + MAX_LOOKUPS - 1).await;
        assert_eq!(BEGUN.load(Ordering::SeqCst), 2 + MAX_LOOKUPS - 1);
        *answering() = true;
        ANSWERS.1.notify_all();
        assert!(lookups.lookup("alive.example").await.is_ok());
        assert_eq!(
            lookups.lookup("dead.example").await,
            Err("i/o timeout".to_owned())
        );
    }
}
