//! A thread beside the actors' for futures that compute for long, one at a time.
//!
//! It has no clock and no sockets of its own: a future that waits for a socket of the actors' thread is woken from there. In a
//! simulation there is no second thread, which the paused clock would not wait for.

use std::future::Future;
use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The thread; it ends when this is dropped, and what it has not finished ends with it.
#[derive(Debug)]
pub struct ComputeThread {
    runtime: Handle,
    _end: oneshot::Sender<()>,
}

impl ComputeThread {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(name: &str) -> io::Result<ComputeThread> {
        let runtime = Builder::new_current_thread().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || drop(runtime.block_on(ended)))?;
        Ok(ComputeThread {
            runtime: handle,
            _end: end,
        })
    }

    /// Runs `work` on the thread, in turn with other work there; dropping this drops it. None where it panicked.
    pub async fn run<F>(&self, work: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let mut task = AbortOnDrop(self.spawn(work));
        match (&mut task.0).await {
            Ok(output) => Some(output),
            Err(broken) => {
                tracing::error!("work beside the actors' thread broke: {broken}");
                None
            }
        }
    }

    fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        #[cfg(feature = "testing")]
        if super::clock::is_simulated() {
            return tokio::spawn(work);
        }
        self.runtime.spawn(work)
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> thread::ThreadId {
        thread::current().id()
    }

    #[test]
    fn work_is_done_beside_the_actors_and_ends_with_its_asker() {
        crate::system::run(async {
            let beside = ComputeThread::start("test").unwrap();
            let there = beside.run(async { here() }).await.unwrap();
            assert_ne!(there, here());
            let (kept, dropped) = oneshot::channel::<()>();
            let endless = beside.run(async move {
                std::future::pending::<()>().await;
                drop(kept);
            });
            tokio::select! {
                biased;
                _ = endless => unreachable!(),
                () = tokio::task::yield_now() => {}
            }
            assert!(dropped.await.is_err());
        })
        .unwrap();
        let there = crate::testing::run_paused(|| async {
            ComputeThread::start("test")
                .unwrap()
                .run(async { here() })
                .await
        });
        assert_eq!(there, Some(here()));
    }
}
