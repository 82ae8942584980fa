//! Laws of the world, one by one; [`model`] has them all at once.

mod model;
mod rows;
mod stages;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::types::Weight;
use crate::volumes::{
    Access, AccessMode, Attachment, Csi, EmptyDir, File, FileSet, Found, FoundState, Medium, Mode,
    Mounted, Relabel, Source, Step, Unresolved, Until, Uses, Volume,
};

const SECOND: Duration = Duration::from_secs(1);

#[allow(
    clippy::disallowed_methods,
    reason = "any moment serves as the tests' noon"
)]
fn noon() -> Instant {
    Instant::now()
}

fn volume(id: &str, kind: Kind, source: Source) -> Volume {
    Volume {
        id: VolumeId(id.to_owned()),
        kind,
        name: id.to_owned(),
        folder: id.to_owned(),
        source,
        access: Access::ReadWrite,
        mode: Mode::FileSystem,
        mount_options: Vec::new(),
        ownership: None,
        selinux_label: String::new(),
        attachment: Attachment::NotNeeded,
    }
}

fn empty_dir(id: &str) -> Volume {
    volume(id, Kind::EmptyDir, Source::EmptyDir(EmptyDir::default()))
}

/// A config map of one file.
fn files(id: &str, data: &str) -> Volume {
    let file = File {
        data: data.as_bytes().to_vec(),
        mode: 0o644,
        owner: None,
    };
    let set = FileSet {
        medium: Medium::Disk,
        files: [("key".to_owned(), file)].into(),
        ..FileSet::default()
    };
    volume(id, Kind::ConfigMap, Source::Files(set))
}

/// A persistent volume of the driver `d`.
fn persistent(id: &str) -> Volume {
    persistent_with(id, |_| {})
}

fn persistent_with(id: &str, change: impl FnOnce(&mut Csi)) -> Volume {
    let mut csi = Csi {
        driver: "d".to_owned(),
        volume_handle: id.to_owned(),
        access_mode: Some(AccessMode::ReadWriteMany),
        ..Csi::default()
    };
    change(&mut csi);
    volume(id, Kind::Csi, Source::Csi(Box::new(csi)))
}

fn missing(claim: &str) -> Unresolved {
    Unresolved {
        reason: "FailedMount",
        message: format!("error processing PVC default/{claim}: PVC is not bound"),
        step: Step::Processing,
        until: Until::Changed,
        uses: [Uses {
            kind: "PersistentVolumeClaim",
            namespace: "default".to_owned(),
            name: claim.to_owned(),
        }]
        .into(),
        attachable: None,
    }
}

fn found(state: FoundState, id: &str, kind: Kind, uid: &str) -> Found {
    Found {
        state,
        id: Some(VolumeId(id.to_owned())),
        kind: kind.as_str().to_owned(),
        folder: id.to_owned(),
        pod: Some(uid).filter(|uid| !uid.is_empty()).map(PodUid::from),
        path: PathBuf::from(format!("/found/{id}")),
        driver: "d".to_owned(),
        volume_handle: id.to_owned(),
    }
}

fn abilities() -> impl Iterator<Item = (Kind, Ability)> {
    World::kinds().map(|kind| {
        let is_driver = kind == Kind::Csi;
        let ability = Ability {
            staged: is_driver,
            updates: matches!(kind, Kind::ConfigMap | Kind::Secret | Kind::Projected),
            expand: is_driver,
        };
        (kind, ability)
    })
}

/// What a task does, in two or three words.
fn word(task: &Task) -> String {
    match task {
        Task::Stage { volume } => format!("stage {}", volume.id),
        Task::Unstage(staged) => format!("unstage {}", staged.id),
        Task::Mount { place, volume } => format!("mount {} {}", place.uid, volume.id),
        Task::Unmount { place, id } => format!("unmount {} {id}", place.uid),
        Task::Grow { place, size, .. } => format!("grow {} {} {size}", place.uid, place.folder),
        Task::Remove { uid } => format!("remove {uid}"),
    }
}

