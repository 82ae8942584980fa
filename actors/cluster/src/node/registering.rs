//! How the node's object is created, and how it is followed.

use std::time::Duration;

use api_client::{ApiError, ObjectEvent, ObjectSelector, watch};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kernel::Context;
use logic_node::node_status::registration;

use super::{Msg, NodeStatusManager, moment, requests};

/// The watch delivers at most a few changes a second; it waits for room in a full mailbox.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);

impl NodeStatusManager {
    pub(super) fn register(&mut self, ctx: &mut Context<Msg>) {
        let initial = registration::initial(&self.policy.status, &self.facts, moment(ctx));
        self.tell_person(&initial, ctx);
        let (api, within) = (self.api(), self.within());
        let policy = self.policy.status.clone();
        tracing::info!(node = policy.name, "registering");
        metrics::node::startup::attempted(ctx.wall());
        ctx.run(async move {
            let answer = requests::register(&api, &policy, &initial.node, within).await;
            Msg::Registered(Box::new(answer))
        });
    }

    pub(super) fn registered(&mut self, answer: Result<Node, ApiError>, ctx: &mut Context<Msg>) {
        match answer {
            Ok(node) => {
                tracing::info!(node = self.policy.status.name, "registered");
                self.attempts = 0;
                self.last_error = None;
                self.take(Some(node), ctx);
                self.follow(ctx);
                self.update_status(ctx);
            }
            Err(trouble) => {
                self.attempts += 1;
                let pause = registration::pause(self.attempts);
                tracing::warn!("the node is not registered, next attempt in {pause:?}: {trouble}");
                self.last_error = Some(trouble.to_string());
                ctx.after(pause, Msg::Register);
            }
        }
    }

    /// Follows the node's own object, for as long as the actor lives.
    pub(super) fn follow(&self, ctx: &mut Context<Msg>) {
        let own = ctx.addr().clone();
        let mut events = watch::<Node>(self.api(), ObjectSelector::named(&self.policy.status.name));
        ctx.run(async move {
            while let Some(event) = events.next().await {
                let node = match event {
                    Ok(ObjectEvent::Listed(nodes)) => nodes.into_iter().next(),
                    Ok(ObjectEvent::Applied(node)) => Some(node),
                    Ok(ObjectEvent::Deleted(_)) => None,
                    Err(trouble) => {
                        tracing::debug!("the node's object is not seen for now: {trouble}");
                        continue;
                    }
                };
                let seen = Msg::Seen(Box::new(node));
                if own.send(seen, WATCH_TIMEOUT).await.is_err() {
                    break;
                }
            }
            Msg::Look
        });
    }
}
