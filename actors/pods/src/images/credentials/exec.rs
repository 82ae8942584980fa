//! One run of a credential provider: the request on its standard input, the answer on its standard output.
//!
//! A run has a minute and a limit of output; then it is killed with all its child processes. Upstream:
//! ExecPlugin (pkg/credentialprovider/plugin/plugin.go, 1.36).

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use config::CredentialProvider;
use logic_pods::images::credentials::provider::{
    ProviderResponse, ProviderResponseError, request, response,
};
use metrics::runtime::images as counted;
use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// As upstream: enough for a provider to try again, and an end for one that hangs.
pub(super) const EXEC_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of standard output; far above any answer.
const MAX_STDOUT: u64 = 1024 * 1024;
/// Bytes of standard error that are kept for the log line.
const MAX_STDERR: u64 = 4096;

/// Why a provider gave no credentials.
#[derive(Debug, Error)]
pub(super) enum ProviderExecError {
    #[error("credential provider {name} cannot be started")]
    Start { name: String, source: io::Error },
    #[error("credential provider {name} cannot be spoken to")]
    Pipe { name: String, source: io::Error },
    #[error("credential provider {name} wrote more than {MAX_STDOUT} bytes")]
    Flood { name: String },
    #[error("credential provider {name} did not answer within {} s", .within.as_secs())]
    Deadline { name: String, within: Duration },
    #[error("credential provider {name} ended with {status}: {complaint}")]
    Failed {
        name: String,
        status: ExitStatus,
        complaint: String,
    },
    #[error("credential provider {name} gave no answer")]
    Answer {
        name: String,
        source: ProviderResponseError,
    },
}

/// Runs a provider for the credentials of an image's repository.
pub(super) async fn ask(
    provider: &CredentialProvider,
    image: &str,
    within: Duration,
) -> Result<ProviderResponse, ProviderExecError> {
    let began = kernel::now();
    let answer = communicate(provider, image, within).await;
    let took = kernel::now().saturating_duration_since(began);
    let labels = [provider.name.as_str()];
    let duration = counted::PROVIDER_DURATION.with_label_values(&labels);
    duration.observe(took.as_secs_f64());
    if answer.is_err() {
        counted::PROVIDER_ERRORS.with_label_values(&labels).inc();
    }
    answer
}

async fn communicate(
    provider: &CredentialProvider,
    image: &str,
    within: Duration,
) -> Result<ProviderResponse, ProviderExecError> {
    let name = || provider.name.clone();
    let mut running =
        ProviderProcess::start(provider).map_err(|source| ProviderExecError::Start {
            name: name(),
            source,
        })?;
    let request = request(&provider.api_version, image);
    let spoken = timeout(within, running.communicate(&request)).await;
    let said = match spoken {
        Err(_) => {
            return Err(ProviderExecError::Deadline {
                name: name(),
                within,
            });
        }
        Ok(Err(source)) => {
            return Err(ProviderExecError::Pipe {
                name: name(),
                source,
            });
        }
        Ok(Ok(said)) => said,
    };
    if said.answer.len() as u64 > MAX_STDOUT {
        return Err(ProviderExecError::Flood { name: name() });
    }
    let status = said.status.unwrap_or_default();
    if !status.success() {
        let complaint = String::from_utf8_lossy(&said.complaint).trim().to_owned();
        return Err(ProviderExecError::Failed {
            name: name(),
            status,
            complaint,
        });
    }
    response(&said.answer, &provider.api_version).map_err(|source| ProviderExecError::Answer {
        name: name(),
        source,
    })
}

/// A process and its children; all are killed when it is dropped before its end.
struct ProviderProcess {
    child: Child,
    group: Option<Pid>,
}

/// What a provider wrote. No exit status: one that exceeded the limit of output was not waited for.
struct ProviderOutput {
    answer: Vec<u8>,
    complaint: Vec<u8>,
    status: Option<ExitStatus>,
}

impl ProviderProcess {
    fn start(provider: &CredentialProvider) -> io::Result<Self> {
        let child = Command::new(&provider.program)
            .args(&provider.args)
            .envs(provider.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The process group lets the provider's children be killed with it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(ProviderProcess {
            group: id.and_then(Pid::from_raw),
            child,
        })
    }

    async fn communicate(&mut self, request: &[u8]) -> io::Result<ProviderOutput> {
        let missing = || io::Error::other("a pipe is missing");
        let (mut stdin, stdout, stderr) = (
            self.child.stdin.take().ok_or_else(missing)?,
            self.child.stdout.take().ok_or_else(missing)?,
            self.child.stderr.take().ok_or_else(missing)?,
        );
        let tell = async move {
            // A provider that does not read its input may still answer.
            drop(stdin.write_all(request).await);
        };
        let complain = async move {
            let mut stderr = stderr;
            let complaint = limited(&mut stderr, MAX_STDERR).await?;
            // The rest is read, lest the provider block on a full pipe, and dropped.
            tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
            io::Result::Ok(complaint)
        };
        let mut stdout = stdout;
        let answer = async {
            let answer = limited(&mut stdout, MAX_STDOUT + 1).await?;
            match answer.len() as u64 > MAX_STDOUT {
                true => Err(PipeError::Flood(answer)),
                false => Ok(answer),
            }
        };
        let complain = async { complain.await.map_err(PipeError::Pipe) };
        let tell = async {
            tell.await;
            Ok(())
        };
        match tokio::try_join!(answer, complain, tell) {
            Ok((answer, complaint, ())) => {
                let status = self.child.wait().await?;
                self.group = None;
                Ok(ProviderOutput {
                    answer,
                    complaint,
                    status: Some(status),
                })
            }
            Err(PipeError::Flood(answer)) => Ok(ProviderOutput {
                answer,
                complaint: Vec::new(),
                status: None,
            }),
            Err(PipeError::Pipe(error)) => Err(error),
        }
    }
}

impl Drop for ProviderProcess {
    fn drop(&mut self) {
        // The process was not waited for yet, so its id is still its own.
        if let Some(group) = self.group {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

/// Why the exchange with the process ended early.
enum PipeError {
    Flood(Vec<u8>),
    Pipe(io::Error),
}

impl From<io::Error> for PipeError {
    fn from(error: io::Error) -> Self {
        PipeError::Pipe(error)
    }
}

async fn limited(from: &mut (impl AsyncRead + Unpin), limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit).read_to_end(&mut bytes).await?;
    Ok(bytes)
}