/// How it ends when nothing goes wrong.
fn well(task: &Task) -> Ending {
    match task {
        Task::Mount { place, .. } => Ending::Mounted {
            path: PathBuf::from(format!("/{}/{}", place.uid, place.folder)),
            relabel: Relabel::No,
        },
        Task::Stage { .. }
        | Task::Unstage(_)
        | Task::Unmount { .. }
        | Task::Grow { .. }
        | Task::Remove { .. } => Ending::Done,
    }
}

fn failure(trace: Trace) -> Ending {
    Ending::Failed {
        message: "no".to_owned(),
        trace,
    }
}

/// A world, its clock, and what is under way in it.
struct Rig {
    world: World,
    now: Instant,
    running: Vec<Task>,
}

impl Rig {
    /// Just started: both plugins are there, and have not listed anything.
    fn new() -> Rig {
        let mut world = World::new("edge");
        world.introduce(abilities());
        Rig {
            world,
            now: noon(),
            running: Vec::new(),
        }
    }

    /// Nothing was found on the node.
    fn clean() -> Rig {
        let mut rig = Rig::new();
        rig.list([]);
        rig
    }

    fn list<const N: usize>(&mut self, found: [Found; N]) {
        self.world.listed(World::kinds(), found.to_vec());
    }

    fn pods(&mut self, uids: &[&str]) {
        self.world
            .pods(uids.iter().map(|uid| PodUid::from(*uid)).collect());
    }

    fn wish(&mut self, uid: &str, volumes: &[Volume]) {
        let wishes = volumes
            .iter()
            .map(|volume| (volume.name.clone(), Ok(volume.clone())));
        self.wish_for(uid, wishes.collect(), Cause::Asked);
    }

    fn wish_for(
        &mut self,
        uid: &str,
        wishes: BTreeMap<String, Result<Volume, Unresolved>>,
        cause: Cause,
    ) {
        let wish = |volume| Wish { volume, grow: None };
        let wishes = wishes
            .into_iter()
            .map(|(name, volume)| (name, volume.map(wish)));
        self.world.wish(&uid.into(), wishes.collect(), cause);
    }

    fn release(&mut self, uid: &str) {
        self.world.release(&uid.into());
    }

    /// Begins what is to be begun, and says what that is.
    fn begin(&mut self) -> Vec<String> {
        let tasks = self.world.plan(self.now).tasks;
        let words = tasks.iter().map(word).collect();
        self.running.extend(tasks);
        words
    }

    fn end(&mut self, of: &str, ending: Ending) {
        let at = self.running.iter().position(|task| word(task) == of);
        let task = self
            .running
            .remove(at.unwrap_or_else(|| panic!("{of} is not under way")));
        self.world.ended(&task, ending, self.now);
    }

    fn end_well(&mut self, of: &str) {
        let task = self.running.iter().find(|task| word(task) == of);
        let ending = well(task.unwrap_or_else(|| panic!("{of} is not under way")));
        self.end(of, ending);
    }

