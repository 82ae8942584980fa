//! What may happen to a pod at any time.

use logic_api::types::SandboxId;

use super::super::*;
use super::world::PodModel;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) enum PodModelEvent {
    Sync(PodModelFault),
    /// The n-th running container exits.
    Exit(usize, i32),
    /// The n-th running container is not heard of any more.
    Lose(usize),
    /// A probe of the n-th running container speaks.
    Probe(usize, ProbeResult),
    SandboxDies {
        with_containers: bool,
    },
    Pass(i64),
    ChangeImage(usize),
    Allocate(usize, u32),
    Debug,
    CollectGarbage,
    RestartAgent,
    Delete(i64),
}

/// What goes wrong while a plan is carried out.
#[derive(Clone, Copy, Debug)]
pub(super) enum PodModelFault {
    No,
    /// This step is refused.
    Refused(usize),
    /// This step is half done, and nothing after it.
    Half(usize),
    /// Before this step the first running container exits.
    Exit(usize),
}

impl PodModel {
    pub(super) fn happens(&mut self, event: &PodModelEvent) {
        match event {
            PodModelEvent::Sync(upset) => drop(self.sync(*upset)),
            PodModelEvent::Exit(n, code) => self.exit_one(*n, *code),
            PodModelEvent::Lose(n) => {
                if let Some(container) = self.running(*n) {
                    container.state = ContainerState::Unknown;
                }
            }
            PodModelEvent::Probe(n, verdict) => self.probe(*n, *verdict),
            PodModelEvent::SandboxDies { with_containers } => self.kill_sandboxes(*with_containers),
            PodModelEvent::Pass(seconds) => self.clock += seconds,
            PodModelEvent::ChangeImage(n) => {
                self.serial += 1;
                let image = Some(format!("localhost/new:{}", self.serial));
                let apps = self.pod.app_containers().len();
                app_spec(&mut self.pod, n % apps).image = image;
            }
            PodModelEvent::Allocate(n, cpu) => {
                let limits = Some(quantities(&[("cpu", &cpu.to_string())]));
                let apps = self.pod.app_containers().len();
                app_spec(&mut self.pod, n % apps).resources = Some(core::ResourceRequirements {
                    limits,
                    ..core::ResourceRequirements::default()
                });
            }
            PodModelEvent::Debug => {
                self.serial += 1;
                self.pod = ephemeral(self.pod.clone(), &format!("late{}", self.serial));
            }
            PodModelEvent::CollectGarbage => self.collect_garbage(),
            PodModelEvent::RestartAgent => {
                self.facts.exits.clear();
                self.facts.health.clear();
            }
            PodModelEvent::Delete(grace) => self.delete(*grace),
        }
        self.watch();
    }

    fn kill_sandboxes(&mut self, with_containers: bool) {
        let ready: Vec<_> = self
            .runtime
            .sandboxes
            .iter()
            .filter(|s| s.is_ready())
            .collect();
        let ids: Vec<SandboxId> = ready.into_iter().map(|s| s.id.clone()).collect();
        let before = self.runtime.containers.clone();
        ids.iter().for_each(|id| self.stop_sandbox(id));
        if !with_containers {
            self.runtime.containers = before;
        }
    }

    fn collect_garbage(&mut self) {
        let garbage = logic_resources::gc::garbage(&self.runtime, Some(1));
        for gone in &garbage.containers {
            self.remove(gone, RemovedLog::Removed);
        }
        self.runtime
            .sandboxes
            .retain(|s| !garbage.sandboxes.contains(&s.id));
    }

    fn delete(&mut self, grace: i64) {
        let metadata = &mut self.pod.metadata;
        metadata.deletion_timestamp = Some(at(self.clock).into());
        let shorter = metadata
            .deletion_grace_period_seconds
            .map_or(grace, |old| old.min(grace));
        metadata.deletion_grace_period_seconds = Some(shorter);
        self.ending = true;
    }

    fn running(&mut self, n: usize) -> Option<&mut RuntimeContainer> {
        let running = |c: &&mut RuntimeContainer| c.state == ContainerState::Running;
        let count = self.runtime.containers.iter_mut().filter(running).count();
        let mut all = self.runtime.containers.iter_mut().filter(running);
        all.nth(n.checked_rem(count)?)
    }

    pub(super) fn exit_one(&mut self, n: usize, code: i32) {
        if let Some(container) = self.running(n) {
            container.state = ContainerState::Exited;
            container.exit_code = code;
        }
    }

    fn probe(&mut self, n: usize, verdict: ProbeResult) {
        let Some(container) = self.running(n) else {
            return;
        };
        let (id, name) = (container.id.clone(), container.name.clone());
        let Some((_, spec)) = self.pod.container(&name) else {
            return;
        };
        let initial = crate::probes::initial_health(&spec);
        let health = self.facts.health.entry(id).or_insert(initial);
        // A container's startup probe speaks first.
        if spec.startup_probe.is_some() && health.startup != ProbeResult::Success {
            health.startup = verdict;
        } else if spec.liveness_probe.is_some() {
            health.liveness = verdict;
        }
    }
}
