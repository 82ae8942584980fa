//! The only polling that tests may do: real processes have no clock that a test could advance.

use std::time::Duration;

use anyhow::{Error, Result, bail};

const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How many times as long every wait may take; 1 unless set. An emulated processor is some ten times slower.
const PATIENCE: &str = "OXLET_PATIENCE";

/// Returns the longest time of a wait on this machine.
pub fn patient(within: Duration) -> Duration {
    let times = std::env::var(PATIENCE)
        .ok()
        .and_then(|text| text.parse().ok());
    within * times.unwrap_or(1)
}

/// Waits until `holds` answers true; `what` says in words what did not come about in time.
pub async fn wait_until(
    within: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> bool,
) -> Result<()> {
    let within = patient(within);
    let deadline = tokio::time::Instant::now() + within;
    while !matches!(tokio::time::timeout_at(deadline, holds()).await, Ok(true)) {
        if tokio::time::Instant::now() >= deadline {
            bail!("not within {within:?}: {what}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Waits until `find` has found it; the error has the last error of `find`, where its last answer was one.
pub async fn wait_for<T>(
    within: Duration,
    what: &str,
    mut find: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut found = None;
    let mut failure: Option<Error> = None;
    let waited = wait_until(within, what, async || {
        (found, failure) = match find().await {
            Ok(found) => (found, None),
            Err(failure) => (None, Some(failure)),
        };
        found.is_some()
    });
    match (waited.await, found, failure) {
        (Ok(()), Some(found), _) => Ok(found),
        (Err(late), _, Some(failure)) => Err(failure.context(late)),
        (Err(late), _, None) => Err(late),
        (Ok(()), None, _) => bail!("nothing is found: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_error_is_shown_where_the_last_answer_was_one() {
        let mut turn = 0;
        let refused = wait_for(Duration::from_secs(1), "pigs fly", async || {
            turn += 1;
            match turn {
                1 => Ok(None::<()>),
                turn => bail!("refused for the {turn}th time"),
            }
        });
        let error = format!("{:#}", refused.await.unwrap_err());
        assert!(
            error.starts_with("not within 1s: pigs fly: refused for the "),
            "{error}"
        );
        let found = wait_for(Duration::from_secs(1), "it is there", async || Ok(Some(7)));
        assert_eq!(found.await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_holds_is_named_in_the_error() {
        let error = wait_until(Duration::from_secs(1), "pigs fly", async || false)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "not within 1s: pigs fly");
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_hangs_does_not_hang_the_wait() {
        let hangs = async || std::future::pending().await;
        assert!(
            wait_until(Duration::from_secs(1), "the check returns", hangs)
                .await
                .is_err()
        );
    }
}
