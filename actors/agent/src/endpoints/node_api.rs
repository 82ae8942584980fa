//! Answers the HTTPS API's requests from the node's actors and its runtime.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use clients::runtime::{self, RuntimeClient, RuntimeError};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kernel::{Addr, AskError};
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, ContainerState, PodUid, RuntimeContainer, RuntimePod};
use logic_resources::cgroups::CgroupDriver;
use logic_resources::summary::SummaryScope;
use pods::pod_manager;
use resources::stats::SummaryProvider;
use serving::healthz::HealthChecks;
use serving::http::HandlerResponse;
use serving::node::{
    Attach, ComponentInfo, ContainerCheckpointRequest, Detail, Exec, KubeletHost, Metrics,
    NodeError, PodsWithStatuses, RemoteCommandOptions, RunCommand,
};
use state::status;

use super::admin::{Console, ContainerCheckpoints};
use super::healthz::NodeHealth;
use crate::logging;

/// The managers answer from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// A command run for a caller may take as long as upstream's default request timeout.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// The actors and clients that the API's answers come from.
#[derive(Debug, Clone)]
pub struct NodeApiPeers {
    pub runtime: RuntimeClient,
    pub pod_manager: Addr<pod_manager::Msg>,
    pub statuses: Addr<status::Msg>,
    pub health: NodeHealth,
    pub checkpoints: ContainerCheckpoints,
    pub console: Console,
    pub summaries: SummaryProvider,
    pub constant: Rc<AgentDescription>,
}

/// What stays the same while the agent runs.
#[derive(Debug)]
pub struct AgentDescription {
    /// What `/configz` answers, but for the cgroup driver that the runtime reports.
    pub config: serde_json::Value,
    pub flags: BTreeMap<String, String>,
    pub version: String,
    pub started: SystemTime,
}

/// The node, as the HTTPS API sees it.
#[derive(Debug, Clone)]
pub struct NodeApi(pub NodeApiPeers);

impl HealthChecks for NodeApi {
    fn names(&self) -> &'static [&'static str] {
        self.0.health.names()
    }

    async fn check(&self, name: &str) -> Option<Result<(), String>> {
        self.0.health.check(name).await
    }
}

impl KubeletHost for NodeApi {
    async fn pods(&self) -> Result<PodsWithStatuses, NodeError> {
        let pods = self.0.pod_manager.ask(ASK_TIMEOUT, pod_manager::Msg::all);
        let statuses = self
            .0
            .statuses
            .ask(ASK_TIMEOUT, |reply| status::Msg::All { reply });
        Ok(PodsWithStatuses {
            pods: pods.await.map_err(silent)?,
            statuses: statuses.await.map_err(silent)?,
        })
    }

    async fn running_pods(&self) -> Result<Vec<Pod>, NodeError> {
        let pods = self.0.runtime.pods().await.map_err(node_error)?;
        let running = pods.values().filter(|pod| !pod.is_stopped());
        let mut running: Vec<&RuntimePod> = running.collect();
        // The newest first, as upstream lists them.
        running.sort_by_key(|pod| Reverse(pod.newest_sandbox().and_then(|s| s.created_at)));
        Ok(running.into_iter().map(as_seen).collect())
    }

    async fn exec(&self, wanted: Exec) -> Result<String, NodeError> {
        let id = self.called(&wanted.pod, &wanted.container).await?;
        let streams = streams(wanted.streams);
        let url = self.0.runtime.exec(&id, &wanted.command, streams);
        url.await.map_err(node_error)
    }

    async fn attach(&self, wanted: Attach) -> Result<String, NodeError> {
        let there = self.running(&wanted.pod, &wanted.container).await?;
        let id = there.ok_or_else(|| {
            let (container, pod) = (&wanted.container, &wanted.pod);
            let pod = format!("{}_{}", pod.name(), pod.namespace());
            NodeError::Failed(format!("container {container} not found in pod {pod}"))
        })?;
        let url = self.0.runtime.attach(&id, streams(wanted.streams));
        url.await.map_err(node_error)
    }

