//! The sandbox that a pod's containers share: names, addresses, namespaces, kernel settings.

use held_port::HeldPort;
use integration::http;
use proto::cri;
use serde_json::json;

use super::*;

on_each_runtime! {
    a_sandbox_that_cannot_be_had_says_why,
}

mod kernel {
    use super::*;

    on_real_runtimes! {
        a_pod_has_names_settings_and_a_port_of_its_own,
        a_runtime_class_from_the_folder_of_objects_names_the_handler,
        a_pod_waits_for_the_runtimes_network_and_says_so,
        a_pod_in_the_hosts_network_sees_the_hosts_names,
    }
}

/// The network is ready as long as it has a CNI configuration.
async fn a_pod_waits_for_the_runtimes_network_and_says_so(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let mut files = fs::read_dir(node_rig.networks()).unwrap();
    let given = files.next().unwrap().unwrap().path();
    let away = given.with_extension("away");
    fs::rename(&given, &away).unwrap();
    let runtime = node_rig.cri().await.runtime();
    let is_down = async || {
        let request = cri::StatusRequest { verbose: false };
        let status = runtime.clone().status(request).await.unwrap().into_inner();
        let conditions = status.status.unwrap().conditions.into_iter();
        conditions
            .clone()
            .any(|one| one.r#type == "NetworkReady" && !one.status)
    };
    let waited = wait_until(CONVERGENCE_TIMEOUT, "the network is not ready", is_down);
    waited.await.unwrap();
    let app = || json!({ "containers": [container_of("app", SERVE_ON)] });
    let of_the_host = with(app(), json!({ "hostNetwork": true }));
    node_rig.drop_pod(&pod("web", app()));
    node_rig.drop_pod(&pod("host", of_the_host));
    node_rig.until_running("host").await;
    let words = ["network is not ready: container runtime network not ready: NetworkReady=false"];
    node_rig.until_event("NetworkNotReady", &words).await;
    assert_eq!(node_rig.cri().await.sandboxes().await.unwrap().len(), 1);
    fs::rename(&away, &given).unwrap();
    node_rig.until_running("web").await;
}

fn has_line(said: &[String], words: &[&str]) -> bool {
    said.iter()
        .any(|line| line.split_whitespace().eq(words.iter().copied()))
}

async fn a_pod_has_names_settings_and_a_port_of_its_own(on: TestRuntime) {
    let dns = json!({ "clusterDomain": "cluster.example" });
    let Some(node_rig) = on.start_with(|builder| builder.config(&dns)).await else {
        return;
    };
    let tell = format!(
        "cat /etc/hosts /etc/resolv.conf; echo name $(hostname); \
         echo ports $(cat /proc/sys/net/ipv4/ip_local_port_range); \
         echo shm $(cat /proc/sys/kernel/shm_rmid_forced); echo done; {SERVE_ON}"
    );
    let held_port = HeldPort::pick().unwrap();
    let port = held_port.number();
    let page =
        format!("mkdir /www; echo hello > /www/index.html; httpd -p 8080 -h /www; {SERVE_ON}");
    let published = json!({ "ports": [{ "containerPort": 8080, "hostPort": port }] });
    node_rig.drop_pod(&pod(
        "named",
        json!({
            "hostname": "front", "subdomain": "web", "shareProcessNamespace": true,
            "hostAliases": [{ "ip": "192.0.2.7", "hostnames": ["alias.example.org", "other.example.org"] }],
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": ["192.0.2.53"], "searches": ["example.org"],
                "options": [{ "name": "ndots", "value": "3" }, { "name": "edns0" }],
            },
            "securityContext": { "sysctls": [
                { "name": "net.ipv4.ip_local_port_range", "value": "20000 30000" },
                { "name": "kernel.shm_rmid_forced", "value": "1" },
            ] },
            "containers": [container_of("app", &tell), with(container_of("page", &page), published)],
        }),
    ));
    let pod = node_rig.until_running("named").await;
    let said = node_rig.until_done(&pod, "app").await;
    let ip = pod.status.as_ref().unwrap().pod_ip.clone().unwrap();
    assert_eq!(said[0], "# Kubernetes-managed hosts file.");
    let lines: [&[&str]; 9] = [
        &["127.0.0.1", "localhost"],
        &[&ip, "front.web.default.svc.cluster.example", "front"],
        &["192.0.2.7", "alias.example.org", "other.example.org"],
        &["nameserver", "192.0.2.53"],
        &["search", "example.org"],
        &["options", "ndots:3", "edns0"],
        &["name", "front"],
        &["ports", "20000", "30000"],
        &["shm", "1"],
    ];
    for line in lines {
        assert!(has_line(&said, line), "{line:?} is not in {said:#?}");
    }
    let processes = node_rig.exec(&pod, "app", &["ps", "-o", "args"]).await;
    assert!(
        processes.contains("httpd -p 8080"),
        "the other container's: {processes}"
    );

    // Through the pod's own address, and through the node's port where the machine can publish one.
    let page = node_rig
        .exec(
            &pod,
            "app",
            &["wget", "-q", "-O", "-", &format!("http://{ip}:8080/")],
        )
        .await;
    assert_eq!(page, "hello\n");
    wait_until(CONVERGENCE_TIMEOUT, "the node's port answers", async || {
        let answer = http::get(port, "/index.html").await;
        answer.is_ok_and(|answer| answer.text() == "hello\n")
    })
    .await
    .unwrap();
    node_rig.remove_pod("named");
    node_rig.until_gone("named").await;
    assert!(
        http::get(port, "/index.html").await.is_err(),
        "the port is given back"
    );
}

