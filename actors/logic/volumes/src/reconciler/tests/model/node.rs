//! The simulated node: what the plugins have really mounted, and what the pods really want.

use super::super::*;

/// What happens next.
#[derive(Clone, Debug)]
pub(super) enum ModelEvent {
    /// A pod wants these of its volumes; some of them cannot be resolved.
    DesiredVolume(usize, u8, u8),
    /// Some of what a pod wants cannot be resolved any more.
    Lose(usize, u8),
    /// A pod's config map changes.
    Change(usize),
    Release(usize),
    /// The directory forgets a released pod.
    Finish(usize),
    /// The end of one of the tasks under way.
    End(usize, ModelFault),
    Pass(u64),
    Pods,
    Bury,
    Report,
    /// A subpath operation enters a pod's volumes, or leaves them.
    Visit(usize),
    /// The agent dies; the number says which calls were carried out nevertheless.
    Restart(u16),
    List,
    /// Workers say again what they want.
    Retell,
}

/// How a task goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelFault {
    No,
    /// Nothing was done.
    Refused,
    /// Nothing was done, but the result is unknown.
    Half,
    /// It was done, but the result is unknown.
    Lost,
    /// It is stuck, and may have been done.
    Stuck,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum ModelDemand {
    #[default]
    Unheard,
    These(BTreeMap<String, Volume>),
    Nothing,
}

#[derive(Debug, Default)]
struct ModelPod {
    wants: ModelDemand,
    lost: u8,
    version: u32,
    /// All that it ever wanted. A real pod never wants less than before.
    ever: u8,
    is_less: bool,
    is_known: bool,
    is_told: bool,
    is_visited: bool,
}

pub(super) struct ModelNode {
    rig: Rig,
    pods: [ModelPod; 3],
    mounted: BTreeMap<MountPoint, Volume>,
    staged: BTreeSet<VolumeId>,
    folders: BTreeSet<PodUid>,
    is_listed: bool,
}

const ONE_POD: &str = "v1";
const ATTACHED: &str = "v2";

fn uid(pod: usize) -> PodUid {
    PodUid::from(format!("p{pod}"))
}

fn volumes(pod: usize, version: u32) -> [Volume; 5] {
    let attached = Volume {
        attachment: Attachment::Attached,
        ..persistent(ATTACHED)
    };
    [
        files(&format!("c{pod}"), &version.to_string()),
        empty_dir(&format!("e{pod}")),
        persistent("v0"),
        persistent_with(ONE_POD, |csi| {
            csi.access_mode = Some(AccessMode::ReadWriteOncePod)
        }),
        attached,
    ]
}

fn place(pod: &PodUid, volume: &Volume) -> MountPoint {
    MountPoint {
        uid: pod.clone(),
        kind: volume.kind,
        mode: volume.mode,
        folder: volume.folder.clone(),
    }
}

impl ModelNode {
    pub(super) fn new() -> Self {
        ModelNode {
            rig: Rig::new(),
            pods: Default::default(),
            mounted: BTreeMap::new(),
            staged: BTreeSet::new(),
            folders: BTreeSet::new(),
            is_listed: false,
        }
    }