    async fn port_forward(&self, pod: &Pod, ports: Vec<i32>) -> Result<String, NodeError> {
        let seen = self.0.runtime.pod(&pod.uid()).await.map_err(node_error)?;
        let sandbox = seen.newest_sandbox().filter(|sandbox| sandbox.is_ready());
        let sandbox = sandbox.ok_or_else(|| NodeError::Failed(no_sandbox(pod, &seen)))?;
        let url = self.0.runtime.port_forward(&sandbox.id, &ports);
        url.await.map_err(node_error)
    }

    async fn run(&self, wanted: RunCommand) -> Result<Vec<u8>, NodeError> {
        let id = self.called(&wanted.pod, &wanted.container).await?;
        let output = self.0.runtime.exec_sync(&id, &wanted.command, RUN_TIMEOUT);
        let output = output.await.map_err(node_error)?;
        let mut both = output.stdout;
        both.extend_from_slice(&output.stderr);
        match output.exit_code {
            0 => Ok(both),
            code => Err(NodeError::Failed(format!("command exited with {code}"))),
        }
    }

    async fn checkpoint(&self, wanted: ContainerCheckpointRequest) -> Result<String, NodeError> {
        let within = wanted.timeout.unwrap_or_default();
        let taken = self
            .0
            .checkpoints
            .take(&wanted.pod, &wanted.container, within);
        let archives = taken.await.map_err(|error| {
            let code = error.status();
            let text = kernel::error_chain(&error);
            match code.as_u16() {
                404 => NodeError::NotFound(text),
                _ => NodeError::Failed(text),
            }
        })?;
        let path = archives.items.first();
        Ok(path
            .map(|path| path.display().to_string())
            .unwrap_or_default())
    }

    async fn log_path(&self, container: &ContainerId) -> Result<PathBuf, NodeError> {
        let log_status = self.0.runtime.log_status(container).await;
        Ok(log_status.map_err(node_error)?.log_path)
    }

    async fn is_running(&self, container: &ContainerId) -> Result<bool, NodeError> {
        let log_status = self.0.runtime.log_status(container).await;
        Ok(log_status.map_err(node_error)?.is_running)
    }

    async fn metrics(&self, which: Metrics) -> Result<String, NodeError> {
        match which {
            Metrics::Own => Ok(self.0.summaries.metrics_text().await),
            Metrics::Probes => Ok(metrics::probes()),
            Metrics::Resource => Ok(self.0.summaries.resource_metrics().await),
            Metrics::Slis => Ok(metrics::slis::text()),
            Metrics::Cadvisor => Ok(self.0.summaries.cadvisor_metrics().await),
        }
    }

    async fn summary(&self, detail: Detail) -> Result<Vec<u8>, NodeError> {
        let scope = match detail {
            Detail::Everything => SummaryScope::Everything,
            Detail::OnlyCpuAndMemory => SummaryScope::CpuAndMemory,
        };
        let summary = self.0.summaries.summary(scope);
        let summary = summary
            .await
            .map_err(|error| NodeError::Failed(kernel::error_chain(&error)))?;
        serde_json::to_vec(&*summary).map_err(|error| NodeError::Failed(error.to_string()))
    }

    async fn configz(&self) -> Result<Vec<u8>, NodeError> {
        let reported = *self.0.runtime.cgroup_driver().borrow();
        let shown = shown_config(&self.0.constant.config, reported);
        Ok(shown.to_string().into_bytes())
    }

    async fn console(&self, path: &str) -> HandlerResponse {
        self.0.console.answer(path).await
    }

    fn flags(&self) -> BTreeMap<String, String> {
        self.0.constant.flags.clone()
    }

    fn about(&self) -> ComponentInfo {
        let version = &self.0.constant.version;
        let emulates = version.split('+').next().unwrap_or_default();
        ComponentInfo {
            started: self.0.constant.started,
            version: version.clone(),
            emulates: emulates.to_owned(),
        }
    }

    fn set_verbosity(&self, level: u32) -> Result<(), String> {
        logging::set_verbosity(level)
    }
}

impl NodeApi {
    /// The id of the container that runs now, for a command in it.
    async fn called(&self, pod: &Pod, container: &str) -> Result<ContainerId, NodeError> {
        let running = self.running(pod, container).await?;
        running.ok_or_else(|| NodeError::Failed(format!("container not found ({container:?})")))
    }