    /// Lets everything go well until nothing is left to be done; says what was done.
    fn settle(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        loop {
            words.extend(self.begin());
            if self.running.is_empty() {
                return words;
            }
            for task in std::mem::take(&mut self.running) {
                let ending = well(&task);
                self.world.ended(&task, ending, self.now);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn mounted(&self, uid: &str) -> Option<Mounted> {
        self.world.mounted(&uid.into())
    }

    /// Reasons and messages since the last look.
    fn news(&mut self) -> Vec<String> {
        let news = self.world.news().into_iter();
        news.map(|news| format!("{} {}: {}", news.uid, news.reason, news.message))
            .collect()
    }
}

const NONE: [&str; 0] = [];

/// Upstream's Test_Run_Positive_VolumeMountControllerAttachEnabled.
#[test]
fn a_volume_is_staged_then_mounted_then_used() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v"), empty_dir("e")]);
    assert_eq!(rig.begin(), ["mount a e", "stage v"]);
    assert!(rig.mounted("a").is_none());
    rig.end_well("stage v");
    assert_eq!(rig.begin(), ["mount a v"]);
    rig.end_well("mount a v");
    rig.end_well("mount a e");
    assert_eq!(rig.begin(), NONE);
    let mounted = rig.mounted("a").unwrap();
    assert_eq!(mounted.volumes["v"].path, PathBuf::from("/a/v"));
    assert_eq!(mounted.volumes.len(), 2);
    assert!(rig.world.is_at_rest());
}

/// Upstream's Test_Run_Positive_VolumeUnmountControllerAttachEnabled.
#[test]
fn a_released_pod_loses_its_volumes_and_the_last_one_unstages() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v")]);
    rig.wish("b", &[persistent("v")]);
    let words = rig.settle();
    assert_eq!(words, ["stage v", "mount a v", "mount b v"]);
    rig.release("a");
    assert!(!rig.world.is_released(&"a".into()));
    assert_eq!(rig.settle(), ["unmount a v"]);
    assert!(rig.world.is_released(&"a".into()));
    assert!(rig.mounted("b").is_some());
    rig.release("b");
    assert_eq!(rig.settle(), ["unmount b v", "unstage v"]);
    assert!(rig.world.rows().is_empty());
}

/// Upstream's TestMountingPodsWithSameVolume... of nestedpendingoperations: one at a time.
#[test]
fn operations_on_one_volume_are_one_after_the_other() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v")]);
    rig.wish("b", &[persistent("v")]);
    rig.wish("c", &[persistent("w")]);
    assert_eq!(rig.begin(), ["stage v", "stage w"]);
    rig.end_well("stage v");
    assert_eq!(rig.begin(), ["mount a v"]);
    rig.release("b");
    assert_eq!(rig.begin(), NONE);
    rig.end_well("mount a v");
    rig.release("a");
    assert_eq!(rig.begin(), ["unmount a v"]);
    rig.end_well("unmount a v");
    assert_eq!(rig.begin(), ["unstage v"]);
    rig.wish("b", &[persistent("v")]);
    assert_eq!(rig.begin(), NONE, "not while it is being unstaged");
    rig.end_well("unstage v");
    assert_eq!(rig.begin(), ["stage v"]);
}

#[test]
fn what_fails_is_told_and_tried_again_later_and_later() {
    let mut rig = Rig::clean();
    rig.wish("a", &[empty_dir("e")]);
    for delay in [500, 1000, 2000, 4000] {
        assert_eq!(rig.begin(), ["mount a e"]);
        rig.end("mount a e", failure(Trace::Something));
        assert_eq!(
            rig.news(),
            ["a FailedMount: MountVolume.SetUp failed for volume \"e\" : no"]
        );
        let plan = rig.world.plan(rig.now);
        assert_eq!(plan.wake, Some(rig.now + Duration::from_millis(delay)));
        rig.pass(Duration::from_millis(delay - 1));
        assert_eq!(rig.begin(), NONE);
        rig.pass(Duration::from_millis(1));
    }
    assert_eq!(rig.settle(), ["mount a e"]);
    assert!(rig.mounted("a").is_some());
}

