//! One plugin's lane: its connection, and the calls that wait for it. One call at a time, so that a plugin that hangs
//! delays nobody but those who ask it.

use std::collections::{BTreeSet, VecDeque};

use kernel::{Context, Reply, TaskId};
use logic_placement::devices::{DeviceCallError, PluginOptions, PreferenceQuestion};

use super::Msg;
use super::plugin::{PluginConnection, PluginEvent};

/// Calls that wait for one plugin: as many pods as a node has by default, each with one.
const QUEUE_MAX: usize = 110;

/// A call to a plugin.
#[derive(Debug)]
pub(super) enum PluginCall {
    Prefer(PreferenceQuestion),
    /// Ids of devices.
    Allocate(BTreeSet<String>),
    /// Ids of devices.
    PreStart(BTreeSet<String>),
}

/// Who waits for a call.
#[derive(Debug)]
pub enum CallOrigin {
    /// Who asked for a preference.
    Prefer(Reply<Result<BTreeSet<String>, String>>),
    /// A container's devices of the plugin's resource, within a batch.
    Allocate {
        batch: u64,
        container: String,
        ids: BTreeSet<String>,
    },
    /// A container's start, by its batch.
    PreStart { batch: u64 },
}

/// A plugin, or what is left of one that has gone.
#[derive(Debug)]
pub(super) struct PluginLane {
    resource: String,
    pub generation: u64,
    pub options: PluginOptions,
    /// None once it has gone.
    connection: Option<PluginConnection>,
    /// The task that waits for its next list.
    watch: Option<TaskId>,
    queue: VecDeque<(PluginCall, CallOrigin)>,
    is_busy: bool,
}

impl PluginLane {
    pub(super) fn new(
        resource: String,
        generation: u64,
        (connection, options): (PluginConnection, PluginOptions),
    ) -> Self {
        PluginLane {
            resource,
            generation,
            options,
            connection: Some(connection),
            watch: None,
            queue: VecDeque::new(),
            is_busy: false,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Calls that wait for an answer, or for their turn.
    pub(super) fn calls(&self) -> usize {
        self.queue.len() + usize::from(self.is_busy)
    }

    /// Waits for the next list: the first one where there is none to go on from.
    pub(super) fn watch(
        &mut self,
        next: impl Future<Output = PluginEvent> + 'static,
        ctx: &mut Context<Msg>,
    ) {
        self.watch = Some(ctx.run(async move { Msg::Plugin(Box::new(next.await)) }));
    }

    /// The connection for the first list.
    pub(super) fn connection(&self) -> Option<PluginConnection> {
        self.connection.clone()
    }

    /// Lets a call have its turn.
    ///
    /// # Errors
    ///
    /// The plugin has gone, or too many calls wait: the call's origin, and why.
    pub(super) fn call(
        &mut self,
        call: PluginCall,
        origin: CallOrigin,
        ctx: &mut Context<Msg>,
    ) -> Result<(), (CallOrigin, DeviceCallError)> {
        let resource = || self.resource.clone();
        if self.connection.is_none() {
            return Err((origin, DeviceCallError::Stopped(resource())));
        }
        if self.queue.len() >= QUEUE_MAX {
            return Err((origin, DeviceCallError::Busy(resource())));
        }
        self.queue.push_back((call, origin));
        self.proceed(ctx);
        Ok(())
    }

    /// The call that was made has been answered.
    pub(super) fn answered(&mut self, ctx: &mut Context<Msg>) {
        self.is_busy = false;
        self.proceed(ctx);
    }

    /// The plugin has gone; returns who waited for their turn.
    pub(super) fn close(&mut self, ctx: &mut Context<Msg>) -> Vec<CallOrigin> {
        self.connection = None;
        if let Some(watch) = self.watch.take() {
            ctx.abort(watch);
        }
        self.queue.drain(..).map(|(_, origin)| origin).collect()
    }

    fn proceed(&mut self, ctx: &mut Context<Msg>) {
        let Some(connection) = self.connection.clone().filter(|_| !self.is_busy) else {
            return;
        };
        let Some((call, origin)) = self.queue.pop_front() else {
            return;
        };
        self.is_busy = true;
        let (resource, generation) = (self.resource.clone(), self.generation);
        ctx.run(async move {
            let answer = connection.perform(&resource, call).await;
            Msg::Plugin(Box::new(PluginEvent::Answered {
                resource,
                generation,
                origin,
                answer,
            }))
        });
    }
}
