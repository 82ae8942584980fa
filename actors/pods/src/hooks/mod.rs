//! Runs lifecycle hooks: a command in the container, a GET, or a sleep.
//!
//! The caller gives the deadline and decides what a failure means; errors have upstream's
//! texts. The event about a failure leaves out the hook's answer, which may be secret.
//!
//! Upstream: pkg/kubelet/lifecycle/handlers.go, and pkg/kubelet/kuberuntime/kuberuntime_container.go
//! (startContainer, executePreStopHook), 1.36. Decisions: `logic_pods::container::hooks`, `logic_pods::probes::target`.

#[cfg(test)]
mod tests;

use std::time::Duration;

use clients::probe_client::http::HttpResponse;
use clients::probe_client::{ProbeClient, exec};
use clients::runtime::RuntimeClient;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Pod};
use logic_api::pod::PodView;
use logic_api::types::ContainerId;
use logic_pods::container::hooks as decide;
use logic_pods::container::hooks::HookAction;
use logic_pods::probes::messages;
use logic_pods::probes::target::{HttpTarget, RequestPurpose};
use state::events::{EventType, InvolvedObject, Recorder};
use tokio::time::timeout;

/// A sleep that upstream would not end either; longer than any pod's grace.
const MAX_SLEEP: Duration = Duration::from_secs(u32::MAX as u64);

/// When in a container's life a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    PostStart,
    PreStop,
}

/// One hook of one container instance.
#[derive(Debug, Clone, Copy)]
pub struct LifecycleHook<'a> {
    pub kind: HookKind,
    pub handler: &'a LifecycleHandler,
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub id: &'a ContainerId,
    /// The pod's addresses, the primary first.
    pub ips: &'a [String],
}

/// Why a hook failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// The hook failed, or could not be run.
    #[error("{0}")]
    Failed(String),
    /// The hook did not end before its deadline.
    #[error("{0}")]
    Deadline(String),
}

/// Runs a hook until its deadline, and records an event if it fails.
///
/// A preStop hook that outlasts its pod's grace period gets no event: upstream goes on silently.
pub async fn run(
    runtime: &RuntimeClient,
    recorder: &Recorder,
    hook: &LifecycleHook<'_>,
    within: Duration,
) -> Result<(), HookError> {
    let carrier = HookRunner {
        runtime,
        recorder,
        probe_client: ProbeClient::default(),
    };
    let end = carrier.execute(hook, within).await;
    match (hook.kind, &end) {
        (_, Ok(())) | (HookKind::PreStop, Err(HookError::Deadline(_))) => {}
        (HookKind::PreStop, Err(HookError::Failed(_))) => {
            carrier.record(hook, decide::PRE_STOP_FAILED)
        }
        (HookKind::PostStart, Err(_)) => carrier.record(hook, decide::POST_START_FAILED),
    }
    if let Err(error) = &end {
        tracing::warn!(pod = %hook.pod.formatted(), container = hook.container.name, "{error}");
    }
    end
}

/// Runs one hook. Hooks are rare: each has its own connection to the pod.
struct HookRunner<'a> {
    runtime: &'a RuntimeClient,
    recorder: &'a Recorder,
    probe_client: ProbeClient,
}

/// The error, and what a command wrote.
enum HookFailure {
    Said { error: String, output: String },
    Late { error: String },
}

impl HookFailure {
    fn new(error: impl ToString) -> Self {
        HookFailure::Said {
            error: error.to_string(),
            output: String::new(),
        }
    }
}