#[test]
fn changed_content_is_mounted_again_at_once_even_after_a_failure() {
    let mut rig = Rig::clean();
    rig.wish("a", &[files("cfg", "one")]);
    assert_eq!(rig.begin(), ["mount a cfg"]);
    rig.end("mount a cfg", failure(Trace::Nothing));
    rig.wish("a", &[files("cfg", "two")]);
    assert_eq!(rig.settle(), ["mount a cfg"]);
    rig.wish("a", &[files("cfg", "two")]);
    assert_eq!(rig.settle(), NONE, "nothing changed");
    rig.wish("a", &[files("cfg", "three")]);
    assert_eq!(rig.begin(), ["mount a cfg"]);
    assert!(rig.mounted("a").is_some(), "it is still there meanwhile");
    rig.end("mount a cfg", failure(Trace::Something));
    assert!(rig.mounted("a").is_some(), "with its old content");
    rig.wish("a", &[files("cfg", "two")]);
    assert_eq!(
        rig.settle(),
        ["mount a cfg"],
        "which of the two is there, nobody knows"
    );
}

/// The content of a mounted volume is not kept, so it must come with the wish that needs it.
#[test]
fn content_that_comes_while_it_is_mounted_is_never_lost() {
    let mut rig = Rig::clean();
    rig.wish("a", &[files("cfg", "one")]);
    rig.settle();
    rig.wish("a", &[files("cfg", "two")]);
    assert_eq!(rig.begin(), ["mount a cfg"]);
    rig.wish("a", &[files("cfg", "one")]);
    rig.end_well("mount a cfg");
    assert_eq!(rig.begin(), ["mount a cfg"]);
    rig.end_well("mount a cfg");
    rig.release("a");
    assert_eq!(rig.begin(), ["unmount a cfg"]);
    rig.wish("a", &[files("cfg", "one")]);
    rig.end_well("unmount a cfg");
    assert_eq!(rig.settle(), ["mount a cfg"]);
    assert!(rig.mounted("a").is_some());
}

#[test]
fn a_volume_whose_objects_are_gone_stays_mounted_and_says_so() {
    let mut rig = Rig::clean();
    rig.wish("a", &[files("cfg", "one"), empty_dir("e")]);
    rig.settle();
    let gone = Unresolved {
        step: Step::Mounting,
        message: "configmap \"cfg\" not found".to_owned(),
        ..missing("x")
    };
    let wishes = || {
        BTreeMap::from([
            ("cfg".to_owned(), Err(gone.clone())),
            ("e".to_owned(), Ok(empty_dir("e"))),
        ])
    };
    rig.wish_for("a", wishes(), Cause::Again);
    assert_eq!(rig.settle(), NONE);
    assert_eq!(rig.news(), ["a FailedMount: configmap \"cfg\" not found"]);
    assert_eq!(rig.mounted("a").unwrap().volumes.len(), 2);
    rig.wish_for("a", wishes(), Cause::Again);
    assert_eq!(rig.news(), NONE, "once");
    rig.wish("a", &[files("cfg", "two"), empty_dir("e")]);
    assert_eq!(rig.settle(), ["mount a cfg"]);
}

/// Upstream's TestWaitForAttachAndMountError.
#[test]
fn what_is_not_resolved_is_told_in_upstreams_words() {
    let mut rig = Rig::clean();
    let wishes = BTreeMap::from([
        ("data".to_owned(), Err(missing("data"))),
        ("e".to_owned(), Ok(empty_dir("e"))),
    ]);
    rig.wish_for("a", wishes, Cause::Asked);
    assert_eq!(
        rig.news(),
        [
            "a FailedMount: Unable to attach or mount volumes: unmounted volumes=[data e], unattached volumes=[], failed to process volumes=[data]: error processing PVC default/data: PVC is not bound"
        ]
    );
    assert_eq!(rig.settle(), ["mount a e"]);
    assert!(rig.mounted("a").is_none());
    assert_eq!(
        rig.world
            .not_mounted(&"a".into(), "context deadline exceeded"),
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: context deadline exceeded"
    );
}

