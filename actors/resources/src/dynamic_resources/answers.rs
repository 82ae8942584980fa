//! Answers to what others ask, from what is known.

use kernel::Context;
use logic_api::pod::PodView;
use logic_placement::claims::health::show_health;
use logic_placement::claims::{container_devices, dynamic_resources};

use super::{ClaimQuery, DynamicResources, Msg};

impl DynamicResources {
    pub(super) fn answer(&self, query: ClaimQuery, ctx: &Context<Msg>) {
        let gates = self.config.gates;
        match query {
            ClaimQuery::Devices {
                pod,
                container,
                reply,
            } => {
                let found = pod.container(&container);
                let devices = found.map_or(Ok(Vec::new()), |(_, container)| {
                    container_devices(&self.cache, &pod, &container, gates)
                });
                reply.send(devices);
            }
            ClaimQuery::DynamicResources {
                pod,
                container,
                reply,
            } => {
                let found = pod.container(&container);
                let resources = found.map_or(Ok(Vec::new()), |(_, container)| {
                    dynamic_resources(&self.cache, &pod, &container, gates)
                });
                reply.send(resources);
            }
            ClaimQuery::Health {
                pod,
                mut statuses,
                reply,
            } => {
                let known = (&self.cache, &self.health);
                show_health(&mut statuses, &pod, known, ctx.timestamp(), gates);
                reply.send(statuses);
            }
            ClaimQuery::IsReferenced { pod, reply } => {
                reply.send(self.cache.is_referenced(&pod));
            }
        }
    }
}
