//! What the world learns from the end of a task.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::World;
use super::content::Content;
use super::lanes::Lane;
use super::state::{Actual, Busy, Done, Heard, Removal, Stage, StagedAt, Stuck};
use super::task::{Ending, News, Place, Subject, Task, Trace, Verb};
use crate::types::{PodUid, Weight};
use crate::volumes::resolve::words::{self, Operation, Told};
use crate::volumes::{Kind, Relabel, Volume, VolumeId};

impl World {
    /// A task that a plan asked for came to an end.
    pub fn ended(&mut self, task: &Task, ending: Ending, now: Instant) {
        let subject = task.subject();
        if !self.lanes.end(&subject) {
            debug_assert!(false, "{task:?} was not under way");
            return;
        }
        if let Some(shared) = task.volume().and_then(|id| self.shared.get_mut(id)) {
            shared.busy = Busy::No;
        }
        match ending {
            Ending::Done | Ending::Mounted { .. } => {
                self.backoffs.reset(&subject, task.verb());
                self.succeeded(task, ending);
            }
            Ending::Failed { message, trace } => {
                self.backoffs.failed(&subject, task.verb(), now);
                self.failed(task, &message, trace);
            }
            Ending::Stuck {
                generation,
                message,
            } => {
                self.backoffs.failed(&subject, task.verb(), now);
                self.note_stuck(task, generation, &message);
                self.failed(task, &message, Trace::Something);
            }
        }
        self.queue.push(subject);
        if let Some(id) = task.volume() {
            self.stir(&id.clone());
        }
    }

    fn succeeded(&mut self, task: &Task, ending: Ending) {
        match (task, ending) {
            (Task::Stage { volume }, _) => self.staged(volume),
            (Task::Unstage(staged), _) => self.unstaged(&staged.id),
            (Task::Mount { place, volume }, Ending::Mounted { path, relabel }) => {
                self.mounted_at(place, volume, path, relabel);
            }
            (
                Task::Mount { place, .. },
                Ending::Done | Ending::Failed { .. } | Ending::Stuck { .. },
            ) => {
                debug_assert!(false, "a mount ends with a path: {place:?}");
            }
            (Task::Unmount { place, .. }, _) => self.unmounted(place),
            (
                Task::Grow {
                    place,
                    volume,
                    size,
                    ..
                },
                _,
            ) => self.grown(place, &volume.id, *size),
            (Task::Remove { uid }, _) => self.removed(uid),
        }
    }

    fn staged(&mut self, volume: &Arc<Volume>) {
        let shared = self.shared.entry(volume.id.clone()).or_default();
        shared.stage = Stage::Staged;
        shared.why.clear();
        shared.staged = Some(StagedAt {
            kind: volume.kind,
            mode: volume.mode,
            path: PathBuf::new(),
            lane: Lane::of(volume),
            volume: Some(volume.clone()),
        });
    }

    fn unstaged(&mut self, id: &VolumeId) {
        // Whoever was refused for its label need not wait.
        let subject = Subject::Shared(id.clone());
        self.backoffs.reset(&subject, Verb::Stage);
        if let Some(shared) = self.shared.get_mut(id) {
            shared.stage = Stage::Absent;
            shared.staged = None;
            shared.grown = 0;
            shared.refused = None;
            shared.why.clear();
        }
    }

    fn mounted_at(&mut self, place: &Place, volume: &Arc<Volume>, path: PathBuf, relabel: Relabel) {
        let Some(mount) = self.mount_mut(place) else {
            return;
        };
        let doing = mount.doing.take();
        let mut content = doing.unwrap_or_else(|| Content::new(Volume::clone(volume)));
        content.slim();
        if let Some(want) = mount
            .want
            .as_mut()
            .filter(|want| want.content.is_same(&content))
        {
            want.content.slim();
        }
        let ready = mount.done().is_some_and(|done| done.ready);
        mount.again = false;
        mount.why.clear();
        mount.actual = Actual::Mounted(Box::new(Done {
            content,
            path,
            relabel,
            ready,
        }));
        self.touched.insert(place.uid.clone());
    }

    fn unmounted(&mut self, place: &Place) {
        let Some(mut mount) = self.take_mount(place) else {
            return;
        };
        mount.actual = Actual::Absent;
        mount.why.clear();
        let id = mount.id.clone();
        self.adopt(place, &mut mount);
        self.put_mount(place, mount);
        self.touched.insert(place.uid.clone());
        self.let_others_in(&id);
        self.stir(&id);
    }

    /// Whoever waited for a volume that only one pod may have tries at once.
    fn let_others_in(&mut self, id: &VolumeId) {
        let users = self.shared.get(id).map(|shared| shared.users.clone());
        for place in users.into_iter().flatten() {
            self.backoffs.reset(&Subject::Mount(place), Verb::Mount);
        }
        let waits = self.pods.iter().filter(|(_, pod)| pod.is_unresolved());
        self.freed.extend(waits.map(|(uid, _)| uid.clone()));
    }

    fn grown(&mut self, place: &Place, id: &VolumeId, size: u64) {
        if let Some(shared) = self.shared.get_mut(id) {
            shared.grown = shared.grown.max(size);
        }
        let told = words::expanded(&place.folder, &self.node_name);
        self.tell(&place.uid, Weight::Normal, told);
    }

    fn removed(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.removal = Removal::No;
        pod.why.clear();
        let places: Vec<Place> = pod.mounts.keys().cloned().collect();
        if pod.heard == Heard::Release && places.is_empty() {
            self.pods.remove(uid);
            self.folders.remove(uid);
            self.backoffs.forget(&Subject::Pod(uid.clone()));
        }
        self.touched.insert(uid.clone());
        for place in places {
            self.queue.push(Subject::Mount(place));
        }
    }