/// Upstream's TestGetVolumesInUse (volume manager), Test_Run_Positive_VolumeAttachAndMount... with ReportedInUse.
#[test]
fn an_attached_volume_is_mounted_only_after_it_was_reported_in_use() {
    let mut rig = Rig::clean();
    let mut attached = persistent("v");
    attached.attachment = Attachment::Attached;
    rig.wish("a", &[attached, persistent("w")]);
    let in_use = BTreeSet::from([VolumeId("v".to_owned())]);
    assert_eq!(rig.world.in_use(), in_use);
    assert_eq!(rig.settle(), ["stage w", "mount a w"]);
    assert!(
        rig.world
            .not_mounted(&"a".into(), "")
            .contains("unattached volumes=[v]")
    );
    rig.world.report(in_use.clone());
    assert_eq!(rig.settle(), ["stage v", "mount a v"]);
    rig.release("a");
    assert_eq!(rig.world.in_use(), in_use, "until it is unstaged");
    rig.settle();
    assert!(rig.world.in_use().is_empty());
}

/// Upstream's TestGetMountedVolumesForPodAndGetVolumesInUse.
#[test]
fn a_volume_that_a_controller_is_to_attach_is_in_use_from_the_wish_on() {
    let mut rig = Rig::clean();
    let waits = || Unresolved {
        step: Step::Attaching,
        attachable: Some(VolumeId("v".to_owned())),
        ..missing("data")
    };
    let in_use = BTreeSet::from([VolumeId("v".to_owned())]);
    for uid in ["a", "b"] {
        rig.wish_for(uid, [("v".to_owned(), Err(waits()))].into(), Cause::Asked);
    }
    assert_eq!(rig.world.in_use(), in_use);
    rig.world.report(in_use.clone());
    assert_eq!(rig.settle(), NONE, "nobody has attached it");
    rig.release("b");
    assert_eq!(rig.world.in_use(), in_use, "of the other pod");
    let mut attached = persistent("v");
    attached.attachment = Attachment::Attached;
    rig.wish("a", &[attached]);
    assert_eq!(rig.world.in_use(), in_use);
    assert_eq!(rig.settle(), ["stage v", "mount a v"]);
    rig.wish_for("a", [("v".to_owned(), Err(waits()))].into(), Cause::Again);
    assert_eq!(rig.world.in_use(), in_use, "it is mounted");
    rig.release("a");
    rig.settle();
    assert!(rig.world.in_use().is_empty());
    rig.wish_for("c", [("v".to_owned(), Err(waits()))].into(), Cause::Asked);
    rig.wish("c", &[empty_dir("e")]);
    assert!(rig.world.in_use().is_empty(), "it wants another one now");
}

/// Upstream's Test_Run_Positive_... IsVolumeMountedElsewhere.
#[test]
fn a_volume_for_one_pod_waits_until_the_other_pod_has_left_it() {
    let mut rig = Rig::clean();
    let single = persistent_with("v", |csi| {
        csi.access_mode = Some(AccessMode::ReadWriteOncePod)
    });
    rig.wish("a", std::slice::from_ref(&single));
    rig.settle();
    rig.wish("b", std::slice::from_ref(&single));
    assert_eq!(rig.settle(), NONE);
    assert_eq!(
        rig.news(),
        [
            "b FailedMount: MountVolume.SetUp failed for volume \"v\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod"
        ]
    );
    assert_eq!(rig.settle(), NONE);
    assert_eq!(rig.news(), NONE, "not again before its time");
    rig.release("a");
    assert_eq!(rig.settle(), ["unmount a v", "mount b v"]);
}

/// Upstream's fix for several volumes of a pod that claim the same persistent volume.
#[test]
fn two_names_of_one_volume_are_one_mount() {
    let mut rig = Rig::clean();
    let mut reader = persistent("v");
    reader.access = Access::ReadOnly;
    let wishes = [
        ("r".to_owned(), Ok(reader)),
        ("w".to_owned(), Ok(persistent("v"))),
    ];
    rig.wish_for("a", wishes.into(), Cause::Asked);
    let tasks = rig.settle();
    assert_eq!(tasks, ["stage v", "mount a v"]);
    let mounted = rig.mounted("a").unwrap();
    assert_eq!(mounted.volumes["r"].access, Access::ReadOnly);
    assert_eq!(mounted.volumes["w"].access, Access::ReadWrite);
    let held: Vec<_> = rig
        .world
        .measurable()
        .map(|volume| volume.volume.access)
        .collect();
    assert_eq!(held, [Access::ReadWrite]);
}

