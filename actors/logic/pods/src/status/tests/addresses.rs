//! Addresses of pods and of their node.

use super::*;

fn told(status: &PodStatus) -> Vec<&str> {
    let list = status.pod_ips.iter().flatten();
    list.map(|ip| ip.ip.as_str()).collect()
}

/// Upstream's TestEventedPLEG_getPodIPs and TestRelistIPChange: both families, and each state of the sandboxes.
#[test]
fn a_pod_that_is_down_keeps_its_addresses_until_a_sandbox_is_up_again() {
    for known in [&["192.168.1.5"][..], &["192.168.1.5", "2000::"]] {
        let mut scene = scene(pod("p").app("c"));
        scene.runtime.sandboxes[0].ips.clear();
        assert_eq!(told(&scene.step()), [""; 0]);
        scene.runtime.sandboxes[0].ips = known.iter().map(|ip| (*ip).to_owned()).collect();
        scene.runtime = scene.runtime.running(&scene.pod, "c");
        assert_eq!(told(&scene.step()), known);

        scene.runtime.containers[0].state = Seen::Exited;
        scene.runtime.sandboxes[0].ips.clear();
        scene.runtime = scene.runtime.with_sandbox(SandboxState::NotReady);
        let status = scene.step();
        assert_eq!(told(&status), known);
        assert_eq!(status.pod_ip.as_deref(), Some(known[0]));
        let sandboxes = std::mem::take(&mut scene.runtime.sandboxes);
        assert_eq!(told(&scene.step()), known, "they have been removed");

        // The successor has no address yet.
        scene.runtime.sandboxes = sandboxes;
        let mut successor = scene.runtime.sandboxes[0].clone();
        (successor.id, successor.attempt, successor.state) = ("s1".into(), 1, SandboxState::Ready);
        scene.runtime.sandboxes.push(successor);
        assert_eq!(told(&scene.step()), [""; 0]);
        scene.runtime.sandboxes[1].ips = vec!["10.0.0.10".into()];
        assert_eq!(told(&scene.step()), ["10.0.0.10"]);
    }
}

/// Upstream's TestGenerateAPIPodStatusPodIPs, TestSortPodIPs and
/// TestGenerateAPIPodStatusHostNetworkPodIPs.
#[test]
fn addresses_are_one_a_family_and_the_nodes_on_its_network() {
    let list = |ips: &[&str]| ips.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
    let cases = [
        (list(&["10.0.0.1"]), list(&["1.1.1.1"]), list(&["10.0.0.1"])),
        (
            list(&["fd00::1", "10.0.0.1"]),
            list(&["1.1.1.1"]),
            list(&["10.0.0.1", "fd00::1"]),
        ),
        (
            list(&["10.0.0.1", "fd00::1"]),
            list(&["fe80::1"]),
            list(&["fd00::1", "10.0.0.1"]),
        ),
        (
            list(&["10.0.0.1", "10.0.0.2", "fd00::1"]),
            list(&[]),
            list(&["10.0.0.1", "fd00::1"]),
        ),
        (list(&[""]), list(&["1.1.1.1"]), list(&[])),
        (
            list(&["10.0.0.1"]),
            list(&["fd00::5678"]),
            list(&["10.0.0.1"]),
        ),
        (list(&["fd01::1234"]), list(&[]), list(&["fd01::1234"])),
        (
            list(&["010.000.000.001", "fd01:0:0:0:0:0:0:1234"]),
            list(&[]),
            list(&["10.0.0.1", "fd01::1234"]),
        ),
    ];
    for (ips, host, expected) in cases {
        assert_eq!(pod_addresses(&ips, &host), expected, "{ips:?} on {host:?}");
    }
    let mut scene = scene(
        pod("p")
            .app("c")
            .spec_with(|spec| spec.host_network = Some(true)),
    );
    scene.runtime.sandboxes[0].host_network = true;
    scene.runtime.sandboxes[0].ips.clear();
    let status = scene.status();
    assert_eq!(status.pod_ip.as_deref(), Some("192.168.0.1"));
    assert_eq!(
        condition(&status, "PodReadyToStartContainers").status,
        "True"
    );
    // A second address that the node gets later becomes the pod's, too; what the runtime says comes first.
    scene.host_ips = list(&["10.0.0.1", "fd01::1234"]);
    let ips = |status: PodStatus| -> Vec<String> {
        status
            .pod_ips
            .into_iter()
            .flatten()
            .map(|ip| ip.ip)
            .collect()
    };
    assert_eq!(ips(scene.status()), ["10.0.0.1", "fd01::1234"]);
    scene.runtime.sandboxes[0].ips = list(&["192.168.0.1"]);
    assert_eq!(ips(scene.status()), ["192.168.0.1", "fd01::1234"]);
    scene.runtime.sandboxes[0].ips = list(&["2001:db8::2", "192.168.0.1"]);
    assert_eq!(ips(scene.status()), ["192.168.0.1", "2001:db8::2"]);
    scene.runtime = scene.runtime.with_sandbox(SandboxState::NotReady);
    assert_eq!(
        condition(&scene.status(), "PodReadyToStartContainers").status,
        "False"
    );
}
