//! Tells the runtime of a node without an API server which addresses its pods have (`podCIDR`).
//!
//! - **Owns** whether the runtime knows.
//! - **Hears** its own timer, and the runtime's answer.
//! - **Tells** nobody.
//! - **Never** stays with a runtime that has not answered: it asks again.
//!
//! With an API server the ranges are the node object's, which `node_health` tells.
//!
//! Upstream: `updatePodCIDR` of pkg/kubelet/kubelet_network.go (1.36).

use std::time::Duration;

use clients::runtime::{RuntimeClient, RuntimeError};
use kernel::{Actor, Context, Exit};
use serde::Serialize;

/// Room for its own timer.
pub const MAILBOX: usize = 4;
/// After a runtime that has not taken them.
const RETRY_PERIOD: Duration = Duration::from_secs(10);

/// Messages of the teller.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Tells the runtime.
    Send,
    /// Takes note of the runtime's answer, and tells it again later if it refused.
    Sent(Result<(), RuntimeError>),
}

/// Whether the runtime knows.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pod_cidr: String,
    pub is_known: bool,
}

/// Tells the runtime the addresses of pods.
#[derive(Debug)]
pub struct PodCidr {
    runtime: RuntimeClient,
    pod_cidr: String,

    is_known: bool,
}

impl Actor for PodCidr {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.send(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Send => self.send(ctx),
            Msg::Sent(answer) => self.sent(answer, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            pod_cidr: self.pod_cidr.clone(),
            is_known: self.is_known,
        }
    }
}

impl PodCidr {
    pub fn new(runtime: RuntimeClient, pod_cidr: String) -> Self {
        PodCidr {
            runtime,
            pod_cidr,
            is_known: false,
        }
    }

    fn send(&mut self, ctx: &mut Context<Msg>) {
        let (runtime, pod_cidr) = (self.runtime.clone(), self.pod_cidr.clone());
        ctx.run(async move { Msg::Sent(runtime.tell_pod_ranges(&pod_cidr).await) });
    }

    fn sent(&mut self, answer: Result<(), RuntimeError>, ctx: &mut Context<Msg>) {
        match answer {
            Ok(()) => {
                tracing::info!(
                    ranges = self.pod_cidr,
                    "the runtime knows the addresses of pods"
                );
                self.is_known = true;
            }
            Err(error) => {
                tracing::warn!(
                    "the runtime is not told the addresses of pods: {}",
                    error.describe()
                );
                ctx.after(RETRY_PERIOD, Msg::Send);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::testing::{pass, run_paused};
    use kernel::{ChildSpec, mailbox};
    use pods::testing::TestNode;

    use super::*;

    #[test]
    fn the_runtime_of_a_node_that_is_alone_is_told_until_it_has_heard() {
        run_paused(|| async {
            let node = TestNode::start().await;
            let fault = r#"{"call": "UpdateRuntimeConfig", "times": 1, "code": "Internal", "message": "no"}"#;
            node.script(&format!(r#"{{"faults": [{fault}]}}"#));
            let runtime = node.runtime.clone();
            let root = &node.node.root;
            let (_, port) = mailbox(MAILBOX);
            root.spawn(ChildSpec::permanent("pod-cidr"), port, move || {
                PodCidr::new(runtime.clone(), "10.0.0.0/24".to_owned())
            });
            let is_known = async || {
                let tree = root.tree().await;
                tree.find("oxlet/pod-cidr").unwrap().snapshot["is_known"] == true
            };
            pass(Duration::from_secs(5)).await;
            assert!(!is_known().await);
            pass(RETRY_PERIOD).await;
            assert!(is_known().await);
        });
    }
}