#[test]
fn what_hangs_is_left_alone_until_its_process_is_gone_and_others_go_on() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v")]);
    rig.wish("b", &[persistent("w")]);
    rig.begin();
    let ending = Ending::Stuck {
        generation: 7,
        message: "stage of v hangs".to_owned(),
    };
    rig.end("stage v", ending);
    assert_eq!(rig.settle(), ["mount b w"]);
    assert_eq!(rig.world.stuck(), ["v: stage of v hangs"]);
    assert!(rig.news()[0].contains("MountVolume.MountDevice failed for volume \"v\""));
    rig.pass(600 * SECOND);
    assert_eq!(rig.settle(), NONE);
    rig.world
        .buried(|kind, generation| kind == Kind::Csi && generation == 6);
    assert_eq!(rig.settle(), NONE);
    rig.world
        .buried(|kind, generation| kind == Kind::Csi && generation == 7);
    assert_eq!(rig.world.stuck(), NONE);
    assert_eq!(rig.settle(), ["stage v", "mount a v"]);
}

#[test]
fn nothing_is_unmounted_while_somebody_works_within() {
    let mut rig = Rig::clean();
    assert!(!rig.world.enter(&"a".into()));
    rig.wish("a", &[empty_dir("e")]);
    rig.settle();
    assert!(rig.world.enter(&"a".into()));
    rig.release("a");
    assert!(!rig.world.enter(&"a".into()));
    assert_eq!(rig.settle(), NONE);
    rig.world.leave(&"a".into());
    assert_eq!(rig.settle(), ["unmount a e"]);
}

#[test]
fn a_failure_that_left_nothing_behind_is_not_unmounted() {
    for (trace, expected) in [
        (Trace::Nothing, &[][..]),
        (Trace::Refusal, &[]),
        (Trace::Something, &["unmount a e"]),
    ] {
        let mut rig = Rig::clean();
        rig.wish("a", &[empty_dir("e")]);
        rig.begin();
        rig.end("mount a e", failure(trace));
        rig.release("a");
        assert_eq!(rig.settle(), expected, "{trace:?}");
        assert!(rig.world.is_released(&"a".into()));
    }
}

#[test]
fn a_driver_that_comes_back_is_tried_at_once() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v")]);
    for _ in 0..8 {
        rig.begin();
        rig.end("stage v", failure(Trace::Nothing));
        rig.pass(64 * SECOND);
    }
    rig.begin();
    rig.end("stage v", failure(Trace::Nothing));
    rig.world.encourage("other");
    assert_eq!(rig.settle(), NONE);
    rig.world.encourage("d");
    assert_eq!(rig.settle(), ["stage v", "mount a v"]);
}

#[test]
fn a_driver_that_refreshes_is_asked_again_each_time() {
    let mut rig = Rig::clean();
    let fresh = persistent_with("v", |csi| csi.republish = true);
    rig.wish("a", &[fresh, persistent("w")]);
    rig.settle();
    rig.world.refresh(&"a".into());
    assert_eq!(rig.settle(), ["mount a v"]);
    rig.world.refresh(&"a".into());
    assert_eq!(rig.begin(), ["mount a v"]);
    rig.end("mount a v", failure(Trace::Nothing));
    assert_eq!(rig.news().len(), 1);
    assert!(rig.mounted("a").is_some());
    rig.pass(SECOND);
    assert_eq!(rig.settle(), ["mount a v"]);
}

