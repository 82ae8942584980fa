//! Programs of the node, such as mount(8): run on the pool, killed when their time is over.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use blocking_pool::Cancel;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::time::Instant;
use tonic::Status;

/// More than any of them has to say.
const OUTPUT_MAX: u64 = 16 << 10;
/// The kernel does not tell that a child ended to a thread that also waits for a deadline; most are done at once.
const RETRY_BACKOFF_INITIAL: Duration = Duration::from_millis(1);
const RETRY_BACKOFF_MAX: Duration = Duration::from_millis(20);

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Its standard output and standard error, as they came.
    pub(crate) output: String,
}

/// Why a program has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("cannot start {program}")]
    Start { program: String, source: io::Error },
    #[error("{program} was killed, as it did not end in time")]
    Late { program: String },
}

impl RunError {
    /// Tells whether the program is not there.
    pub(crate) fn not_found(&self) -> bool {
        match self {
            Self::Start { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Late { .. } => false,
        }
    }
}

impl From<RunError> for Status {
    fn from(error: RunError) -> Self {
        let text = error.to_string();
        match error {
            RunError::Start { source, .. } => mounts::answer::failed(text, source),
            RunError::Late { .. } => Self::deadline_exceeded(text),
        }
    }
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// "exit status 32", as Go says it.
    pub(crate) fn exit_text(&self) -> String {
        use std::os::unix::process::ExitStatusExt;
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal: {signal}"),
            (None, None) => "no exit status".to_owned(),
        }
    }
}

/// Runs a program to its end, or until the work on the pool is to end, or for so long.
///
/// A program that is stuck in the kernel outlives its kill: the thread then waits for it and is given up, so that
/// no other call gets the volume's lock before it is gone.
pub(crate) fn run(
    program: &OsStr,
    arguments: &[&OsStr],
    limit: Option<Duration>,
) -> Result<Ended, RunError> {
    let name = || program.to_string_lossy().into_owned();
    let cannot = |source| RunError::Start {
        program: name(),
        source,
    };
    let mut output = output().map_err(cannot)?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(cannot)?)
        .stderr(output.try_clone().map_err(cannot)?)
        .spawn()
        .map_err(cannot)?;
    match end(&mut child, limit).map_err(cannot)? {
        Some(status) => Ok(Ended {
            status,
            output: read_output(&mut output).map_err(cannot)?,
        }),
        None => Err(RunError::Late { program: name() }),
    }
}

// A file in memory: unlike at a full pipe, a child that writes much never waits for a reader.
fn output() -> io::Result<File> {
    Ok(File::from(memfd_create("output", MemfdFlags::CLOEXEC)?))
}

fn read_output(output: &mut File) -> io::Result<String> {
    output.rewind()?;
    let mut bytes = Vec::new();
    output.take(OUTPUT_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits for the end; `None` when the child had to be killed.
fn end(child: &mut Child, limit: Option<Duration>) -> io::Result<Option<ExitStatus>> {
    let cancel = Cancel::current();
    let until = limit.map(|limit| Instant::now() + limit);
    let mut pause = RETRY_BACKOFF_INITIAL;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let late = until.is_some_and(|until| Instant::now() >= until);
        if late || cancel.sleep(pause).is_err() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        pause = (pause * 2).min(RETRY_BACKOFF_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Option<Duration>) -> Result<Ended, RunError> {
        run("sh".as_ref(), &["-c".as_ref(), script.as_ref()], limit)
    }

    #[test]
    fn a_program_s_end_and_words_are_known() {
        let ended = shell("echo out; echo err >&2; exit 3", None).unwrap();
        assert_eq!(
            (ended.code(), ended.output.as_str()),
            (Some(3), "out\nerr\n")
        );
        assert_eq!(ended.exit_text(), "exit status 3");
        let killed = shell("kill -9 $$", None).unwrap();
        assert_eq!(killed.exit_text(), "signal: 9");
    }

    #[test]
    fn much_output_is_cut_and_holds_nobody_up() {
        let ended = shell("head -c 1000000 /dev/zero", None).unwrap();
        assert_eq!(ended.output.len(), 16 << 10);
    }

    #[test]
    fn a_program_that_is_not_there_is_told_from_one_that_fails() {
        let missing = run("/no/such/program".as_ref(), &[], None).unwrap_err();
        assert!(missing.not_found());
        assert_eq!(missing.to_string(), "cannot start /no/such/program");
    }

    #[test]
    fn a_program_is_killed_at_its_limit() {
        let late = shell("exec sleep 600", Some(Duration::from_millis(50))).unwrap_err();
        assert_eq!(late.to_string(), "sh was killed, as it did not end in time");
        assert_eq!(Status::from(late).code(), tonic::Code::DeadlineExceeded);
    }
}
