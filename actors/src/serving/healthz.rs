//! `/healthz` for systemd, kubeadm and people (`healthzPort`, 10248).
//!
//! - **Owns** its listener.
//! - **Hears** nothing but its own accept loop.
//! - **Tells** nobody; it asks the directory, and looks at the root supervisor.
//! - **Never** fails for a degraded manager: whoever restarts an agent that is not healthy would stop
//!   what works without mending what does not. `/healthz/managers` shows it, and `/healthz/pleg` whether
//!   relists come through (upstream: the node's Ready condition).
//!
//! Upstream: staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go (1.36), whose texts these are.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use kernel::{Actor, Addr, Context, Exit, Supervisor};

use ::serving::http::{Answer, Answers, Limits, Traffic, not_found, query, serve, text, wrong_method};
use super::{Deaf, Msg, Snapshot, listen};
use crate::{directory, pleg};

/// The directory answers within microseconds; after this it is stuck.
const DIRECTORY_WITHIN: Duration = Duration::from_secs(5);
const LIMITS: Limits = Limits {
    connections: 64,
    life: Some(Duration::from_secs(300)),
};

/// The checks of `/healthz` itself. Upstream's `log` watches the flushing of a buffer; our log has none,
/// and the name is kept for those who ask for it.
const CHECKS: [Check; 3] = [Check::Ping, Check::Log, Check::SyncLoop];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Ping,
    Log,
    SyncLoop,
    Managers,
    Pleg,
}

/// Knows whether the node is healthy.
#[derive(Debug, Clone)]
pub struct Health {
    directory: Addr<directory::Msg>,
    pleg: Addr<pleg::Msg>,
    root: Supervisor,
}

impl Health {
    pub fn new(directory: Addr<directory::Msg>, pleg: Addr<pleg::Msg>, root: Supervisor) -> Self {
        Health {
            directory,
            pleg,
            root,
        }
    }

    /// Answers a request for `/healthz` or beneath; none if the path is another one.
    pub(super) async fn answer(&self, request: &Request<Incoming>) -> Option<Answer> {
        let beneath = request.uri().path().strip_prefix("/healthz")?;
        let answer = match beneath.strip_prefix('/') {
            _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                wrong_method("GET, HEAD")
            }
            None if beneath.is_empty() => self.all(request).await,
            Some(name) => match Check::named(name) {
                Some(check) => self.one(check).await,
                None => not_found(),
            },
            None => return None,
        };
        Some(answer)
    }

    async fn all(&self, request: &Request<Incoming>) -> Answer {
        let mut excluded: Vec<String> = query(request, "exclude")
            .filter(|name| !name.is_empty())
            .collect();
        let (mut said, mut failed) = (String::new(), Vec::new());
        for check in CHECKS {
            let name = check.name();
            let count = excluded.len();
            excluded.retain(|other| other != name);
            let line = if excluded.len() < count {
                format!("[+]{name} excluded: ok")
            } else if let Err(why) = self.check(check).await {
                failed.push(format!("{name}: {why}"));
                format!("[-]{name} failed: reason withheld")
            } else {
                format!("[+]{name} ok")
            };
            said.push_str(&line);
            said.push('\n');
        }
        if !excluded.is_empty() {
            let names = excluded
                .iter()
                .map(|name| format!("{name:?}"))
                .collect::<Vec<_>>()
                .join(",");
            said.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {names}\n"
            ));
        }
        if !failed.is_empty() {
            tracing::warn!("not healthy: {}", failed.join("; "));
            return text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{said}healthz check failed\n"),
            );
        }
        match query(request, "verbose").next() {
            Some(_) => text(StatusCode::OK, format!("{said}healthz check passed\n")),
            None => text(StatusCode::OK, "ok"),
        }
    }

    async fn one(&self, check: Check) -> Answer {
        match self.check(check).await {
            Ok(()) => text(StatusCode::OK, "ok"),
            Err(why) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("internal server error: {why}\n"),
            ),
        }
    }

    async fn check(&self, check: Check) -> Result<(), String> {
        match check {
            Check::Ping | Check::Log => Ok(()),
            Check::SyncLoop => {
                let answer = self
                    .directory
                    .ask(DIRECTORY_WITHIN, |reply| directory::Msg::Pods { reply });
                answer
                    .await
                    .map(drop)
                    .map_err(|error| format!("the pod directory does not answer: {error}"))
            }
            Check::Pleg => {
                let answer = self
                    .pleg
                    .ask(DIRECTORY_WITHIN, |reply| pleg::Msg::Health { reply });
                let answer = answer.await;
                answer.unwrap_or_else(|error| Err(format!("pleg does not answer: {error}")))
            }
            Check::Managers => {
                let degraded = self.root.degraded();
                let sentences = degraded
                    .iter()
                    .map(|child| format!("{} is degraded: {}", child.id, child.why));
                let said = sentences.collect::<Vec<_>>().join("; ");
                if said.is_empty() { Ok(()) } else { Err(said) }
            }
        }
    }
}

impl Check {
    fn named(name: &str) -> Option<Check> {
        let all = CHECKS.into_iter().chain([Check::Managers, Check::Pleg]);
        all.into_iter().find(|check| check.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Check::Ping => "ping",
            Check::Log => "log",
            Check::SyncLoop => "syncloop",
            Check::Managers => "managers",
            Check::Pleg => "pleg",
        }
    }
}

/// The health server.
#[derive(Debug)]
pub struct Healthz {
    address: SocketAddr,

    server: Rc<Server>,

    traffic: Rc<Traffic>,
}

#[derive(Debug)]
struct Server {
    health: Health,
}

impl Answers for Server {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        self.health.answer(&request).await.unwrap_or_else(not_found)
    }
}

impl Actor for Healthz {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let listener = listen::tcp(self.address).await?;
        self.address = listener.local_addr().unwrap_or(self.address);
        let (server, traffic, address) = (
            self.server.clone(),
            self.traffic.clone(),
            self.address.to_string(),
        );
        ctx.run(async move {
            let source = serve(listener, server, traffic, LIMITS).await;
            Msg::Deaf(Deaf { address, source })
        });
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Deaf(deaf) => Err(deaf.into()),
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            address: self.address.to_string(),
            connections: self.traffic.connections(),
            requests: self.traffic.requests(),
        }
    }
}

impl Healthz {
    pub fn new(address: SocketAddr, health: Health) -> Self {
        Healthz {
            address,
            server: Rc::new(Server { health }),
            traffic: Rc::default(),
        }
    }
}