#[test]
fn no_lane_and_no_pod_takes_all_places() {
    let mut rig = Rig::clean();
    for pod in 0..20 {
        let of_one = |n| persistent(&format!("v{pod}-{n}"));
        rig.wish(&format!("p{pod:02}"), &[of_one(0), of_one(1)]);
    }
    let many: Vec<Volume> = (0..20).map(|n| empty_dir(&format!("e{n}"))).collect();
    rig.wish("q", &many);
    rig.wish("r", &[empty_dir("mine")]);
    let begun = rig.begin();
    let of = |word: &str| begun.iter().filter(|begun| begun.starts_with(word)).count();
    assert_eq!(of("stage"), 8, "of one driver");
    assert_eq!(of("mount q"), 6, "for one pod");
    assert_eq!(of("mount r"), 1, "whatever came before it");
}

#[test]
fn what_lingers_gives_its_place_to_others_but_not_in_its_lane() {
    let mut rig = Rig::clean();
    for driver in 0..10 {
        for n in 0..9 {
            let id = format!("v{driver}-{n}");
            let volume = persistent_with(&id, |csi| csi.driver = format!("d{driver}"));
            rig.wish(&format!("p{driver}-{n}"), &[volume]);
        }
    }
    assert_eq!(rig.begin().len(), 64);
    rig.wish("z", &[empty_dir("e")]);
    let plan = rig.world.plan(rig.now);
    assert!(plan.tasks.is_empty());
    assert_eq!(plan.wake, Some(rig.now + 10 * SECOND));
    rig.pass(10 * SECOND);
    let begun = rig.begin();
    assert_eq!(begun.len(), 17, "two more drivers, and the emptyDir");
    assert!(begun.contains(&"mount z e".to_owned()));
}

/// Upstream's Test_Run_..._ExpandInUse and expandVolumeDuringMount.
#[test]
fn a_volume_grows_before_its_pod_starts_and_under_it() {
    let mut rig = Rig::clean();
    let grow = |rig: &mut Rig, size| {
        let wish = Wish {
            volume: persistent("v"),
            grow: Some(size),
        };
        rig.world.wish(
            &"a".into(),
            [("v".to_owned(), Ok(wish))].into(),
            Cause::Again,
        );
    };
    grow(&mut rig, 10);
    rig.begin();
    rig.end_well("stage v");
    rig.begin();
    rig.end_well("mount a v");
    assert_eq!(rig.begin(), ["grow a v 10"]);
    assert!(rig.mounted("a").is_none(), "too small yet");
    rig.end("grow a v 10", failure(Trace::Something));
    assert_eq!(
        rig.news(),
        ["a FailedMount: MountVolume.Setup failed while expanding volume for volume \"v\" : no"]
    );
    rig.pass(SECOND);
    assert_eq!(rig.settle(), ["grow a v 10"]);
    assert_eq!(
        rig.news(),
        [
            "a FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \"v\" edge"
        ]
    );
    assert!(rig.mounted("a").is_some());
    grow(&mut rig, 10);
    assert_eq!(rig.settle(), NONE);
    grow(&mut rig, 20);
    assert_eq!(rig.begin(), ["grow a v 20"]);
    assert!(rig.mounted("a").is_some(), "it is used meanwhile");
    rig.end("grow a v 20", failure(Trace::Refusal));
    assert_eq!(
        rig.news(),
        ["a VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume \"v\" : no"]
    );
    rig.pass(600 * SECOND);
    assert_eq!(rig.settle(), NONE, "not to this size");
    grow(&mut rig, 30);
    assert_eq!(rig.settle(), ["grow a v 30"]);
}

#[test]
fn news_of_success_are_normal_and_of_failure_warnings() {
    let mut rig = Rig::clean();
    rig.wish("a", &[empty_dir("e")]);
    rig.begin();
    rig.end("mount a e", failure(Trace::Nothing));
    let news = rig.world.news();
    assert_eq!((news.len(), news[0].weight), (1, Weight::Warning));
}
