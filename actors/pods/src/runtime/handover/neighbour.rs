//! Which pods another runtime runs than the one in use.
//!
//! A kubelet that ran meanwhile may have made pods in the runtime that is configured now: they are its own, and nothing
//! has to end for them.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use clients::runtime::RuntimeClient;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use logic_api::types::PodUid;
use plugin_host::{Declaration, PluginClient};

use super::record::endpoint;

/// A runtime that does not list its pods within this time is not well.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

type RunningPods = Result<BTreeSet<PodUid>, String>;
type Ask = dyn Fn(&Declaration) -> LocalBoxFuture<'static, RunningPods>;

/// Asks the runtime of a declaration which pods it runs; the error says why that is unknown.
#[derive(Clone)]
pub struct NeighbourRuntime(Rc<Ask>);

impl fmt::Debug for NeighbourRuntime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("NeighbourRuntime")
    }
}

impl NeighbourRuntime {
    /// Asks at the declared endpoint, with the deadlines of this client.
    pub fn at_endpoint(runtime: RuntimeClient) -> NeighbourRuntime {
        NeighbourRuntime::asked_by(move |declaration| {
            let found = endpoint(declaration)
                .map(|path| runtime.beside(PluginClient::at_socket(&declaration.name, &path)));
            async move {
                let runtime = found.ok_or("only its plugin knows its pods")?;
                let listed = tokio::time::timeout(LIST_TIMEOUT, runtime.pods()).await;
                let late = |_| format!("no answer within {} s", LIST_TIMEOUT.as_secs());
                let listed = listed.map_err(late)?.map_err(|error| error.describe())?;
                let running = listed.into_iter().filter(|(_, pod)| !pod.is_stopped());
                Ok(running.map(|(uid, _)| uid).collect())
            }
            .boxed_local()
        })
    }

    /// Asks this function.
    pub(super) fn asked_by(
        ask: impl Fn(&Declaration) -> LocalBoxFuture<'static, RunningPods> + 'static,
    ) -> NeighbourRuntime {
        NeighbourRuntime(Rc::new(ask))
    }

    pub(super) async fn pods(&self, declaration: &Declaration) -> RunningPods {
        (self.0)(declaration).await
    }
}