    /// The id of the container that runs now, if it does.
    async fn running(&self, pod: &Pod, container: &str) -> Result<Option<ContainerId>, NodeError> {
        let seen = self.0.runtime.pod(&pod.uid()).await.map_err(node_error)?;
        let running = seen
            .newest(container)
            .filter(|one| one.state == ContainerState::Running);
        Ok(running.map(|one| one.id.clone()))
    }
}

/// Why no port of a pod can be forwarded, in upstream's words: nothing of it runs, or its sandbox alone is down.
fn no_sandbox(pod: &Pod, seen: &RuntimePod) -> String {
    let name = format!("{}_{}", pod.name(), pod.namespace());
    match seen.is_stopped() {
        true => format!("pod not found ({name:?})"),
        false => format!("failed to find sandboxID for pod {name}({})", pod.uid()),
    }
}

fn streams(wanted: RemoteCommandOptions) -> runtime::StreamOptions {
    runtime::StreamOptions {
        stdin: wanted.stdin,
        stdout: wanted.stdout,
        stderr: wanted.stderr,
        tty: wanted.tty,
    }
}

fn node_error(error: RuntimeError) -> NodeError {
    match error.is_not_found() {
        true => NodeError::NotFound(error.describe()),
        false => NodeError::Failed(error.describe()),
    }
}

fn silent(error: AskError) -> NodeError {
    NodeError::Failed(format!("the pods are not known: {error}"))
}

/// A pod made of the runtime's state, as upstream's `ToAPIPod`.
fn as_seen(pod: &RuntimePod) -> Pod {
    let container = |container: &RuntimeContainer| k8s_openapi::api::core::v1::Container {
        name: container.name.clone(),
        image: Some(container.image.clone()),
        ..Default::default()
    };
    let running = pod
        .containers
        .iter()
        .filter(|one| one.state == ContainerState::Running);
    Pod {
        metadata: ObjectMeta {
            uid: Some(PodUid::as_str(&pod.uid).to_owned()),
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: running.map(container).collect(),
            ..PodSpec::default()
        }),
        status: Some(PodStatus::default()),
    }
}

/// The configuration with the runtime's cgroup driver, where it reports one: that one is in use.
fn shown_config(config: &serde_json::Value, reported: Option<CgroupDriver>) -> serde_json::Value {
    let mut shown = config.clone();
    if let Some(driver) = reported {
        shown["kubeletconfig"]["cgroupDriver"] = match driver {
            CgroupDriver::Cgroupfs => "cgroupfs".into(),
            CgroupDriver::Systemd => "systemd".into(),
        };
    }
    shown
}

/// The JSON of `/configz`. The headers of the manifests' URL and its query, which may hold a token, are masked, as
/// upstream masks the headers in its log.
pub fn configz(kubelet: &config::KubeletConfiguration) -> serde_json::Value {
    const MASKED: &str = "<masked>";
    let mut kubelet = kubelet.clone();
    for values in kubelet.static_pod_url_header.0.values_mut() {
        *values = vec![MASKED.to_owned()];
    }
    if let Some((url, _)) = kubelet.static_pod_url.split_once('?') {
        kubelet.static_pod_url.0 = format!("{url}?{MASKED}");
    }
    let mut value = serde_json::to_value(kubelet).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("kind".into(), config::KIND.into());
        fields.insert("apiVersion".into(), config::API_VERSION.into());
    }
    serde_json::json!({ "kubeletconfig": value })
}

/// Every flag of the agent and the kubelet that is no field of the configuration, for `/flagz`.
pub fn flags(flags: &config::KubeletFlags) -> BTreeMap<String, String> {
    let value = serde_json::to_value(flags).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    let text = |value: &serde_json::Value| {
        let plain = value.as_str().map(str::to_owned);
        plain.unwrap_or_else(|| value.to_string())
    };
    fields
        .map(|(name, value)| (name.clone(), text(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;

    use super::*;

    /// Upstream's TestGetPortForward.
    #[test]
    fn a_pod_of_which_nothing_runs_is_not_found_for_its_ports() {
        let pod = pod("p").app("c");
        let nothing = RuntimePod::default();
        assert_eq!(no_sandbox(&pod, &nothing), "pod not found (\"p_default\")");
        let mut alone = runtime(&pod).running(&pod, "c");
        alone.sandboxes.clear();
        let text = format!("failed to find sandboxID for pod p_default({})", pod.uid());
        assert_eq!(no_sandbox(&pod, &alone), text);
    }
}
