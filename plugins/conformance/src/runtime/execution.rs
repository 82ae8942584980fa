//! Laws of what runs in a container: exit codes, signals, logs, commands.

use std::fs;
use std::time::Duration;

use futures_util::FutureExt;
use proto::cri::{ContainerState, ExecSyncRequest};
use tokio::time::Instant;

use super::super::{CheckResult, CheckStop, holds, refused, same};
use super::RuntimeCheck;
use super::case::{ECHO, EXIT_SEVEN, RuntimeCase, SLEEP, STUBBORN};

pub(super) const LAWS: &[(&str, RuntimeCheck)] = &[
    (
        "exit with a code is reported with the code, the reason Error and its time",
        |case| exit_seven(case).boxed(),
    ),
    (
        "exit without a code is reported with the reason Completed",
        |case| exit_zero(case).boxed(),
    ),
    (
        "container that is stopped ends within the timeout",
        |case| stopped_in_time(case).boxed(),
    ),
    (
        "container that ignores SIGTERM is killed when the timeout is over",
        |case| killed_late(case).boxed(),
    ),
    (
        "output is written to the log path in CRI's log format",
        |case| logged(case).boxed(),
    ),
    ("ExecSync returns the output and the exit code", |case| {
        executed(case).boxed()
    }),
    (
        "ExecSync in a container that does not run is refused",
        |case| executed_nowhere(case).boxed(),
    ),
    (
        "ExecSync that takes too long is refused at its timeout",
        |case| executed_too_long(case).boxed(),
    ),
];

async fn exit_seven(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(EXIT_SEVEN).await?;
    let status = case.reach(&id, ContainerState::ContainerExited).await?;
    same("exit_code", status.exit_code, 7)?;
    same("reason", status.reason.as_str(), "Error")?;
    let (created, started, finished) = (status.created_at, status.started_at, status.finished_at);
    // A real runtime may note the start when its call returns: a container of a moment has ended by then.
    holds(
        created > 0 && started >= created && finished > created,
        || {
            format!(
                "created_at {created}, started_at {started}, finished_at {finished} are not in this order"
            )
        },
    )
}

async fn exit_zero(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(ECHO).await?;
    let status = case.reach(&id, ContainerState::ContainerExited).await?;
    same("exit_code", status.exit_code, 0)?;
    same("reason", status.reason.as_str(), "Completed")
}

async fn stopped_in_time(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(SLEEP).await?;
    let begun = Instant::now();
    case.stop(&id, 2).await?;
    let took = begun.elapsed();
    // The signal may be ignored: process 1 of a container ignores what it does not handle.
    holds(took < Duration::from_secs(12), || {
        format!("it took {took:?}, expected about 2 s at most")
    })?;
    same(
        "state",
        case.container_status(&id).await?.state(),
        ContainerState::ContainerExited,
    )
}

async fn killed_late(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(STUBBORN).await?;
    let begun = Instant::now();
    case.stop(&id, 1).await?;
    let took = begun.elapsed();
    let status = case.container_status(&id).await?;
    same("state", status.state(), ContainerState::ContainerExited)?;
    same("exit_code", status.exit_code, 137)?;
    holds(took >= Duration::from_millis(900), || {
        format!("it was killed after {took:?}, expected 1 s of grace")
    })
}

async fn logged(case: &mut RuntimeCase) -> CheckResult {
    let (sandbox, id) = case.run_container(ECHO).await?;
    case.reach(&id, ContainerState::ContainerExited).await?;
    let path = format!("{}/main/0.log", sandbox.config.log_directory);
    let mut log = fs::read_to_string(&path)?;
    // A real runtime copies the last output beside the exit, not before it.
    let begun = Instant::now();
    while !log.ends_with('\n') && begun.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        log = fs::read_to_string(&path)?;
    }
    let line = log.strip_suffix('\n').unwrap_or(&log);
    let (time, rest) = line.split_once(' ').unwrap_or((line, ""));
    same("log after the time", rest, "stdout F hello")?;
    holds(is_rfc3339_nano(time), || {
        format!("log begins with {time:?}, expected an RFC 3339 time with nanoseconds")
    })
}

/// Whether `text` is like "2026-01-31T12:00:00.123456789Z", or has an offset instead of the Z.
fn is_rfc3339_nano(text: &str) -> bool {
    let (Some(date), Some(rest)) = (text.get(..19), text.get(19..)) else {
        return false;
    };
    let shaped =
        date.chars()
            .zip("0000-00-00T00:00:00".chars())
            .all(|(seen, wanted)| match wanted {
                '0' => seen.is_ascii_digit(),
                other => seen == other,
            });
    let digits = rest.strip_prefix('.').map_or("", |rest| {
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        &rest[..end]
    });
    let zone = rest
        .trim_start_matches('.')
        .trim_start_matches(|c: char| c.is_ascii_digit());
    let zoned = zone == "Z" || (zone.len() == 6 && zone.starts_with(['+', '-']));
    shaped && zoned && digits.len() <= 9
}

async fn executed(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(SLEEP).await?;
    let answer = case
        .runtime
        .exec_sync(exec(&id, ECHO, 10))
        .await?
        .into_inner();
    same(
        "stdout",
        String::from_utf8_lossy(&answer.stdout).as_ref(),
        "hello\n",
    )?;
    same("exit_code", answer.exit_code, 0)?;
    let answer = case
        .runtime
        .exec_sync(exec(&id, EXIT_SEVEN, 10))
        .await?
        .into_inner();
    same("exit_code", answer.exit_code, 7)?;
    same(
        "state of the container",
        case.container_status(&id).await?.state(),
        ContainerState::ContainerRunning,
    )
}

async fn executed_nowhere(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let id = case.create(&sandbox, SLEEP).await?;
    refused(
        "a command in a container that does not run",
        case.runtime.exec_sync(exec(&id, ECHO, 10)).await,
    )?;
    let unknown = exec(&case.name, ECHO, 10);
    refused(
        "a command in an unknown container",
        case.runtime.exec_sync(unknown).await,
    )?;
    Ok(())
}

async fn executed_too_long(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(SLEEP).await?;
    let begun = Instant::now();
    refused(
        "a command beyond its timeout",
        case.runtime.exec_sync(exec(&id, SLEEP, 1)).await,
    )?;
    let took = begun.elapsed();
    if took < Duration::from_millis(900) || took > Duration::from_secs(11) {
        return Err(CheckStop::Broken(format!(
            "it was refused after {took:?}, expected 1 s"
        )));
    }
    same(
        "state of the container",
        case.container_status(&id).await?.state(),
        ContainerState::ContainerRunning,
    )
}

fn exec(id: &str, command: &[&str], timeout: i64) -> ExecSyncRequest {
    ExecSyncRequest {
        container_id: id.to_owned(),
        cmd: command.iter().map(|&word| word.to_owned()).collect(),
        timeout,
    }
}

#[cfg(test)]
mod tests {
    use super::is_rfc3339_nano;

    #[test]
    fn times_of_the_log_are_told_from_other_text() {
        for good in [
            "2026-01-31T12:00:00.123456789Z",
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00.5+01:00",
        ] {
            assert!(is_rfc3339_nano(good), "{good}");
        }
        for bad in [
            "",
            "hello",
            "2026-01-31 12:00:00.1Z",
            "2026-01-31T12:00:00.1",
            "2026-01-31T12:00:00.1234567890Z",
        ] {
            assert!(!is_rfc3339_nano(bad), "{bad}");
        }
    }
}
