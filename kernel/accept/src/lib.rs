//! Accepts connections, for every server on either side of the plugin wall.
//!
//! A listener stays readable while a connection waits that cannot be accepted, because descriptors or memory are short: a
//! loop without a pause spins. An [`Acceptor`] pauses, and logs the first error of a row alone.

use std::io::{self, ErrorKind};
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::{Instant, sleep_until};

/// How long until a connection that could not be accepted is tried again.
const RETRY_ACCEPT: Duration = Duration::from_millis(100);

/// Accepts connections from one listener.
#[derive(Debug)]
pub struct Acceptor {
    server: &'static str,
    /// When the next try is due, since the last one failed.
    retry: Option<Instant>,
}

impl Acceptor {
    /// Names the server in the log.
    #[must_use]
    pub fn new(server: &'static str) -> Acceptor {
        Acceptor {
            server,
            retry: None,
        }
    }

    /// Waits for a connection. Cancel-safe if `accept` is.
    ///
    /// # Errors
    /// Only what no later try can mend: the listener is not one, or closed.
    pub async fn accept<T, F>(&mut self, accept: impl Fn() -> F) -> io::Result<T>
    where
        F: Future<Output = io::Result<T>>,
    {
        loop {
            if let Some(retry) = self.retry {
                sleep_until(retry).await;
            }
            match accept().await {
                Ok(connection) => {
                    if self.retry.take().is_some() {
                        tracing::info!("{} accepts connections again", self.server);
                    }
                    return Ok(connection);
                }
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if is_fatal(&error) => return Err(error),
                // What the system lacks comes back, and what is wrong with one connection (accept(2)) is not with the next.
                Err(error) => {
                    if self.retry.is_none() {
                        tracing::warn!(%error, "{} cannot accept a connection, which waits", self.server);
                    }
                    self.retry = Some(Instant::now() + RETRY_ACCEPT);
                }
            }
        }
    }
}

fn is_fatal(error: &io::Error) -> bool {
    let fatal = [Errno::BADF, Errno::FAULT, Errno::INVAL, Errno::NOTSOCK];
    fatal
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_error_is_followed_by_a_pause_unless_it_is_the_clients() {
        for (errno, tries) in [
            (Errno::MFILE, 10),
            (Errno::NFILE, 10),
            (Errno::NOMEM, 10),
            (Errno::PROTO, 10),
        ] {
            let (asked, began) = (Cell::new(0), Instant::now());
            let accept = || {
                asked.set(asked.get() + 1);
                ready((asked.get() > tries).then_some(()).ok_or(errno.into()))
            };
            Acceptor::new("a server").accept(accept).await.unwrap();
            assert_eq!(began.elapsed(), RETRY_ACCEPT * tries, "{errno}");
        }
        let aborted = Cell::new(true);
        let accept = || {
            let is_aborted = aborted.replace(false);
            ready((!is_aborted).then_some(()).ok_or(Errno::CONNABORTED.into()))
        };
        let began = Instant::now();
        Acceptor::new("a server").accept(accept).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_was_broken_off_pauses_all_the_same() {
        let mut acceptor = Acceptor::new("a server");
        let asked = Cell::new(0);
        let accept = || {
            asked.set(asked.get() + 1);
            ready(Err::<(), _>(Errno::MFILE.into()))
        };
        let began = Instant::now();
        for _ in 0..100 {
            tokio::select! {
                biased;
                accepted = acceptor.accept(&accept) => panic!("{accepted:?}"),
                () = tokio::time::sleep(RETRY_ACCEPT / 10) => {}
            }
        }
        assert_eq!(began.elapsed(), RETRY_ACCEPT * 10);
        // The first at once, and the last at the end.
        assert!(asked.get() <= 11, "{}", asked.get());
    }

    #[tokio::test]
    async fn a_listener_that_is_gone_is_an_error() {
        let accept = || ready(Err::<(), _>(Errno::BADF.into()));
        let error = Acceptor::new("a server").accept(accept).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
    }
}
