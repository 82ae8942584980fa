//! The node under the world: what the plugins have really mounted, and what the pods really want.

use super::super::*;

/// What happens next.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A pod wants these of its volumes; some of them cannot be resolved.
    Wish(usize, u8, u8),
    /// Some of what a pod wants cannot be resolved any more.
    Lose(usize, u8),
    /// A pod's config map changes.
    Change(usize),
    Release(usize),
    /// The directory forgets a released pod.
    Finish(usize),
    /// The end of one of the tasks under way.
    End(usize, Upset),
    Pass(u64),
    Pods,
    Bury,
    Report,
    /// Somebody enters a pod's volumes, or leaves them.
    Visit(usize),
    /// The agent dies; the number says which calls were carried out nevertheless.
    Restart(u16),
    List,
    /// Workers say again what they want.
    Retell,
}

/// How a task goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upset {
    No,
    /// Nothing was done.
    Refused,
    /// Nothing was done, but nobody knows.
    Half,
    /// It was done, but nobody knows.
    Lost,
    /// It hangs, and may have been done.
    Stuck,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Wants {
    #[default]
    Unheard,
    These(BTreeMap<String, Volume>),
    Nothing,
}

#[derive(Debug, Default)]
struct Desire {
    wants: Wants,
    lost: u8,
    version: u32,
    /// All that it ever wanted. A real pod never wants less than before.
    ever: u8,
    is_less: bool,
    is_known: bool,
    is_told: bool,
    is_visited: bool,
}

pub(super) struct Node {
    rig: Rig,
    pods: [Desire; 3],
    mounted: BTreeMap<Place, Volume>,
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

fn place(pod: &PodUid, volume: &Volume) -> Place {
    Place {
        uid: pod.clone(),
        kind: volume.kind,
        mode: volume.mode,
        folder: volume.folder.clone(),
    }
}

impl Node {
    pub(super) fn new() -> Self {
        Node {
            rig: Rig::new(),
            pods: Default::default(),
            mounted: BTreeMap::new(),
            staged: BTreeSet::new(),
            folders: BTreeSet::new(),
            is_listed: false,
        }
    }

    pub(super) fn happens(&mut self, event: &Event) {
        match event {
            Event::Wish(pod, mask, lost) => self.wish(*pod, *mask, *lost),
            Event::Lose(pod, lost) => {
                self.pods[*pod].lost = *lost;
                self.tell(*pod, Cause::Again);
            }
            Event::Change(pod) => self.change(*pod),
            Event::Release(pod) => self.release(*pod),
            Event::Finish(pod) => self.finish(*pod),
            Event::End(n, upset) if !self.rig.running.is_empty() => {
                let task = self.rig.running.remove(n % self.rig.running.len());
                self.end(&task, *upset);
            }
            Event::End(..) => {}
            Event::Pass(seconds) => self.rig.pass(Duration::from_secs(*seconds)),
            Event::Pods => self.tell_pods(),
            Event::Bury => self.rig.world.buried(|_, _| true),
            Event::Report => self.report(),
            Event::Visit(pod) => self.visit(*pod),
            Event::Restart(fate) => self.restart(*fate),
            Event::List => self.list(),
            Event::Retell => (0..3).for_each(|pod| self.tell(pod, Cause::Asked)),
        }
        self.plan();
    }

    /// The directory knows a pod before its worker speaks.
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
        desire.wants = Wants::These(wanted);
        desire.lost = lost;
        self.tell(pod, Cause::Asked);
    }

    fn change(&mut self, pod: usize) {
        let desire = &mut self.pods[pod];
        desire.version += 1;
        if let Wants::These(wanted) = &mut desire.wants {
            for volume in volumes(pod, desire.version) {
                wanted
                    .entry(volume.name.clone())
                    .and_modify(|old| *old = volume);
            }
        }
        if self.pods[pod].is_told {
            self.tell(pod, Cause::Again);
        }
    }