    pub(super) fn happens(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::DesiredVolume(pod, mask, lost) => self.wish(*pod, *mask, *lost),
            ModelEvent::Lose(pod, lost) => {
                self.pods[*pod].lost = *lost;
                self.tell(*pod, ResolveTrigger::Resync);
            }
            ModelEvent::Change(pod) => self.change(*pod),
            ModelEvent::Release(pod) => self.release(*pod),
            ModelEvent::Finish(pod) => self.finish(*pod),
            ModelEvent::End(n, upset) if !self.rig.running.is_empty() => {
                let task = self.rig.running.remove(n % self.rig.running.len());
                self.end(&task, *upset);
            }
            ModelEvent::End(..) => {}
            ModelEvent::Pass(seconds) => self.rig.pass(Duration::from_secs(*seconds)),
            ModelEvent::Pods => self.tell_pods(),
            ModelEvent::Bury => self.rig.world.process_gone(|_, _| true),
            ModelEvent::Report => self.report(),
            ModelEvent::Visit(pod) => self.visit(*pod),
            ModelEvent::Restart(fate) => self.restart(*fate),
            ModelEvent::List => self.list(),
            ModelEvent::Retell => (0..3).for_each(|pod| self.tell(pod, ResolveTrigger::Requested)),
        }
        self.plan();
    }

    /// The pod manager knows a pod before its worker asks.
    fn wish(&mut self, pod: usize, mask: u8, lost: u8) {
        let desire = &mut self.pods[pod];
        desire.is_known = true;
        desire.is_less |= desire.ever & !mask != 0;
        desire.ever |= mask;
        self.folders.insert(uid(pod));
        let all = volumes(pod, desire.version).into_iter().enumerate();
        let wanted = all.filter(|(bit, _)| mask & (1 << bit) != 0);
        let wanted = wanted
            .map(|(_, volume)| (volume.name.clone(), volume))
            .collect();
        desire.wants = ModelDemand::These(wanted);
        desire.lost = lost;
        self.tell(pod, ResolveTrigger::Requested);
    }

    fn change(&mut self, pod: usize) {
        let desire = &mut self.pods[pod];
        desire.version += 1;
        if let ModelDemand::These(wanted) = &mut desire.wants {
            for volume in volumes(pod, desire.version) {
                wanted
                    .entry(volume.name.clone())
                    .and_modify(|old| *old = volume);
            }
        }
        if self.pods[pod].is_told {
            self.tell(pod, ResolveTrigger::Resync);
        }
    }

    fn release(&mut self, pod: usize) {
        self.pods[pod].is_known = true;
        self.pods[pod].wants = ModelDemand::Nothing;
        self.tell(pod, ResolveTrigger::Requested);
    }

    fn finish(&mut self, pod: usize) {
        let desire = &mut self.pods[pod];
        let released =
            desire.wants == ModelDemand::Nothing && self.rig.world.is_released(&uid(pod));
        let may_be_fooled = desire.is_less && !self.is_listed;
        if desire.is_told && released && !may_be_fooled {
            let there = self.mounted.keys().any(|place| place.uid == uid(pod));
            assert!(!there, "p{pod} was said to be released");
            *desire = ModelPod {
                is_visited: desire.is_visited,
                version: desire.version,
                ..ModelPod::default()
            };
            self.tell_pods();
        }
    }

    /// Sets the desired state as a worker would.
    fn tell(&mut self, pod: usize, cause: ResolveTrigger) {
        let desire = &mut self.pods[pod];
        match &desire.wants {
            ModelDemand::Unheard => return,
            ModelDemand::Nothing => self.rig.world.release(&uid(pod)),
            ModelDemand::These(wanted) => {
                let resolve = |(name, volume): (&String, &Volume)| {
                    let bit = volumes(pod, 0)
                        .iter()
                        .position(|v| v.name == *name)
                        .unwrap();
                    let wish = match desire.lost & (1 << bit) {
                        0 => Ok(volume.clone()),
                        _ => Err(missing(name)),
                    };
                    (name.clone(), wish)
                };
                let wishes = wanted.iter().map(resolve).collect();
                self.rig.wish_for(uid(pod).as_str(), wishes, cause);
            }
        }
        self.pods[pod].is_told = true;
    }

    fn tell_pods(&mut self) {
        let known = (0..3).filter(|pod| self.pods[*pod].is_known).map(uid);
        self.rig.world.pods(known.collect());
        self.rig.world.folders(self.folders.clone());
    }

    fn report(&mut self) {
        let in_use = self.rig.world.in_use();
        self.rig.world.report(in_use);
    }

    fn visit(&mut self, pod: usize) {
        let visited = &mut self.pods[pod].is_visited;
        if *visited {
            self.rig.world.leave(&uid(pod));
            *visited = false;
        } else {
            *visited = self.rig.world.enter(&uid(pod));
        }
    }

    fn restart(&mut self, fate: u16) {
        for (n, task) in std::mem::take(&mut self.rig.running).iter().enumerate() {
            if fate & (1 << (n % 16)) != 0 {
                self.carry_out(task);
            }
        }
        let now = self.rig.now;
        self.rig = Rig::new();
        self.rig.now = now;
        for desire in &mut self.pods {
            desire.is_told = false;
            desire.is_visited = false;
        }
        self.is_listed = false;
    }

    fn list(&mut self) {
        if self.is_listed {
            return;
        }
        let mounted = self
            .mounted
            .iter()
            .map(|(place, volume)| ReconstructedVolume {
                path: PathBuf::new(),
                ..found(
                    ReconstructedState::Mounted,
                    &volume.id.0,
                    volume.kind,
                    place.uid.as_str(),
                )
            });
        let staged = self.staged.iter();
        let staged = staged.map(|id| found(ReconstructedState::Staged, &id.0, VolumeKind::Csi, ""));
        let all = mounted.chain(staged).collect();
        self.rig.world.listed(StateOfWorld::kinds(), all);
        self.is_listed = true;
    }

    fn end(&mut self, task: &VolumeOperation, upset: ModelFault) {
        if matches!(upset, ModelFault::No | ModelFault::Lost | ModelFault::Stuck) {
            self.carry_out(task);
        }
        let ending = match upset {
            ModelFault::No => well(task),
            ModelFault::Refused => failure(FailureEffect::Nothing),
            ModelFault::Half | ModelFault::Lost => failure(FailureEffect::Something),
            ModelFault::Stuck => OperationResult::Stuck {
                generation: 1,
                message: "hangs".to_owned(),
            },
        };
        self.rig.world.finish(task, ending, self.rig.now);
    }

    /// What the plugin does.
    fn carry_out(&mut self, task: &VolumeOperation) {
        match task {
            VolumeOperation::Stage { volume } => drop(self.staged.insert(volume.id.clone())),
            VolumeOperation::Unstage(staged) => drop(self.staged.remove(&staged.id)),
            VolumeOperation::Mount { place, volume } => {
                drop(self.mounted.insert(place.clone(), Volume::clone(volume)));
            }
            VolumeOperation::Unmount { place, .. } => drop(self.mounted.remove(place)),
            VolumeOperation::Expand { .. } => {}
            VolumeOperation::Remove { uid } => drop(self.folders.remove(uid)),
        }
    }

    fn plan(&mut self) {
        let tasks = self.rig.world.plan(self.rig.now).tasks;
        for task in tasks {
            self.assert_lawful(&task);
            self.rig.running.push(task);
        }
    }

    fn assert_lawful(&self, task: &VolumeOperation) {
        let text = word(task);
        let others = self.rig.running.iter();
        let same =
            others.filter(|other| task.volume().is_some() && other.volume() == task.volume());
        assert_eq!(same.count(), 0, "{text}: two operations on one volume");
        match task {
            VolumeOperation::Stage { volume } => {
                assert!(self.wants(&volume.id), "{text}: nobody wants it");
            }
            VolumeOperation::Unstage(staged) => {
                let mut mounted = self.mounted.values();
                assert!(!mounted.any(|v| v.id == staged.id), "{text}: still mounted");
                assert!(!self.wants(&staged.id), "{text}: wanted");
            }
            VolumeOperation::Mount { place, volume } => self.assert_mount(&text, place, volume),
            VolumeOperation::Unmount { place, .. } => {
                let pod = self.pod(&place.uid);
                assert!(!pod.is_visited, "{text}: somebody is within");
                assert!(!self.is_wanted(place), "{text}: wanted");
                let unheard = pod.wants == ModelDemand::Unheard || !pod.is_told;
                assert!(!(pod.is_known && unheard), "{text}: not heard yet");
            }
            VolumeOperation::Expand { .. } => {}
            VolumeOperation::Remove { uid } => {
                assert!(!self.pod(uid).is_known, "{text}: a pod that is known");
                let mut places = self.mounted.keys();
                assert!(
                    !places.any(|place| place.uid == *uid),
                    "{text}: with its volumes"
                );
            }
        }
    }

    fn assert_mount(&self, text: &str, place: &MountPoint, volume: &Volume) {
        assert!(self.is_wanted(place), "{text}: not wanted");
        if volume.kind == VolumeKind::Csi {
            assert!(self.staged.contains(&volume.id), "{text}: not staged");
        }
        if volume.id.0 == ONE_POD {
            let mut others = self.mounted.iter();
            let other = others.find(|(other, v)| v.id == volume.id && other.uid != place.uid);
            // What could not be listed yet was not found.
            assert!(
                other.is_none() || !self.is_listed,
                "{text}: {other:?} has it"
            );
        }
        if let VolumeSource::Files(set) = &volume.source {
            assert!(!set.files.is_empty(), "{text}: without its files");
        }
    }

    fn pod(&self, uid: &PodUid) -> &ModelPod {
        let at = (0..3).find(|pod| PodUid::from(format!("p{pod}")) == *uid);
        &self.pods[at.unwrap()]
    }

    /// Whether a mount is desired at a mount point.
    fn is_wanted(&self, place: &MountPoint) -> bool {
        let pod = self.pod(&place.uid);
        match &pod.wants {
            ModelDemand::These(wanted) => pod.is_told && wanted.contains_key(&place.folder),
            ModelDemand::Unheard | ModelDemand::Nothing => false,
        }
    }

    /// Whether a pod wants it, and it can be resolved.
    fn wants(&self, id: &VolumeId) -> bool {
        let wanted = |(pod, desire): (usize, &ModelPod)| match &desire.wants {
            ModelDemand::These(wanted) => {
                let all = volumes(pod, 0);
                let bit = all.iter().position(|volume| volume.id == *id);
                desire.is_told
                    && wanted.values().any(|volume| volume.id == *id)
                    && bit.is_some_and(|bit| desire.lost & (1 << bit) == 0)
            }
            ModelDemand::Unheard | ModelDemand::Nothing => false,
        };
        self.pods.iter().enumerate().any(wanted)
    }

    /// Every operation succeeds from now on, and every listing and pod is reported.
    pub(super) fn come_to_rest(&mut self) {
        for pod in 0..3 {
            if self.pods[pod].is_visited {
                self.visit(pod);
            }
            self.pods[pod].lost = 0;
            self.pods[pod].is_known &= self.pods[pod].wants != ModelDemand::Unheard;
        }
        self.list();
        self.tell_pods();
        (0..3).for_each(|pod| self.tell(pod, ResolveTrigger::Resync));
        for _ in 0..200 {
            self.report();
            self.rig.world.process_gone(|_, _| true);
            self.rig.pass(Duration::from_secs(200));
            self.plan();
            for task in std::mem::take(&mut self.rig.running) {
                self.end(&task, ModelFault::No);
            }
            let alone = self.pods.iter().filter(|pod| pod.wants_it(ONE_POD)).count() < 2;
            if self.rig.world.is_at_rest() && alone {
                return;
            }
        }
        // Two pods that want what only one may have wait for each other for ever; nothing else is left to be done.
        let alone = self.pods.iter().filter(|pod| pod.wants_it(ONE_POD)).count() < 2;
        assert!(!alone, "never at rest: {:#?}", self.rig.world);
    }

    pub(super) fn assert_settled(&mut self) {
        let mut expected = BTreeMap::new();
        for (pod, desire) in self.pods.iter().enumerate() {
            if let ModelDemand::These(wanted) = &desire.wants {
                let wanted = wanted.values();
                expected.extend(wanted.map(|v| (place(&uid(pod), v), v.clone())));
            }
        }
        let single = expected.iter().filter(|(_, v)| v.id.0 == ONE_POD).count();
        let has = self.mounted.values().filter(|v| v.id.0 == ONE_POD).count();
        assert_eq!(has, single.min(1), "one pod has what one pod may have");
        if single > 1 {
            let mounted = self.mounted.clone();
            expected.retain(|place, v| v.id.0 != ONE_POD || mounted.contains_key(place));
        }
        assert_eq!(
            self.mounted,
            expected,
            "{:#?}\n{:#?}",
            self.rig.world.rows(),
            self.rig.world
        );
        let used = expected
            .values()
            .filter(|v| v.kind == VolumeKind::Csi)
            .map(|v| v.id.clone());
        assert_eq!(self.staged, used.collect());
        let known = (0..3).filter(|pod| self.pods[*pod].is_known).map(uid);
        let known: BTreeSet<PodUid> = known.collect();
        assert!(self.folders.is_subset(&known), "{:?}", self.folders);
        self.assert_answers(single);
    }

    fn assert_answers(&mut self, single: usize) {
        for (pod, desire) in self.pods.iter().enumerate() {
            let uid = uid(pod);
            match &desire.wants {
                ModelDemand::Nothing => assert!(self.rig.world.is_released(&uid)),
                ModelDemand::These(_) if single > 1 => {}
                ModelDemand::These(wanted) => {
                    let mounted = self.rig.world.mounted(&uid).unwrap();
                    assert!(mounted.volumes.keys().eq(wanted.keys()));
                }
                ModelDemand::Unheard => {}
            }
        }
        self.rig.world.requeue_all();
        let tasks = self.rig.world.plan(self.rig.now).tasks;
        assert!(
            tasks.is_empty(),
            "at rest, nothing is left to be done: {tasks:?}"
        );
    }
}

impl ModelPod {
    fn wants_it(&self, name: &str) -> bool {
        match &self.wants {
            ModelDemand::These(wanted) => wanted.contains_key(name),
            ModelDemand::Unheard | ModelDemand::Nothing => false,
        }
    }
}
