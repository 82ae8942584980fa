//! A machine that goes down waits for its pods.

use integration::agent::Node;
use integration::cluster::{ServerKind, condition};
use integration::doubles::logind::LogindDouble;

use super::*;

#[tokio::test]
async fn pods_end_in_the_order_of_their_priority_before_the_machine_goes_down() {
    for which in ServerKind::available() {
        let logind = LogindDouble::start().await.unwrap();
        let node = Node::builder().environment("DBUS_SYSTEM_BUS_ADDRESS", logind.address());
        let graces = json!({
            "shutdownGracePeriod": "30s",
            "shutdownGracePeriodCriticalPods": "10s",
        });
        let cluster = start_on(which, node.config(&graces)).await;
        let mut critical = pod("critical");
        critical["spec"]["priority"] = json!(2_000_000_000);
        critical["spec"]["priorityClassName"] = json!("system-cluster-critical");
        cluster.apply(&pod("usual")).unwrap();
        cluster.apply(&critical).unwrap();
        for name in ["usual", "critical"] {
            cluster
                .until_pod(name, CONVERGENCE_TIMEOUT, is_running)
                .await
                .unwrap();
        }
        cluster
            .wait("the machine would wait", async || logind.held() == 1)
            .await
            .unwrap();
        logind.prepare_for_shutdown(true).await.unwrap();
        let failed = |pod: &Value| pod["status"]["phase"] == "Failed";
        let mut ends = Vec::new();
        for name in ["usual", "critical"] {
            let ended = cluster
                .until_pod(name, CONVERGENCE_TIMEOUT, failed)
                .await
                .unwrap();
            assert_eq!(ended["status"]["reason"], "Terminated");
            assert_eq!(condition(&ended, "DisruptionTarget"), Some("True"));
            let state = &ended["status"]["containerStatuses"][0]["state"]["terminated"];
            ends.push(state["finishedAt"].as_str().unwrap().to_owned());
        }
        assert!(ends[0] <= ends[1], "{ends:?}");
        cluster
            .wait("the machine may go down", async || logind.held() == 0)
            .await
            .unwrap();
        let node = cluster.server.get("/api/v1/nodes/node").unwrap();
        assert_eq!(condition(&node, "Ready"), Some("False"));
        cluster.apply(&pod("late")).unwrap();
        let late = cluster
            .until_pod("late", CONVERGENCE_TIMEOUT, failed)
            .await
            .unwrap();
        assert_eq!(late["status"]["reason"], "NodeShutdown");

        logind.prepare_for_shutdown(false).await.unwrap();
        cluster
            .wait("the machine would wait again", async || logind.held() == 1)
            .await
            .unwrap();
        cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    }
}
