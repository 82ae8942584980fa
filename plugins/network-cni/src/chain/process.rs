//! One CNI plugin as a process: bounded in time, output and number, and gone when its call is over.
//!
//! A plugin is started in a process group of its own. At its deadline, or when it says too much, the whole group is
//! killed and its first process waited for. What it leaves behind when it ends by itself is left alone: some plugins
//! start a daemon.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// A result is a page or two.
const STDOUT_MAX: usize = 1 << 20;
/// Of what a plugin logs its last words are kept.
const STDERR_MAX: usize = 8 << 10;
/// How long output is waited for after the plugin's end, where a process that it left behind holds the pipe.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// How long a killed plugin is waited for: longer than any but one that is stuck in the kernel takes.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what a plugin's process has started may take to end after a kill before it is left alone.
const GROUP_TIMEOUT: Duration = Duration::from_millis(500);
const GROUP_LOOK: Duration = Duration::from_millis(5);

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) program: PathBuf,
    /// The whole environment.
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) input: Vec<u8>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// Its last words.
    pub(crate) stderr: String,
}

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error("cannot be started: {0}")]
    Start(io::Error),
    #[error("cannot be waited for: {0}")]
    Wait(io::Error),
    #[error("was killed, as it did not end in time")]
    Late,
    #[error("was killed, as its output is larger than {STDOUT_MAX} bytes")]
    Output,
}

/// Runs a plugin to its end, or to `end`.
pub(crate) async fn run(call: Invocation, end: Instant) -> Result<Output, ProcessError> {
    let mut child = spawn(&call)?;
    let outcome = timeout_at(end, talk(&mut child, &call.input)).await;
    match outcome {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => {
            kill(&mut child, &call.program).await;
            Err(error)
        }
        Err(_) => {
            kill(&mut child, &call.program).await;
            Err(ProcessError::Late)
        }
    }
}

fn spawn(call: &Invocation) -> Result<Child, ProcessError> {
    Command::new(&call.program)
        .env_clear()
        .envs(call.environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(ProcessError::Start)
}

async fn talk(child: &mut Child, input: &[u8]) -> Result<Output, ProcessError> {
    let piped = "all three are pipes";
    let mut stdin = child.stdin.take().expect(piped);
    let stdout = child.stdout.take().expect(piped);
    let stderr = child.stderr.take().expect(piped);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let said = async {
        let write = async {
            // A plugin need not read its configuration to the end.
            drop(stdin.write_all(input).await);
            drop(stdin);
            Ok(())
        };
        tokio::try_join!(write, whole(stdout, &mut out), last(stderr, &mut err)).map(drop)
    };
    let mut said = Box::pin(said);
    // Neither arm loses anything: what was read lies in `out` and `err`.
    let status = tokio::select! {
        biased;
        all = &mut said => {
            all?;
            child.wait().await
        }
        status = child.wait() => {
            if let Ok(all) = timeout(OUTPUT_GRACE, &mut said).await {
                all?;
            }
            status
        }
    };
    drop(said);
    Ok(Output {
        status: status.map_err(ProcessError::Wait)?,
        stdout: out,
        stderr: String::from_utf8_lossy(&err).trim().to_owned(),
    })
}

async fn whole(mut from: impl AsyncRead + Unpin, kept: &mut Vec<u8>) -> Result<(), ProcessError> {
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if kept.len() + count > STDOUT_MAX {
            return Err(ProcessError::Output);
        }
        kept.extend_from_slice(&buffer[..count]);
    }
    Ok(())
}

async fn last(mut from: impl AsyncRead + Unpin, kept: &mut Vec<u8>) -> Result<(), ProcessError> {
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..count]);
        kept.drain(..kept.len().saturating_sub(STDERR_MAX));
    }
    Ok(())
}

/// Ends the whole group. Nothing of it runs a line of its program after this.
async fn kill(child: &mut Child, program: &Path) {
    // None when the first process has been waited for: its number may be another's by now.
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(group) = group {
        let _ended = kill_process_group(group, Signal::KILL);
    }
    if timeout(KILL_TIMEOUT, child.wait()).await.is_err() {
        tracing::error!("{} was killed and does not end", program.display());
        return;
    }
    let Some(group) = group else { return };
    let gone = async {
        while test_kill_process_group(group).is_ok() {
            sleep(GROUP_LOOK).await;
        }
    };
    if timeout(GROUP_TIMEOUT, gone).await.is_err() {
        tracing::warn!(
            "processes that {} started were killed and are still there",
            program.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (tempfile::TempDir, Invocation) {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("plugin");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let environment = vec![("PATH", "/usr/bin:/bin".to_owned())];
        let input = b"{}".to_vec();
        (
            folder,
            Invocation {
                program,
                environment,
                input,
            },
        )
    }

    async fn within(call: Invocation, span: Duration) -> Result<Output, ProcessError> {
        run(call, Instant::now() + span).await
    }

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn input_output_and_end_are_handed_over() {
        let (_folder, call) = shell("cat; echo words >&2; exit 3");
        let output = within(call, LONG).await.unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            (output.stdout.as_slice(), output.stderr.as_str()),
            (&b"{}"[..], "words")
        );
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_with_all_that_it_started() {
        let (folder, call) = shell("sleep 600 & echo $! >\"$(dirname \"$0\")/child\"; wait");
        let late = within(call, SHORT * 5).await.unwrap_err();
        assert!(matches!(late, ProcessError::Late), "{late}");
        let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
        let state =
            std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }

    #[tokio::test]
    async fn endless_output_is_cut_short() {
        let (_folder, call) = shell("cat /dev/zero");
        let error = within(call, LONG).await.unwrap_err();
        assert!(matches!(error, ProcessError::Output), "{error}");
    }

    #[tokio::test]
    async fn endless_words_on_standard_error_are_not_kept() {
        let (_folder, call) =
            shell("head -c 3000000 /dev/zero | tr '\\0' a >&2; echo end >&2; echo {}");
        let output = within(call, LONG).await.unwrap();
        assert!(output.stderr.len() <= STDERR_MAX && output.stderr.ends_with("end"));
    }

    #[tokio::test]
    async fn what_a_plugin_leaves_behind_holds_nobody_up() {
        let (folder, call) = shell("sleep 600 & echo $! >\"$(dirname \"$0\")/child\"; echo {}");
        let output = within(call, LONG).await.unwrap();
        assert_eq!(output.stdout, b"{}\n");
        let child: i32 = std::fs::read_to_string(folder.path().join("child"))
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let child = Pid::from_raw(child).unwrap();
        rustix::process::kill_process(child, Signal::KILL).expect("it was left alone");
    }

    #[tokio::test]
    async fn a_plugin_that_reads_nothing_is_no_error() {
        let (_folder, mut call) = shell("exec <&-; echo {}");
        call.input = vec![b' '; 1 << 20];
        let output = within(call, LONG).await.unwrap();
        assert!(output.status.success());
    }
}
