//! The drop-in that makes the agent the service of a node of a cluster, beside the files that kubeadm writes.

use super::*;

const UNIT: &str = include_str!("../../../service/oxlet.service");
const DROP_IN: &str = include_str!("../../../service/90-kubeadm.conf");
const CONFIG_FILE: &str = "/var/lib/kubelet/config.yaml";
const FLAGS_FILE: &str = "/var/lib/kubelet/kubeadm-flags.env";

/// What kubeadm writes to its flags file.
const FLAGS: &str = "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock \
    --hostname-override=Node-1 --register-with-taints=a=b:NoSchedule --pod-infra-container-image=localhost/pause:3.10\"\n";

/// What kubeadm writes to /var/lib/kubelet/config.yaml.
const KUBEADM: &str = "
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: \"\"
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: \"0\"
    text:
      infoBufferSize: \"0\"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
";

/// The command line of the unit with the drop-in, as systemd has it where the machine has these files: a `$NAME` that stands
/// alone is the words of its value, or no word.
fn command_line(files: &[(&str, &str)]) -> Vec<String> {
    let assignment = |text: &str| {
        let (name, value) = text.trim().split_once('=').unwrap();
        (name.to_owned(), value.trim_matches('"').to_owned())
    };
    let mut environment = std::collections::HashMap::new();
    let mut command: Vec<&str> = Vec::new();
    for line in UNIT.lines().chain(DROP_IN.lines()) {
        let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        match name {
            "Environment" => environment.extend([assignment(value.trim_matches('"'))]),
            "EnvironmentFile" => {
                // The minus: it need not be there.
                let path = value.strip_prefix('-').unwrap();
                let found = files.iter().filter(|(name, _)| *name == path);
                environment.extend(found.flat_map(|(_, text)| text.lines().map(assignment)));
            }
            // Without a value it takes back what the unit says.
            "ExecStart" if value.is_empty() => command.clear(),
            "ExecStart" => command.extend(value.split_whitespace()),
            _ => {}
        }
    }
    let words = command.into_iter().flat_map(|word| {
        let value = word
            .strip_prefix('$')
            .map(|name| environment.get(name).cloned());
        let value = value.map_or_else(|| word.to_owned(), Option::unwrap_or_default);
        value
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    words.collect()
}

/// The configuration of an agent that is started so; kubeadm's file stands in the rig's folder.
fn started(rig: &Rig, files: &[(&str, &str)]) -> NodeConfig {
    let config = rig.file("config.yaml", KUBEADM);
    let words = command_line(files);
    let [program, flags @ ..] = &words[..] else {
        panic!("no program: {words:?}");
    };
    assert_eq!(program, "@bindir@/oxlet");
    let line = flags.join(" ");
    assert_eq!(line.matches(CONFIG_FILE).count(), 1, "{line}");
    rig.run(&line.replace(CONFIG_FILE, &config))
}

#[test]
fn the_drop_in_starts_the_agent_with_what_kubeadm_and_the_operator_have_written() {
    let rig = rig();
    let node = started(
        &rig,
        &[
            (FLAGS_FILE, FLAGS),
            (
                "/etc/default/kubelet",
                "KUBELET_EXTRA_ARGS=--node-ip=10.0.0.5\n",
            ),
            ("/etc/default/oxlet", "OXLET_ARGS=-v=4\n"),
        ],
    );
    assert_eq!(node.kubelet.static_pod_path, "/etc/kubernetes/manifests");
    assert_eq!(
        node.kubelet.container_runtime_endpoint,
        "unix:///var/run/containerd/containerd.sock"
    );
    assert_eq!(node.kubelet.sync_frequency.to_string(), "1m0s");
    assert_eq!(node.kubelet.read_only_port, 0);
    assert_eq!(node.flags.kubeconfig, "/etc/kubernetes/kubelet.conf");
    assert_eq!(
        (node.node_name.as_str(), node.node_ips.len()),
        ("node-1", 1)
    );
    assert_eq!(node.plugins.runtime, "containerd");
    assert_eq!(node.kubelet.logging.verbosity, 4);
    let [deprecated, removed] = node.warnings.as_slice() else {
        panic!("{:#?}", node.warnings)
    };
    assert!(deprecated.contains("--container-runtime-endpoint, --register-with-taints"));
    assert!(removed.contains("--pod-infra-container-image"));
    assert_eq!(
        node.flags.bootstrap_kubeconfig,
        "/etc/kubernetes/bootstrap-kubelet.conf"
    );
    let without = started(&rig, &[]);
    assert_eq!(without.flags.kubeconfig, "/etc/kubernetes/kubelet.conf");
    assert_eq!(without.warnings, [""; 0]);
}
