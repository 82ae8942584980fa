//! What pods ask of plugins.

use std::collections::BTreeSet;

use kernel::{Context, Reply};
use logic_api::types::PodUid;
use logic_placement::devices::{
    ContainerDevices, DeviceAllocation, DeviceCallError, DevicesByNode, PreferenceQuestion,
};
use logic_placement::topology::Assignment;

use super::batch::{Batch, BatchEnd};
use super::lane::{CallOrigin, PluginCall};
use super::plugin::PluginAnswer;
use super::{DeviceManager, Msg};

impl DeviceManager {
    pub(super) fn prefer(
        &mut self,
        question: PreferenceQuestion,
        reply: Reply<Result<BTreeSet<String>, String>>,
        ctx: &mut Context<Msg>,
    ) {
        let resource = question.resource.clone();
        let call = PluginCall::Prefer(question);
        self.call(&resource, call, CallOrigin::Prefer(reply), ctx);
    }

    pub(super) fn allocate(
        &mut self,
        pod: PodUid,
        assignment: &Assignment,
        reply: Reply<Result<(), DeviceCallError>>,
        ctx: &mut Context<Msg>,
    ) {
        let calls = self.not_allocated(&pod, assignment);
        let done = Vec::new();
        let end = BatchEnd::Allocate { done, reply };
        let batch = self.begin(Batch::new(pod, calls.len(), end));
        for (container, resource, ids) in calls {
            let call = PluginCall::Allocate(ids.clone());
            let origin = CallOrigin::Allocate {
                batch,
                container,
                ids,
            };
            self.call(&resource, call, origin, ctx);
        }
        self.end(batch, ctx);
    }

    /// The containers' devices that plugins have not given yet, each with the container and the resource.
    fn not_allocated(
        &self,
        pod: &PodUid,
        assignment: &Assignment,
    ) -> Vec<(String, String, BTreeSet<String>)> {
        let mut calls = Vec::new();
        for (container, assigned) in &assignment.containers {
            for (resource, ids) in &assigned.devices {
                let there = self.allocations.get(pod, container, resource);
                if there.is_none_or(|there| there.devices.ids() != *ids) {
                    calls.push((container.clone(), resource.clone(), ids.clone()));
                }
            }
        }
        calls
    }

    pub(super) fn pre_start(
        &mut self,
        pod: PodUid,
        container: String,
        reply: Reply<Result<Option<ContainerDevices>, DeviceCallError>>,
        ctx: &mut Context<Msg>,
    ) {
        let allocated = self.allocations.of_container(&pod, &container);
        let mut calls = Vec::new();
        for (resource, allocation) in allocated {
            // A plugin that is not back since the agent has restarted is not asked for: what it has given stands.
            let lane = self.plugins.get(resource);
            let is_known = self.inventory.resource(resource).is_some() || lane.is_some();
            if !is_known {
                return reply.send(Err(DeviceCallError::NoEndpoint(resource.to_owned())));
            }
            if lane.is_some_and(|lane| lane.options.pre_start_required) {
                calls.push((resource.to_owned(), allocation.devices.ids()));
            }
        }
        let end = BatchEnd::PreStart { container, reply };
        let batch = self.begin(Batch::new(pod, calls.len(), end));
        for (resource, ids) in calls {
            let origin = CallOrigin::PreStart { batch };
            self.call(&resource, PluginCall::PreStart(ids), origin, ctx);
        }
        self.end(batch, ctx);
    }

    pub(super) fn forget(&mut self, pod: &PodUid, ctx: &mut Context<Msg>) {
        for batch in self.batches.values_mut().filter(|batch| batch.pod == *pod) {
            batch.fail(DeviceCallError::Forgotten);
        }
        if self.allocations.forget(pod) {
            self.save_later(ctx);
        }
    }

    fn begin(&mut self, batch: Batch) -> u64 {
        let id = self.next_batch;
        self.next_batch += 1;
        self.batches.insert(id, batch);
        id
    }

    /// Makes a call, or answers it at once where it can't be made.
    fn call(
        &mut self,
        resource: &str,
        call: PluginCall,
        origin: CallOrigin,
        ctx: &mut Context<Msg>,
    ) {
        let failed = match self.plugins.get_mut(resource) {
            Some(lane) => lane.call(call, origin, ctx).err(),
            None if self.inventory.resource(resource).is_some() => {
                Some((origin, DeviceCallError::Stopped(resource.to_owned())))
            }
            None => Some((origin, DeviceCallError::UnknownPlugin(resource.to_owned()))),
        };
        if let Some((origin, why)) = failed {
            self.answered(resource, (origin, Err(why)), ctx);
        }
    }

    /// Takes in the answer to a call.
    pub(super) fn answered(
        &mut self,
        resource: &str,
        (origin, answer): (CallOrigin, Result<PluginAnswer, DeviceCallError>),
        ctx: &mut Context<Msg>,
    ) {
        match origin {
            CallOrigin::Prefer(reply) => {
                let ids = answer.map(|answer| match answer {
                    PluginAnswer::Preferred(ids) => ids,
                    PluginAnswer::Allocated(_) | PluginAnswer::PreStarted => BTreeSet::new(),
                });
                reply.send(ids.map_err(|why| why.to_string()));
            }
            CallOrigin::Allocate {
                batch,
                container,
                ids,
            } => {
                let result = answer.map(|answer| match answer {
                    PluginAnswer::Allocated(answer) => {
                        let devices = DevicesByNode::of(&ids, resource, &self.inventory);
                        let allocation = DeviceAllocation { devices, answer };
                        self.take(batch, (container, resource.to_owned(), allocation));
                    }
                    PluginAnswer::Preferred(_) | PluginAnswer::PreStarted => {}
                });
                self.advance(batch, result, ctx);
            }
            CallOrigin::PreStart { batch } => {
                let result = answer.map(drop).map_err(DeviceCallError::before_start);
                self.advance(batch, result, ctx);
            }
        }
    }

    fn take(&mut self, batch: u64, allocation: (String, String, DeviceAllocation)) {
        if let Some(batch) = self.batches.get_mut(&batch)
            && let BatchEnd::Allocate { done, .. } = &mut batch.end
        {
            done.push(allocation);
        }
    }

    fn advance(&mut self, id: u64, result: Result<(), DeviceCallError>, ctx: &mut Context<Msg>) {
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.answered(result);
        }
        self.end(id, ctx);
    }

    /// Answers a batch whose calls are all answered. Of a pod that has failed nothing is kept.
    fn end(&mut self, id: u64, ctx: &mut Context<Msg>) {
        if !self.batches.get(&id).is_some_and(Batch::is_done) {
            return;
        }
        let Some(batch) = self.batches.remove(&id) else {
            return;
        };
        let result = batch.result();
        match batch.end {
            BatchEnd::Allocate { reply, .. } if result.is_err() => reply.send(result),
            BatchEnd::Allocate { done, reply } => {
                for (container, resource, allocation) in done {
                    self.allocations
                        .insert(&batch.pod, &container, &resource, allocation);
                }
                self.save_and_answer(reply, ctx);
            }
            BatchEnd::PreStart { container, reply } => {
                let devices = || self.allocations.container_devices(&batch.pod, &container);
                reply.send(result.map(|()| devices()));
            }
        }
    }
}
