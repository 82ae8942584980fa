//! The API's defaults for a pod: what the API server writes into a pod that leaves fields out, done here for static
//! pods.
//!
//! Mirrors `pkg/apis/core/v1/defaults.go`, `zz_generated.defaults.go` and `conversion.go` (v1.36) with the feature
//! gates that are on by default. Applied twice it changes nothing.

mod resources;
mod volumes;

use k8s_openapi::api::core::v1::{
    Container, EnvVar, EphemeralContainer, HTTPGetAction, Lifecycle, LifecycleHandler,
    ObjectFieldSelector, Pod, PodSpec, Probe,
};

use crate::text::image_reference::ImageReference;

const TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";
const GRACE_SECONDS: i64 = 30;
/// Long gone ways to say `initContainers`; they must not be taken for it by anybody.
const DROPPED_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

pub(super) fn apply(pod: &mut Pod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, _| !DROPPED_ANNOTATIONS.contains(&key.as_str()));
    }
    let spec = pod.spec.get_or_insert_default();
    resources::apply(spec);
    spec.enable_service_links.get_or_insert(true);
    if spec.host_network == Some(true) {
        host_ports(&mut spec.containers);
        host_ports(spec.init_containers.as_deref_mut().unwrap_or_default());
    }
    of_spec(spec);
    spec.volumes.iter_mut().flatten().for_each(volumes::apply);
    spec.init_containers
        .iter_mut()
        .flatten()
        .for_each(container);
    spec.containers.iter_mut().for_each(container);
    spec.ephemeral_containers
        .iter_mut()
        .flatten()
        .for_each(ephemeral_container);
}

fn text(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(default.to_owned());
    }
}

fn number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}

fn of_spec(spec: &mut PodSpec) {
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.restart_policy, "Always");
    spec.security_context.get_or_insert_default();
    let grace = spec
        .termination_grace_period_seconds
        .get_or_insert(GRACE_SECONDS);
    if *grace < 0 {
        *grace = 1;
    }
    text(&mut spec.scheduler_name, "default-scheduler");
    if spec
        .service_account_name
        .as_deref()
        .unwrap_or_default()
        .is_empty()
    {
        spec.service_account_name.clone_from(&spec.service_account);
    }
}

fn host_ports(containers: &mut [Container]) {
    for port in containers
        .iter_mut()
        .flat_map(|container| container.ports.iter_mut().flatten())
    {
        number(&mut port.host_port, port.container_port);
    }
}

fn container(container: &mut Container) {
    let image = container.image.as_deref().unwrap_or_default();
    text(&mut container.image_pull_policy, pull_policy(image));
    text(
        &mut container.termination_message_path,
        TERMINATION_MESSAGE_PATH,
    );
    text(&mut container.termination_message_policy, "File");
    container
        .ports
        .iter_mut()
        .flatten()
        .for_each(|port| text(&mut port.protocol, "TCP"));
    container.env.iter_mut().flatten().for_each(env);
    [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ]
    .into_iter()
    .flatten()
    .for_each(probe);
    container.lifecycle.iter_mut().for_each(lifecycle);
}

fn ephemeral_container(container: &mut EphemeralContainer) {
    let image = container.image.as_deref().unwrap_or_default();
    text(&mut container.image_pull_policy, pull_policy(image));
    text(
        &mut container.termination_message_path,
        TERMINATION_MESSAGE_PATH,
    );
    text(&mut container.termination_message_policy, "File");
    container.env.iter_mut().flatten().for_each(env);
}

/// The tag `latest`, explicit or not, is always pulled; an invalid image name does not count as `latest`.
fn pull_policy(image: &str) -> &'static str {
    match ImageReference::parse(image) {
        Ok(reference) if reference.tag.as_deref() == Some("latest") => "Always",
        Ok(_) | Err(_) => "IfNotPresent",
    }
}

fn env(env: &mut EnvVar) {
    let Some(from) = &mut env.value_from else {
        return;
    };
    from.field_ref.iter_mut().for_each(field_ref);
    if let Some(file) = &mut from.file_key_ref {
        file.optional.get_or_insert(false);
    }
}

fn field_ref(field: &mut ObjectFieldSelector) {
    text(&mut field.api_version, "v1");
}

fn probe(probe: &mut Probe) {
    number(&mut probe.timeout_seconds, 1);
    number(&mut probe.period_seconds, 10);
    number(&mut probe.success_threshold, 1);
    number(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(http_get);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn lifecycle(lifecycle: &mut Lifecycle) {
    let handlers = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
    handlers
        .into_iter()
        .flatten()
        .for_each(|handler: &mut LifecycleHandler| {
            handler.http_get.iter_mut().for_each(http_get);
        });
}

fn http_get(action: &mut HTTPGetAction) {
    text(&mut action.path, "/");
    text(&mut action.scheme, "HTTP");
}