    fn failed(&mut self, task: &Task, message: &str, trace: Trace) {
        match task {
            Task::Stage { volume } => self.not_staged(volume, message, trace),
            Task::Unstage(staged) => {
                if let Some(shared) = self.shared.get_mut(&staged.id) {
                    // One that was found is still as uncertain as it was.
                    if shared.stage == Stage::Staged {
                        shared.stage = Stage::Uncertain;
                    }
                    message.clone_into(&mut shared.why);
                }
            }
            Task::Mount { place, volume } => self.not_mounted_at(place, volume, message, trace),
            Task::Unmount { place, .. } => {
                if let Some(mount) = self.mount_mut(place) {
                    message.clone_into(&mut mount.why);
                }
            }
            Task::Grow {
                place,
                volume,
                size,
                ..
            } => {
                self.not_grown(place, &volume.id, *size, (message, trace));
            }
            Task::Remove { uid } => {
                self.not_removed(uid, message);
            }
        }
    }

    fn not_staged(&mut self, volume: &Arc<Volume>, message: &str, trace: Trace) {
        let shared = self.shared.entry(volume.id.clone()).or_default();
        message.clone_into(&mut shared.why);
        if shared.stage == Stage::Absent && trace == Trace::Something {
            shared.stage = Stage::Uncertain;
            shared.staged = Some(StagedAt {
                kind: volume.kind,
                mode: volume.mode,
                path: PathBuf::new(),
                lane: Lane::of(volume),
                volume: Some(volume.clone()),
            });
        }
        let users = shared.users.clone();
        for place in users {
            let waits = self
                .mount(&place)
                .is_some_and(|mount| mount.want.is_some() && mount.done().is_none());
            if waits {
                let told = words::failed(Operation::Stage, place.mode, &place.folder, message);
                self.tell(&place.uid, Weight::Warning, told);
            }
        }
    }

    /// What was mounted stays so, with its old content; what was not is half mounted at worst.
    fn not_mounted_at(&mut self, place: &Place, volume: &Arc<Volume>, message: &str, trace: Trace) {
        let told = words::failed(Operation::Publish, place.mode, &volume.folder, message);
        self.tell(&place.uid, Weight::Warning, told);
        let Some(mut mount) = self.take_mount(place) else {
            return;
        };
        mount.doing = None;
        message.clone_into(&mut mount.why);
        match (&mount.actual, trace) {
            (Actual::Absent, Trace::Something) => mount.actual = Actual::Uncertain,
            (Actual::Mounted(_), Trace::Something) => mount.again = mount.want.is_some(),
            (Actual::Absent | Actual::Mounted(_), Trace::Nothing | Trace::Refusal)
            | (Actual::Uncertain, _) => {}
        }
        self.adopt(place, &mut mount);
        self.put_mount(place, mount);
    }

    fn not_grown(
        &mut self,
        place: &Place,
        id: &VolumeId,
        size: u64,
        (message, trace): (&str, Trace),
    ) {
        let first = self
            .mount(place)
            .and_then(|mount| mount.done())
            .is_some_and(|done| !done.ready);
        match trace {
            // As upstream: a driver that cannot grow it now keeps no pod from starting.
            Trace::Nothing => self.go_without(place),
            Trace::Refusal => {
                if let Some(shared) = self.shared.get_mut(id) {
                    shared.refused = Some(size);
                }
            }
            Trace::Something => {}
        }
        let operation = match first && trace == Trace::Something {
            true => Operation::ExpandAtMount,
            false => Operation::Expand,
        };
        let told = words::failed(operation, place.mode, &place.folder, message);
        self.tell(&place.uid, Weight::Warning, told);
    }

    fn go_without(&mut self, place: &Place) {
        if let Some(mount) = self.mount_mut(place)
            && let Actual::Mounted(done) = &mut mount.actual
        {
            done.ready = true;
        }
        self.touched.insert(place.uid.clone());
    }

    fn not_removed(&mut self, uid: &PodUid, message: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.removal = Removal::No;
            message.clone_into(&mut pod.why);
            let places: Vec<Place> = pod.mounts.keys().cloned().collect();
            for place in places {
                self.queue.push(Subject::Mount(place));
            }
        }
        self.touched.insert(uid.clone());
    }

    /// A thread was given up over a volume: it is left alone until that thread is gone.
    fn note_stuck(&mut self, task: &Task, generation: u64, message: &str) {
        let kind = match task {
            Task::Stage { volume } => volume.kind,
            Task::Unstage(staged) => staged.kind,
            Task::Mount { place, .. } | Task::Unmount { place, .. } | Task::Grow { place, .. } => {
                place.kind
            }
            // Nothing of a pod's folder is mounted then: it is tried again in its time.
            Task::Remove { .. } => Kind::Image,
        };
        if let Some(shared) = task.volume().and_then(|id| self.shared.get_mut(id)) {
            shared.stuck = Some(Stuck {
                kind,
                generation,
                message: message.to_owned(),
            });
        }
    }

    fn tell(&mut self, uid: &PodUid, weight: Weight, told: Told) {
        self.news.push(News {
            uid: uid.clone(),
            weight,
            reason: told.reason,
            message: told.message,
        });
    }

    fn take_mount(&mut self, place: &Place) -> Option<Box<super::state::Mount>> {
        self.pods.get_mut(&place.uid)?.mounts.remove(place)
    }

    fn put_mount(&mut self, place: &Place, mount: Box<super::state::Mount>) {
        let pod = self.pods.entry(place.uid.clone()).or_default();
        pod.mounts.insert(place.clone(), mount);
    }
}
