//! How often the service manager wants to hear that the agent is well.
//!
//! Mirrors pkg/kubelet/watchdog/watchdog_linux.go (1.36) and go-systemd's `SdWatchdogEnabled`.

use std::num::ParseIntError;
use std::time::Duration;

/// The service manager must give the agent longer than this: upstream's `minimalNotifyInterval`.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// What the service manager says of its watchdog in the environment.
#[derive(Debug, Clone, Copy, Default)]
pub struct WatchdogEnvironment<'a> {
    /// `WATCHDOG_USEC`: microseconds after which a silent process is killed.
    pub timeout: Option<&'a str>,
    /// `WATCHDOG_PID`: the process that is meant; absent, it is whoever reads this.
    pub pid: Option<&'a str>,
}

/// Why the watchdog cannot be served: the agent does not start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchdogError {
    #[error("{variable} is {value:?}, expected a whole number")]
    NoNumber {
        variable: &'static str,
        value: String,
        source: ParseIntError,
    },
    #[error("WATCHDOG_USEC is {value}, expected a positive number")]
    NotPositive { value: i64 },
    #[error("the watchdog's timeout is too small: it is {timeout:?}, expected more than 1s")]
    TooSmall { timeout: Duration },
}

/// Returns the time between two notifications, half of the timeout; none where no watchdog watches this process.
pub fn interval(
    environment: WatchdogEnvironment<'_>,
    own_pid: u32,
) -> Result<Option<Duration>, WatchdogError> {
    let Some(value) = environment.timeout.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let value = number("WATCHDOG_USEC", value)?;
    let timeout = match u64::try_from(value) {
        Ok(micros) if micros > 0 => Duration::from_micros(micros),
        Ok(_) | Err(_) => return Err(WatchdogError::NotPositive { value }),
    };
    if let Some(pid) = environment.pid.filter(|pid| !pid.is_empty())
        && number("WATCHDOG_PID", pid)? != i64::from(own_pid)
    {
        return Ok(None);
    }
    match timeout > MIN_TIMEOUT {
        true => Ok(Some(timeout / 2)),
        false => Err(WatchdogError::TooSmall { timeout }),
    }
}

fn number(variable: &'static str, value: &str) -> Result<i64, WatchdogError> {
    value.parse().map_err(|source| WatchdogError::NoNumber {
        variable,
        value: value.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(timeout: Option<&str>, pid: Option<&str>) -> Result<Option<Duration>, String> {
        let environment = WatchdogEnvironment { timeout, pid };
        interval(environment, 7).map_err(|error| error.to_string())
    }

    /// Upstream's TestNewHealthChecker.
    #[test]
    fn a_watchdog_is_told_twice_within_its_timeout() {
        let two = Ok(Some(Duration::from_secs(2)));
        let rows = [
            (Some("4000000"), None, two.clone()),
            (Some("4000000"), Some("7"), two.clone()),
            (Some("4000000"), Some(""), two),
            (
                Some("1000001"),
                None,
                Ok(Some(Duration::from_nanos(500_000_500))),
            ),
            (None, None, Ok(None)),
            (Some(""), Some("7"), Ok(None)),
            (Some("4000000"), Some("8"), Ok(None)),
        ];
        for (timeout, pid, expected) in rows {
            assert_eq!(asked(timeout, pid), expected, "{timeout:?} {pid:?}");
        }
    }

    #[test]
    fn a_watchdog_that_cannot_be_served_is_named() {
        let rows = [
            (
                Some("soon"),
                None,
                "WATCHDOG_USEC is \"soon\", expected a whole number",
            ),
            (
                Some("4000000"),
                Some("me"),
                "WATCHDOG_PID is \"me\", expected a whole number",
            ),
            (
                Some("0"),
                None,
                "WATCHDOG_USEC is 0, expected a positive number",
            ),
            (
                Some("-1"),
                None,
                "WATCHDOG_USEC is -1, expected a positive number",
            ),
            (
                Some("1000000"),
                None,
                "the watchdog's timeout is too small: it is 1s, expected more than 1s",
            ),
        ];
        for (timeout, pid, expected) in rows {
            assert_eq!(asked(timeout, pid), Err(expected.to_owned()), "{timeout:?}");
        }
    }
}
