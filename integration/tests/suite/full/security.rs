//! The credentials and privileges of a container's processes, as the kernel shows them.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;

mod fake {
    #[tokio::test]
    async fn a_root_image_does_not_run_as_anybody_else() {
        super::a_root_image_does_not_run_as_anybody_else(super::TestRuntime::Fake).await;
    }
    #[tokio::test]
    async fn a_status_tells_whose_the_processes_are() {
        super::a_status_tells_whose_the_processes_are(super::TestRuntime::Fake).await;
    }
}

/// containerd tells it from 2.0 on.
mod told {
    use super::{TestRuntime, a_status_tells_whose_the_processes_are};

    mod native {
        #[tokio::test]
        async fn a_status_tells_whose_the_processes_are() {
            super::a_status_tells_whose_the_processes_are(super::TestRuntime::Native).await;
        }
    }
}

on_real_runtimes! {
    a_root_image_does_not_run_as_anybody_else,
    processes_are_who_the_pod_says_and_may_what_it_says,
}

/// Tells its ids, whether it can write, and what the kernel holds of it.
const TELL: &str = "id -u; id -g; id -G; touch /written 2> /dev/null && echo written || echo refused; \
    grep -E '^(NoNewPrivs|CapEff|CapBnd|Seccomp):' /proc/self/status; echo done; \
    trap 'exit 0' TERM; while true; do sleep 0.2; done";

fn told(said: &[String]) -> BTreeMap<String, String> {
    let pairs = said.iter().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

fn bits(words: &BTreeMap<String, String>, key: &str) -> u64 {
    u64::from_str_radix(&words[key], 16).unwrap()
}

const CAP_CHOWN: u64 = 1;
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_NET_ADMIN: u64 = 1 << 12;

async fn processes_are_who_the_pod_says_and_may_what_it_says(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let limited = json!({
        "capabilities": { "drop": ["ALL"] }, "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false, "seccompProfile": { "type": "RuntimeDefault" },
    });
    let other = json!({ "runAsUser": 0, "runAsGroup": 7, "capabilities": { "add": ["NET_ADMIN"], "drop": ["CHOWN"] } });
    node_rig.drop_pod(&pod(
        "secure",
        json!({
            "securityContext": { "runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "supplementalGroups": [4000] },
            "containers": [
                with(container_of("limited", TELL), json!({ "securityContext": limited })),
                with(container_of("other", TELL), json!({ "securityContext": other })),
                with(container_of("mighty", TELL), json!({ "securityContext": { "privileged": true, "runAsUser": 0 } })),
            ],
        }),
    ));
    let pod = node_rig.until_running("secure").await;
    let said = node_rig.until_done(&pod, "limited").await;
    assert_eq!(said[..2], ["1000", "3000"], "{said:?}");
    let groups: Vec<&str> = said[2].split(' ').collect();
    assert!(
        ["3000", "2000", "4000"]
            .iter()
            .all(|group| groups.contains(group)),
        "{said:?}"
    );
    assert!(said.contains(&"refused".to_owned()), "{said:?}");
    let words = told(&said);
    assert_eq!(
        (bits(&words, "CapEff"), bits(&words, "CapBnd")),
        (0, 0),
        "{said:?}"
    );
    assert_eq!(
        (words["NoNewPrivs"].as_str(), words["Seccomp"].as_str()),
        ("1", "2"),
        "{said:?}"
    );

    let said = node_rig.until_done(&pod, "other").await;
    assert_eq!(said[..2], ["0", "7"], "{said:?}");
    assert!(said.contains(&"written".to_owned()), "{said:?}");
    let words = told(&said);
    let held = bits(&words, "CapEff") & (CAP_CHOWN | CAP_NET_ADMIN | CAP_SYS_ADMIN);
    assert_eq!(held, CAP_NET_ADMIN, "{said:?}");
    assert_eq!(
        (words["NoNewPrivs"].as_str(), words["Seccomp"].as_str()),
        ("0", "0"),
        "{said:?}"
    );

    let said = node_rig.until_done(&pod, "mighty").await;
    let words = told(&said);
    assert_ne!(bits(&words, "CapEff") & CAP_SYS_ADMIN, 0, "{said:?}");
    assert_eq!(
        (words["NoNewPrivs"].as_str(), words["Seccomp"].as_str()),
        ("0", "0"),
        "{said:?}"
    );
}

async fn a_root_image_does_not_run_as_anybody_else(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let careful = json!({ "securityContext": { "runAsNonRoot": true } });
    node_rig.drop_pod(&pod(
        "careful",
        json!({ "containers": [with(container_of("app", SERVE_ON), careful), container_of("well", SERVE_ON)] }),
    ));
    let pod = node_rig
        .until("careful", "waits", |pod| {
            let well = container(pod, "well").is_some_and(is_running);
            well && waiting(pod, "app").0 == "CreateContainerConfigError"
        })
        .await;
    let (_, message) = waiting(&pod, "app");
    let begins =
        "container has runAsNonRoot and image will run as root (pod: \"careful-node_default(";
    assert!(
        message.starts_with(begins) && message.ends_with("container: app)"),
        "{message}"
    );
    node_rig
        .until_event("Failed", &["Error: container has runAsNonRoot"])
        .await;
}

async fn a_status_tells_whose_the_processes_are(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let security = json!({ "runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000 });
    node_rig.drop_pod(&pod(
        "known",
        json!({ "securityContext": security, "containers": [container_of("app", SERVE_ON)] }),
    ));
    let pod = node_rig.until_running("known").await;
    let user = container(&pod, "app")
        .unwrap()
        .user
        .clone()
        .unwrap()
        .linux
        .unwrap();
    assert_eq!((user.uid, user.gid), (1000, 3000));
    assert!(user.supplemental_groups.unwrap_or_default().contains(&2000));
}
