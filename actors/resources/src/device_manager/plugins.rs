//! Plugins come, list their devices, and go.

use std::collections::BTreeSet;
use std::time::Duration;

use kernel::{Context, Recipient};
use logic_api::types::PodUid;
use logic_placement::devices::{DeviceCallError, ListedDevice, PluginOptions};

use super::lane::PluginLane;
use super::plugin::{DeviceStream, PluginConnection, PluginEvent};
use super::registrar::{self, RegistrationCall};
use super::{DeviceManager, DevicesChanged, Msg};

/// A grace is over only once more time than it has passed.
const AFTER_EXPIRY: Duration = Duration::from_millis(1);
/// Between attempts to tell a peer whose mailbox is full.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl DeviceManager {
    pub(super) fn register(&mut self, call: RegistrationCall, ctx: &mut Context<Msg>) {
        registrar::count(&call.registration);
        if let Err(refusal) = call.registration.check() {
            tracing::error!("a device plugin is not registered: {refusal}");
            return call.answer(Err(refusal.to_string()));
        }
        let socket = call.socket(&self.folder);
        ctx.run(async move {
            let result = PluginConnection::connect(&socket).await;
            Msg::Plugin(Box::new(PluginEvent::Connected { call, result }))
        });
    }

    pub(super) fn plugin(&mut self, event: PluginEvent, ctx: &mut Context<Msg>) {
        match event {
            PluginEvent::Connected { call, result } => self.connected(call, result, ctx),
            PluginEvent::Listed {
                resource,
                generation,
                devices,
                rest,
            } => self.listed(&resource, (generation, devices, rest), ctx),
            PluginEvent::Gone {
                resource,
                generation,
                why,
            } => self.gone(&resource, generation, &why, ctx),
            PluginEvent::Answered {
                resource,
                generation,
                origin,
                answer,
            } => {
                self.answered(&resource, (origin, answer), ctx);
                if let Some(lane) = self.lane(&resource, generation) {
                    lane.answered(ctx);
                }
            }
        }
    }

    /// The lane of a plugin that has not been replaced.
    fn lane(&mut self, resource: &str, generation: u64) -> Option<&mut PluginLane> {
        let lane = self.plugins.get_mut(resource)?;
        (lane.generation == generation).then_some(lane)
    }

    /// A plugin that can be reached replaces its predecessor.
    fn connected(
        &mut self,
        call: RegistrationCall,
        result: Result<(PluginConnection, PluginOptions), String>,
        ctx: &mut Context<Msg>,
    ) {
        let resource = call.registration.resource.clone();
        let (connection, options) = match result {
            Ok(connected) => connected,
            Err(why) => {
                tracing::error!("the device plugin of {resource} is not registered: {why}");
                return call.answer(Err(why));
            }
        };
        self.close(&resource, ctx);
        self.generation += 1;
        let new = (connection, options);
        let mut lane = PluginLane::new(resource.clone(), self.generation, new);
        if let Some(connection) = lane.connection() {
            lane.watch(connection.list(resource.clone(), self.generation), ctx);
        }
        self.inventory.registered(&resource, options);
        tracing::info!("the device plugin of {resource} is registered");
        self.plugins.insert(resource, lane);
        call.answer(Ok(()));
        self.tell(BTreeSet::new(), ctx);
    }

    fn listed(
        &mut self,
        resource: &str,
        (generation, devices, rest): (u64, Vec<ListedDevice>, DeviceStream),
        ctx: &mut Context<Msg>,
    ) {
        let name = resource.to_owned();
        let Some(lane) = self.lane(resource, generation) else {
            return;
        };
        lane.watch(rest.next(name, generation), ctx);
        match self.inventory.listed(resource, devices) {
            Ok(changed) => {
                self.refused_lists.remove(resource);
                self.removed.remove(resource);
                let pods = self.allocations.holders(resource, &changed);
                self.save_later(ctx);
                self.tell(pods, ctx);
            }
            Err(refusal) => {
                tracing::error!("a list of devices is not taken: {refusal}");
                self.refused_lists
                    .insert(resource.to_owned(), refusal.to_string());
            }
        }
    }

    fn gone(&mut self, resource: &str, generation: u64, why: &str, ctx: &mut Context<Msg>) {
        if self.lane(resource, generation).is_some() {
            tracing::error!("the device plugin of {resource} has gone: {why}");
            self.deregister(resource, ctx);
        }
    }

    pub(super) fn deregister(&mut self, resource: &str, ctx: &mut Context<Msg>) {
        let lane = self.plugins.get(resource);
        if !lane.is_some_and(PluginLane::is_connected) {
            return;
        }
        self.close(resource, ctx);
        self.inventory.disconnected(resource, ctx.now());
        self.tell(BTreeSet::new(), ctx);
    }

    /// Ends a plugin's lane, and fails the calls that wait for their turn.
    fn close(&mut self, resource: &str, ctx: &mut Context<Msg>) {
        let Some(lane) = self.plugins.get_mut(resource) else {
            return;
        };
        for origin in lane.close(ctx) {
            let stopped = DeviceCallError::Stopped(resource.to_owned());
            self.answered(resource, (origin, Err(stopped)), ctx);
        }
    }

    pub(super) fn tick(&mut self, ctx: &mut Context<Msg>) {
        self.timer = None;
        let expired = self.inventory.expire(ctx.now());
        if !expired.is_empty() {
            for resource in &expired {
                tracing::info!("{resource} is no resource of the node any more");
                self.plugins.remove(resource);
            }
            self.removed.extend(expired);
            self.save_later(ctx);
        }
        self.tell(BTreeSet::new(), ctx);
    }

    pub(super) fn tell_again(&mut self, ctx: &mut Context<Msg>) {
        self.node_told = None;
        self.tell(BTreeSet::new(), ctx);
    }

    /// Tells the inventory, and the node's numbers where they have changed. What can't be told is told later.
    pub(super) fn tell(&mut self, mut pods: BTreeSet<PodUid>, ctx: &mut Context<Msg>) {
        pods.extend(self.untold.take().unwrap_or_default());
        let news = DevicesChanged {
            inventory: self.inventory.clone().into(),
            pods,
        };
        let is_full = |peer: &Recipient<DevicesChanged>| peer.tell(news.clone()).is_err();
        if self
            .peers
            .assigners
            .iter()
            .filter(|peer| is_full(peer))
            .count()
            > 0
        {
            self.untold = Some(news.pods);
        }
        if let Some(node) = &self.peers.node {
            let numbers = self.inventory.node_devices(&self.removed);
            if self.node_told.as_ref() != Some(&numbers) {
                let told = node.tell(numbers.clone());
                self.node_told = told.is_ok().then_some(numbers);
            }
        }
        self.arm(ctx);
    }

    /// Wakes when the next grace ends, or sooner if something is untold.
    fn arm(&mut self, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        let expiry = self.inventory.next_expiry();
        let expiry = expiry.map(|at| at.saturating_duration_since(now) + AFTER_EXPIRY);
        let is_untold =
            self.untold.is_some() || (self.peers.node.is_some() && self.node_told.is_none());
        let retry = is_untold.then_some(RETRY_DELAY);
        if let Some(timer) = self.timer.take() {
            ctx.cancel(timer);
        }
        let delay = expiry.into_iter().chain(retry).min();
        self.timer = delay.map(|delay| ctx.after(delay, Msg::Tick));
    }
}