    fn release(&mut self, pod: usize) {
        self.pods[pod].is_known = true;
        self.pods[pod].wants = Wants::Nothing;
        self.tell(pod, Cause::Asked);
    }

    fn finish(&mut self, pod: usize) {
        let desire = &mut self.pods[pod];
        let released = desire.wants == Wants::Nothing && self.rig.world.is_released(&uid(pod));
        let may_be_fooled = desire.is_less && !self.is_listed;
        if desire.is_told && released && !may_be_fooled {
            let there = self.mounted.keys().any(|place| place.uid == uid(pod));
            assert!(!there, "p{pod} was said to be released");
            *desire = Desire {
                is_visited: desire.is_visited,
                version: desire.version,
                ..Desire::default()
            };
            self.tell_pods();
        }
    }

    /// Tells the world what a worker would.
    fn tell(&mut self, pod: usize, cause: Cause) {
        let desire = &mut self.pods[pod];
        match &desire.wants {
            Wants::Unheard => return,
            Wants::Nothing => self.rig.world.release(&uid(pod)),
            Wants::These(wanted) => {
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
        let mounted = self.mounted.iter().map(|(place, volume)| Found {
            path: PathBuf::new(),
            ..found(
                FoundState::Mounted,
                &volume.id.0,
                volume.kind,
                place.uid.as_str(),
            )
        });
        let staged = self.staged.iter();
        let staged = staged.map(|id| found(FoundState::Staged, &id.0, Kind::Csi, ""));
        let all = mounted.chain(staged).collect();
        self.rig.world.listed(World::kinds(), all);
        self.is_listed = true;
    }

    fn end(&mut self, task: &Task, upset: Upset) {
        if matches!(upset, Upset::No | Upset::Lost | Upset::Stuck) {
            self.carry_out(task);
        }
        let ending = match upset {
            Upset::No => well(task),
            Upset::Refused => failure(Trace::Nothing),
            Upset::Half | Upset::Lost => failure(Trace::Something),
            Upset::Stuck => Ending::Stuck {
                generation: 1,
                message: "hangs".to_owned(),
            },
        };
        self.rig.world.ended(task, ending, self.rig.now);
    }

    /// What the plugin does.
    fn carry_out(&mut self, task: &Task) {
        match task {
            Task::Stage { volume } => drop(self.staged.insert(volume.id.clone())),
            Task::Unstage(staged) => drop(self.staged.remove(&staged.id)),
            Task::Mount { place, volume } => {
                drop(self.mounted.insert(place.clone(), Volume::clone(volume)));
            }
            Task::Unmount { place, .. } => drop(self.mounted.remove(place)),
            Task::Grow { .. } => {}
            Task::Remove { uid } => drop(self.folders.remove(uid)),
        }
    }

    fn plan(&mut self) {
        let tasks = self.rig.world.plan(self.rig.now).tasks;
        for task in tasks {
            self.assert_lawful(&task);
            self.rig.running.push(task);
        }
    }

    fn assert_lawful(&self, task: &Task) {
        let text = word(task);
        let others = self.rig.running.iter();
        let same =
            others.filter(|other| task.volume().is_some() && other.volume() == task.volume());
        assert_eq!(same.count(), 0, "{text}: two operations on one volume");
        match task {
            Task::Stage { volume } => {
                assert!(self.wants(&volume.id), "{text}: nobody wants it");
            }
            Task::Unstage(staged) => {
                let mut mounted = self.mounted.values();
                assert!(!mounted.any(|v| v.id == staged.id), "{text}: still mounted");
                assert!(!self.wants(&staged.id), "{text}: wanted");
            }
            Task::Mount { place, volume } => self.assert_mount(&text, place, volume),
            Task::Unmount { place, .. } => {
                let pod = self.pod(&place.uid);
                assert!(!pod.is_visited, "{text}: somebody is within");
                assert!(!self.is_wanted(place), "{text}: wanted");
                let unheard = pod.wants == Wants::Unheard || !pod.is_told;
                assert!(!(pod.is_known && unheard), "{text}: not heard yet");
            }
            Task::Grow { .. } => {}
            Task::Remove { uid } => {
                assert!(!self.pod(uid).is_known, "{text}: a pod that is known");
                let mut places = self.mounted.keys();
                assert!(
                    !places.any(|place| place.uid == *uid),
                    "{text}: with its volumes"
                );
            }
        }
    }

    fn assert_mount(&self, text: &str, place: &Place, volume: &Volume) {
        assert!(self.is_wanted(place), "{text}: not wanted");
        if volume.kind == Kind::Csi {
            assert!(self.staged.contains(&volume.id), "{text}: not staged");
        }
        if volume.id.0 == ONE_POD {
            let mut others = self.mounted.iter();
            let other = others.find(|(other, v)| v.id == volume.id && other.uid != place.uid);
            // What nobody could tell yet was found by nobody.
            assert!(
                other.is_none() || !self.is_listed,
                "{text}: {other:?} has it"
            );
        }
        if let Source::Files(set) = &volume.source {
            assert!(!set.files.is_empty(), "{text}: without its files");
        }
    }

    fn pod(&self, uid: &PodUid) -> &Desire {
        let at = (0..3).find(|pod| PodUid::from(format!("p{pod}")) == *uid);
        &self.pods[at.unwrap()]
    }

    /// What the world was told to be wanted at a place.
    fn is_wanted(&self, place: &Place) -> bool {
        let pod = self.pod(&place.uid);
        match &pod.wants {
            Wants::These(wanted) => pod.is_told && wanted.contains_key(&place.folder),
            Wants::Unheard | Wants::Nothing => false,
        }
    }

    /// Whether a pod wants it, and it can be resolved.
    fn wants(&self, id: &VolumeId) -> bool {
        let wanted = |(pod, desire): (usize, &Desire)| match &desire.wants {
            Wants::These(wanted) => {
                let all = volumes(pod, 0);
                let bit = all.iter().position(|volume| volume.id == *id);
                desire.is_told
                    && wanted.values().any(|volume| volume.id == *id)
                    && bit.is_some_and(|bit| desire.lost & (1 << bit) == 0)
            }
            Wants::Unheard | Wants::Nothing => false,
        };
        self.pods.iter().enumerate().any(wanted)
    }

    /// Everything goes well from now on, and everybody says what there is to say.
    pub(super) fn come_to_rest(&mut self) {
        for pod in 0..3 {
            if self.pods[pod].is_visited {
                self.visit(pod);
            }
            self.pods[pod].lost = 0;
            self.pods[pod].is_known &= self.pods[pod].wants != Wants::Unheard;
        }
        self.list();
        self.tell_pods();
        (0..3).for_each(|pod| self.tell(pod, Cause::Again));
        for _ in 0..200 {
            self.report();
            self.rig.world.buried(|_, _| true);
            self.rig.pass(Duration::from_secs(200));
            self.plan();
            for task in std::mem::take(&mut self.rig.running) {
                self.end(&task, Upset::No);
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
            if let Wants::These(wanted) = &desire.wants {
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
            .filter(|v| v.kind == Kind::Csi)
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
                Wants::Nothing => assert!(self.rig.world.is_released(&uid)),
                Wants::These(_) if single > 1 => {}
                Wants::These(wanted) => {
                    let mounted = self.rig.world.mounted(&uid).unwrap();
                    assert!(mounted.volumes.keys().eq(wanted.keys()));
                }
                Wants::Unheard => {}
            }
        }
        self.rig.world.doubt();
        let tasks = self.rig.world.plan(self.rig.now).tasks;
        assert!(
            tasks.is_empty(),
            "at rest, nothing is left to be done: {tasks:?}"
        );
    }
}

impl Desire {
    fn wants_it(&self, name: &str) -> bool {
        match &self.wants {
            Wants::These(wanted) => wanted.contains_key(name),
            Wants::Unheard | Wants::Nothing => false,
        }
    }
}
