//! `/healthz` for systemd, kubeadm and people (`healthzPort`, 10248).
//!
//! The checks ask the pod manager, and read the root supervisor. None fails for a degraded manager: restarting an
//! agent that is not healthy would stop what works without mending the rest. `/healthz/managers` shows it, and whose answer to a ping is due;
//! `/healthz/pleg` whether relists come through (upstream: the node's Ready condition).
//!
//! Upstream: staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go (1.36), whose texts these are.

use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use kernel::{Addr, Supervisor};
use pods::pod_manager;
use pods::runtime::pleg;
use serving::healthz::{HealthChecks, answer};
use serving::http::{HandlerResponse, RequestHandler, not_found};

/// The pod manager answers within microseconds; after this it is stuck.
const POD_MANAGER_TIMEOUT: Duration = Duration::from_secs(5);

const CHECKS: [HealthCheck; 5] = [
    HealthCheck::Ping,
    HealthCheck::Log,
    HealthCheck::SyncLoop,
    HealthCheck::Managers,
    HealthCheck::Pleg,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HealthCheck {
    Ping,
    /// Upstream checks that its log is flushed. This log has no buffer; the name is kept for clients.
    Log,
    SyncLoop,
    Managers,
    Pleg,
}

/// Runs the health checks.
#[derive(Debug, Clone)]
pub struct NodeHealth {
    pod_manager: Addr<pod_manager::Msg>,
    pleg: Addr<pleg::Msg>,
    root: Supervisor,
}

impl NodeHealth {
    pub fn new(
        pod_manager: Addr<pod_manager::Msg>,
        pleg: Addr<pleg::Msg>,
        root: Supervisor,
    ) -> Self {
        NodeHealth {
            pod_manager,
            pleg,
            root,
        }
    }

    async fn made(&self, check: HealthCheck) -> Result<(), String> {
        match check {
            HealthCheck::Ping | HealthCheck::Log => Ok(()),
            HealthCheck::SyncLoop => {
                let answer = self
                    .pod_manager
                    .ask(POD_MANAGER_TIMEOUT, pod_manager::Msg::all);
                answer
                    .await
                    .map(drop)
                    .map_err(|error| format!("the pod manager does not answer: {error}"))
            }
            HealthCheck::Pleg => {
                let answer = self
                    .pleg
                    .ask(POD_MANAGER_TIMEOUT, |reply| pleg::Msg::Health { reply });
                match answer.await {
                    Ok(health) => health.map_err(|problem| problem.to_string()),
                    Err(error) => Err(format!("pleg does not answer: {error}")),
                }
            }
            HealthCheck::Managers => {
                let degraded = self.root.degraded();
                let degraded = degraded
                    .iter()
                    .map(|child| format!("{} is degraded: {}", child.id, child.why));
                let late = self.root.late();
                let late = late.iter().map(|late| {
                    format!(
                        "{} is late in {}",
                        late.path,
                        late.busy_with.unwrap_or("nothing")
                    )
                });
                let said = degraded.chain(late).collect::<Vec<_>>().join("; ");
                if said.is_empty() { Ok(()) } else { Err(said) }
            }
        }
    }
}

impl HealthChecks for NodeHealth {
    fn names(&self) -> &'static [&'static str] {
        &["ping", "log", "syncloop"]
    }

    async fn check(&self, name: &str) -> Option<Result<(), String>> {
        Some(self.made(HealthCheck::named(name)?).await)
    }
}

impl HealthCheck {
    fn named(name: &str) -> Option<HealthCheck> {
        CHECKS.into_iter().find(|check| check.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            HealthCheck::Ping => "ping",
            HealthCheck::Log => "log",
            HealthCheck::SyncLoop => "syncloop",
            HealthCheck::Managers => "managers",
            HealthCheck::Pleg => "pleg",
        }
    }
}

impl RequestHandler for NodeHealth {
    async fn answer(&self, request: Request<Incoming>) -> HandlerResponse {
        let answer = answer(self, &request).await;
        answer.unwrap_or_else(not_found)
    }
}