impl HookRunner<'_> {
    async fn execute(&self, hook: &LifecycleHook<'_>, within: Duration) -> Result<(), HookError> {
        let failure = |error: &str, output: &str| {
            let (pod, container) = (hook.pod, hook.container.name.as_str());
            decide::failed(hook.handler, pod, container, (error, output))
        };
        // Boxed: the hook's future would otherwise be part of that of every start and every kill of a container.
        let end = match HookAction::of(hook.handler) {
            HookAction::Exec(command) => Box::pin(self.exec(hook, command, within)).await,
            HookAction::Get(get) => Box::pin(self.get(hook, get, within)).await,
            HookAction::Sleep(seconds) => sleep(seconds, within).await,
            HookAction::Nothing => Err(HookFailure::new(decide::invalid(hook.handler))),
        };
        end.map_err(|failed| match failed {
            HookFailure::Said { error, output } => HookError::Failed(failure(&error, &output)),
            HookFailure::Late { error } => HookError::Deadline(failure(&error, "")),
        })
    }

    async fn exec(
        &self,
        hook: &LifecycleHook<'_>,
        command: &[String],
        within: Duration,
    ) -> Result<(), HookFailure> {
        let late = || HookFailure::Late {
            error: messages::timed_out(command, within),
        };
        // The runtime counts whole seconds and may be late itself, so the agent enforces the deadline.
        let ran = timeout(within, exec::run(self.runtime, hook.id, command, within));
        match ran.await.map_err(|_| late())? {
            Ok(ran) if ran.exit_code == 0 => Ok(()),
            Ok(ran) => Err(HookFailure::Said {
                error: decide::exited(command, ran.exit_code, &ran.errors),
                output: ran.output,
            }),
            Err(exec::ProbeExecError::Timeout(_)) => Err(late()),
            Err(exec::ProbeExecError::Runtime(error)) => Err(HookFailure::new(error)),
        }
    }

    /// Any status is a success: upstream does not look at it.
    async fn get(
        &self,
        hook: &LifecycleHook<'_>,
        get: &HTTPGetAction,
        within: Duration,
    ) -> Result<(), HookFailure> {
        let named = get.host.as_deref().is_some_and(|host| !host.is_empty());
        let address = match hook.ips.first() {
            Some(address) => address.as_str(),
            None if named => "",
            None => return Err(HookFailure::new(decide::NO_ADDRESS)),
        };
        let target = HttpTarget::of(get, hook.container, address, RequestPurpose::Lifecycle);
        let target = target.map_err(HookFailure::new)?;
        let until = kernel::now() + within;
        match self.probe_client.get(&target, within).await {
            Ok(_) => Ok(()),
            // The head of the answer was there; the body is not needed.
            Err(error) if error.in_body() => Ok(()),
            Err(error) if error.speaks_http() => {
                let left = until.saturating_duration_since(kernel::now());
                self.fall_back_to_http(hook, &target, left)
                    .await
                    .map(drop)
                    .ok_or_else(|| HookFailure::new(error))
            }
            Err(error) if error.is_deadline() => Err(HookFailure::Late {
                error: error.to_string(),
            }),
            Err(error) => Err(HookFailure::new(error)),
        }
    }

    /// Repeats a request over HTTP where the server speaks no HTTPS, without the headers meant for HTTPS alone.
    async fn fall_back_to_http(
        &self,
        hook: &LifecycleHook<'_>,
        target: &HttpTarget,
        within: Duration,
    ) -> Option<HttpResponse> {
        let answer = self
            .probe_client
            .get(&target.in_plain_http(), within)
            .await
            .ok()?;
        metrics::pods::pod_starts::HOOK_HTTP_FALLBACKS.inc();
        let text = decide::fell_back(&target.authority());
        let about = InvolvedObject::pod(hook.pod, None);
        self.recorder.record(
            now(),
            EventType::Warning,
            about,
            decide::HTTP_FALLBACK,
            text,
        );
        Some(answer)
    }

    fn record(&self, hook: &LifecycleHook<'_>, (reason, text): (&str, &str)) {
        let about = InvolvedObject::pod(hook.pod, Some(&hook.container.name));
        self.recorder
            .record(now(), EventType::Warning, about, reason, text.to_owned());
    }
}

async fn sleep(seconds: i64, within: Duration) -> Result<(), HookFailure> {
    let wanted = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(MAX_SLEEP);
    tokio::time::sleep(wanted.min(within)).await;
    match wanted <= within {
        true => Ok(()),
        false => {
            metrics::pods::pod_starts::SLEEPS_CUT.inc();
            Err(HookFailure::Late {
                error: decide::SLEEP_ENDED.to_owned(),
            })
        }
    }
}

fn now() -> Timestamp {
    kernel::timestamp()
}