async fn a_pod_in_the_hosts_network_sees_the_hosts_names(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let tell = format!(
        "cat /etc/hosts; echo name $(hostname); readlink /proc/self/ns/net; echo done; {SERVE_ON}"
    );
    let pod = pod(
        "near",
        json!({
            "hostNetwork": true,
            "hostAliases": [{ "ip": "192.0.2.7", "hostnames": ["alias.example.org"] }],
            "containers": [container_of("app", &tell)],
        }),
    );
    node_rig.drop_pod(&pod);
    let pod = node_rig.until_running("near").await;
    let said = node_rig.until_done(&pod, "app").await;
    assert_eq!(said[0], "# Kubernetes-managed hosts file (host network).");
    let hosts = fs::read_to_string("/etc/hosts").unwrap();
    for line in hosts.lines().filter(|line| !line.is_empty()) {
        assert!(
            said.contains(&line.to_owned()),
            "{line} is not in {said:#?}"
        );
    }
    assert!(
        has_line(&said, &["192.0.2.7", "alias.example.org"]),
        "{said:#?}"
    );
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(has_line(&said, &["name", name.trim()]), "{said:#?}");
    let network = fs::read_link("/proc/self/ns/net")
        .unwrap()
        .display()
        .to_string();
    assert!(said.contains(&network), "{network} is not in {said:#?}");
}

async fn a_sandbox_that_cannot_be_had_says_why(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let app = || json!([container_of("app", SERVE_ON)]);
    let sysctls = json!({ "sysctls": [{ "name": "kernel.msgmax", "value": "65536" }] });
    node_rig.drop_pod(&pod(
        "tuned",
        json!({ "securityContext": sysctls, "containers": app() }),
    ));
    node_rig.drop_pod(&pod(
        "classed",
        json!({ "runtimeClassName": "small", "containers": app() }),
    ));
    if on == TestRuntime::Containerd {
        node_rig.drop_pod(&pod(
            "apart",
            json!({ "hostUsers": false, "containers": app() }),
        ));
    }
    let tuned = node_rig
        .until("tuned", "has failed", |pod| phase(pod) == "Failed")
        .await;
    let status = tuned.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("SysctlForbidden"));
    assert!(
        status
            .message
            .unwrap_or_default()
            .contains("\"kernel.msgmax\"")
    );
    node_rig
        .until_event(
            "FailedCreatePodSandBox",
            &["runtimeclass.node.k8s.io \"small\" not found"],
        )
        .await;
    if on == TestRuntime::Containerd {
        let words = [
            "can't set `spec.hostUsers: false`",
            "does not support user namespaces",
        ];
        node_rig.until_event("FailedCreatePodSandBox", &words).await;
    }
    assert!(node_rig.cri().await.sandboxes().await.unwrap().is_empty());
}

async fn a_runtime_class_from_the_folder_of_objects_names_the_handler(on: TestRuntime) {
    let folder = tempfile::tempdir().unwrap();
    for (name, handler) in [("known", "runc"), ("unknown", "nowhere")] {
        let class = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": name }, "handler": handler,
        });
        fs::write(
            folder.path().join(format!("{name}.json")),
            class.to_string(),
        )
        .unwrap();
    }
    let flag = format!("--object-manifests={}", folder.path().display());
    let Some(node_rig) = on.start_with(|builder| builder.flag(flag)).await else {
        return;
    };
    for class in ["known", "unknown"] {
        let app = json!([container_of("app", SERVE_ON)]);
        node_rig.drop_pod(&pod(
            class,
            json!({ "runtimeClassName": class, "containers": app }),
        ));
    }
    node_rig.until_running("known").await;
    let sandboxes = node_rig.cri().await.sandboxes().await.unwrap();
    let handlers: Vec<&str> = sandboxes
        .iter()
        .map(|sandbox| sandbox.runtime_handler.as_str())
        .collect();
    assert_eq!(handlers, ["runc"]);
    node_rig
        .until_event(
            "FailedCreatePodSandBox",
            &["Failed to create pod sandbox", "\"nowhere\""],
        )
        .await;
}
