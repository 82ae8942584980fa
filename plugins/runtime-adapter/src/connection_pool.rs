//! Connections of calls that create, used again: a runtime keeps some memory of each connection that has started a
//! container for as long as that container lives.
//!
//! Each carries one call at a time, and there are as many as calls are in flight. The one that was used last is used
//! first, and what is not used for a while is closed, all but one.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::connection::{ConnectError, RuntimeConnection};

/// How long a connection that is not used stays open, beyond the last one.
const IDLE_PERIOD: Duration = Duration::from_secs(10);
/// The most connections that stay open without a call.
const MAX_IDLE: usize = 32;

/// The connections without a call. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionPool(Arc<Mutex<Vec<IdleConnection>>>);

#[derive(Debug)]
struct IdleConnection {
    connection: PooledConnection,
    since: Instant,
}

/// A connection that is used for one call.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    pub(crate) connection: RuntimeConnection,
    /// A copy of the socket, which is given to the keeper for each call.
    socket: OwnedFd,
    ended: JoinHandle<Result<(), hyper::Error>>,
}

impl PooledConnection {
    async fn open(socket: &Path) -> Result<PooledConnection, ConnectError> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(ConnectError::Socket)?;
        let copy = stream
            .as_fd()
            .try_clone_to_owned()
            .map_err(ConnectError::Socket)?;
        let (connection, ended) = RuntimeConnection::over(stream).await?;
        Ok(PooledConnection {
            connection,
            socket: copy,
            ended,
        })
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn is_open(&self) -> bool {
        !self.ended.is_finished() && !self.connection.is_closed()
    }
}

/// What closes it is the end of its driver, which may be waiting for a runtime that does not close its half.
impl Drop for PooledConnection {
    fn drop(&mut self) {
        self.ended.abort();
    }
}

impl ConnectionPool {
    /// Takes the connection that was used last, or opens one.
    pub(crate) async fn take(&self, socket: &Path) -> Result<PooledConnection, ConnectError> {
        loop {
            let Some(idle) = self.idle().pop() else {
                return PooledConnection::open(socket).await;
            };
            if idle.connection.is_open() {
                return Ok(idle.connection);
            }
        }
    }

    /// Gives back a connection whose call is through.
    pub(crate) fn put(&self, connection: PooledConnection) {
        if !connection.is_open() {
            return;
        }
        let mut idle = self.idle();
        if idle.len() >= MAX_IDLE {
            return;
        }
        let since = Instant::now();
        idle.push(IdleConnection { connection, since });
        // One such task for each connection beyond the first that became idle: it closes what is not used by then.
        if idle.len() > 1 {
            let pool = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(IDLE_PERIOD).await;
                pool.close_unused();
            });
        }
    }

    /// Closes what was not used for a while, but keeps the one that was used last.
    fn close_unused(&self) {
        let now = Instant::now();
        let mut idle = self.idle();
        let last = idle.pop();
        idle.retain(|idle| now - idle.since < IDLE_PERIOD);
        idle.extend(last);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A runtime that lets everyone in and says nothing; returns its socket's folder.
    fn runtime() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("runtime.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.push(stream);
            }
        });
        (dir, socket)
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_as_many_as_calls_and_one_stays() {
        let (_dir, socket) = runtime();
        let pool = ConnectionPool::default();
        for _ in 0..5 {
            let one = pool.take(&socket).await.unwrap();
            pool.put(one);
            assert_eq!(pool.idle().len(), 1, "one call after the other uses one");
        }
        let mut taken = Vec::new();
        for _ in 0..40 {
            taken.push(pool.take(&socket).await.unwrap());
        }
        assert!(pool.idle().is_empty());
        taken.into_iter().for_each(|one| pool.put(one));
        assert_eq!(pool.idle().len(), MAX_IDLE);

        tokio::time::sleep(IDLE_PERIOD / 2).await;
        let used = pool.take(&socket).await.unwrap();
        pool.put(used);
        tokio::time::sleep(IDLE_PERIOD * 3 / 4).await;
        assert_eq!(pool.idle().len(), 1);
        tokio::time::sleep(IDLE_PERIOD * 100).await;
        assert_eq!(pool.idle().len(), 1);
    }

    #[tokio::test]
    async fn one_that_the_runtime_has_closed_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("runtime.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let pool = ConnectionPool::default();
        let mut one = pool.take(&socket).await.unwrap();
        drop(listener.accept().await.unwrap());
        let ended = std::mem::replace(&mut one.ended, tokio::spawn(async { Ok(()) }));
        drop(ended.await);
        pool.put(one);
        assert!(pool.idle().is_empty());
    }
}
