//! The only polling that tests may do: real processes have no clock that a test could advance.

use std::time::Duration;

use anyhow::{Result, bail};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `holds` answers true; `what` says in words what did not come about in time.
pub async fn wait_until(
    within: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> bool,
) -> Result<()> {
    let deadline = tokio::time::Instant::now() + within;
    while !matches!(tokio::time::timeout_at(deadline, holds()).await, Ok(true)) {
        if tokio::time::Instant::now() >= deadline {
            bail!("not within {within:?}: {what}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
