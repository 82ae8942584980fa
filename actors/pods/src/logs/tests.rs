//! Invariants of the container log manager.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

use clients::runtime::fake::serve;
use clients::runtime::testing::running_container;
use flate2::read::GzDecoder;
use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{Addr, ChildSpec, InjectedFault, Intensity, Supervisor, mailbox, system};
use plugin_host::PluginClient;
use runtime_fake::{Clock, Fake, FakeSettings, Rpc};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::pod_manager;

const MIB: u64 = 1 << 20;

/// The manager, a runtime with one running container, and the folder of its logs.
struct Rig {
    folder: TempDir,
    fake: Fake,
    root: Supervisor,
    logs: Addr<Msg>,
    pod_manager: Inbox<pod_manager::Msg>,
    id: ContainerId,
}

impl Rig {
    async fn start(policy: LogRotationPolicy) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake::open_at(
            folder.path().join("fake"),
            FakeSettings::default(),
            Clock::start(),
        )
        .unwrap();
        let channel = serve(&fake);
        let id = running_container(channel.clone(), &folder.path().join("logs")).await;
        let runtime = RuntimeClient::new(
            PluginClient::fixed("runtime", channel),
            Duration::from_secs(5),
        );
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (pod_manager, told) = inbox(16);
        let pod_manager = Recipient::new(pod_manager, |PodResync| pod_manager::Msg::Resync);
        let (logs, port) = mailbox(MAILBOX);
        root.spawn(ChildSpec::permanent("logs"), port, move || {
            ContainerLogManager::new(policy.clone(), runtime.clone(), pod_manager.clone())
        });
        Rig {
            folder,
            fake,
            root,
            logs,
            pod_manager: told,
            id,
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("logs/main/0.log")
    }

    fn watch(&self) {
        let watched = RunningLog {
            id: self.id.clone(),
            path: self.log(),
        };
        self.tell(vec![watched]);
    }

    fn tell(&self, containers: Vec<RunningLog>) {
        let uid = PodUid::from("pod");
        self.logs.tell(Msg::Watch { uid, containers }).unwrap();
    }

    fn fail_reopening(&self, times: u64) {
        let script = json!({ "faults": [{ "call": "ReopenContainerLog", "times": times }] });
        self.fake.follow(serde_json::from_value(script).unwrap());
    }

    fn append(&self, bytes: usize) {
        let mut file = OpenOptions::new().append(true).open(self.log()).unwrap();
        file.write_all(&vec![b'x'; bytes]).unwrap();
    }

    fn size(&self) -> u64 {
        fs::metadata(self.log()).unwrap().len()
    }

    /// The rotated files, sorted, without their names' common prefix.
    fn rotated(&self) -> Vec<String> {
        let entries = fs::read_dir(self.log().parent().unwrap()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names
            .filter_map(|name| Some(name.strip_prefix("0.log.")?.to_owned()))
            .collect();
        names.sort();
        names
    }

    async fn snapshot(&self) -> Value {
        self.root
            .tree()
            .await
            .find("test/logs")
            .unwrap()
            .snapshot
            .clone()
    }
}

fn policy(limit: u64) -> LogRotationPolicy {
    LogRotationPolicy {
        limit: Some(limit),
        ..LogRotationPolicy::default()
    }
}

fn paused(limit: u64, test: impl AsyncFnOnce(Rig)) {
    run_paused(|| async { test(Rig::start(policy(limit)).await).await });
}

/// Writes as a runtime does for a container: into its file, until there is another one at the path.
struct LogWriter {
    path: PathBuf,
    file: File,
    size: u64,
    largest: u64,
}

impl LogWriter {
    fn open(path: PathBuf) -> LogWriter {
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        let size = file.metadata().unwrap().len();
        LogWriter {
            path,
            file,
            size,
            largest: 0,
        }
    }

    fn follow(&mut self) {
        let own = self.file.metadata().unwrap().ino();
        if fs::metadata(&self.path).is_ok_and(|meta| meta.ino() != own) {
            let largest = self.largest;
            *self = LogWriter {
                largest,
                ..LogWriter::open(self.path.clone())
            };
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.follow();
        self.file.write_all(bytes).unwrap();
        self.size += u64::try_from(bytes.len()).unwrap();
        self.largest = self.largest.max(self.size);
    }
}

#[test]
fn a_flood_of_100_megabytes_a_second_stays_within_twice_the_limit() {
    let chunk = vec![b'x'; 100_000];
    for limit in [MIB, 10 * MIB] {
        paused(limit, async |rig| {
            rig.watch();
            let mut writer = LogWriter::open(rig.log());
            pass(Duration::from_secs(1)).await;
            for _ in 0..1_000 {
                writer.write(&chunk);
                pass(Duration::from_millis(1)).await;
                assert!(rig.rotated().len() <= 5, "{:?}", rig.rotated());
            }
            assert!(writer.largest >= limit, "{}", writer.largest);
            assert!(writer.largest < 2 * limit, "{} of {limit}", writer.largest);
            let rotations = rig.snapshot().await["rotations"].as_u64().unwrap();
            assert!(rotations >= 100_000_000 / (2 * limit), "{rotations}");
        });
    }
}

/// The same with a writer that is a thread of its own, paced by the agent's thread, so that a busy machine
/// slows down both.
#[test]
fn a_flood_from_another_thread_stays_within_twice_the_limit() {
    const CHUNK_SIZE: usize = 100_000;
    let ran = system::run(async {
        let rig = Rig::start(policy(10 * MIB)).await;
        rig.watch();
        let (credit, credits) = mpsc::channel();
        let path = rig.log();
        let flood = std::thread::spawn(move || {
            let (mut writer, chunk) = (LogWriter::open(path), vec![b'x'; CHUNK_SIZE]);
            while credits.recv().is_ok() {
                writer.write(&chunk);
            }
            writer.largest
        });
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for _ in 0..1_500 {
            tick.tick().await;
            credit.send(()).unwrap();
        }
        drop(credit);
        let largest = kernel::spawn_blocking(|| flood.join().unwrap())
            .await
            .unwrap();
        assert!(largest < 20 * MIB, "{largest}");
        assert!(rig.snapshot().await["rotations"].as_u64().unwrap() >= 7);
    });
    ran.unwrap();
}

#[test]
fn a_log_that_grows_slowly_is_rotated_when_it_is_full() {
    paused(MIB, async |rig| {
        rig.watch();
        for _ in 0..10 {
            rig.append(100_000);
            pass(Duration::from_secs(60)).await;
            assert_eq!(rig.rotated(), [""; 0]);
        }
        rig.append(100_000);
        pass(Duration::from_secs(1)).await;
        assert_eq!(rig.rotated().len(), 1);
        assert_eq!(rig.size(), 0);
    });
}

/// Upstream's TestRotateLogs: the rotated log of before is compressed, the excess one is gone.
#[test]
fn all_but_the_newest_rotated_logs_are_compressed() {
    run_paused(|| async {
        let three = LogRotationPolicy {
            files: 3,
            ..policy(10)
        };
        let rig = Rig::start(three).await;
        fs::set_permissions(rig.log(), fs::Permissions::from_mode(0o640)).unwrap();
        rig.watch();
        for _ in 0..3 {
            rig.append(20);
            pass(Duration::from_secs(30)).await;
        }
        let rotated = rig.rotated();
        assert_eq!(rotated.len(), 2, "{rotated:?}");
        assert!(
            rotated[0].ends_with(".gz") && !rotated[1].ends_with(".gz"),
            "{rotated:?}"
        );
        assert!(rotated[1].starts_with("20260101-"), "{rotated:?}");
        let calls = rig.fake.calls(Rpc::ReopenContainerLog);
        assert_eq!(calls, 3);
    });
}

/// Upstream's TestRotateLatestLog.
#[test]
fn a_log_that_cannot_be_reopened_is_moved_back_and_tried_again_later() {
    paused(10, async |rig| {
        rig.fail_reopening(1);
        rig.append(20);
        rig.watch();
        pass(Duration::from_secs(9)).await;
        assert_eq!((rig.size(), rig.rotated().len()), (20, 0));
        assert_eq!(rig.fake.calls(Rpc::ReopenContainerLog), 1);
        assert_eq!(rig.snapshot().await["failures"], 1);
        pass(Duration::from_secs(2)).await;
        assert_eq!((rig.size(), rig.rotated().len()), (0, 1));
    });
}

#[test]
fn a_log_that_was_reopened_after_all_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("0.log");
    fs::write(&log, "old").unwrap();
    let name = files::set_aside(&log, jiff::Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(name, "0.log.19700101-000000");
    fs::write(&log, "new").unwrap();
    assert!(!files::put_back(&log, &name).unwrap());
    assert_eq!(fs::read(&log).unwrap(), b"new");
    fs::remove_file(&log).unwrap();
    assert!(files::put_back(&log, &name).unwrap());
    assert_eq!(fs::read(&log).unwrap(), b"old");
}

#[test]
fn a_missing_log_is_reopened() {
    paused(10, async |rig| {
        rig.watch();
        pass(Duration::from_secs(1)).await;
        fs::remove_file(rig.log()).unwrap();
        pass(Duration::from_secs(1)).await;
        assert_eq!(rig.size(), 0);
        assert_eq!(rig.fake.calls(Rpc::ReopenContainerLog), 1);
        // The log is watched again.
        rig.append(20);
        pass(Duration::from_secs(1)).await;
        assert_eq!(rig.rotated().len(), 1);
    });
}

#[test]
fn a_log_that_stays_missing_is_reopened_no_more_than_every_so_often() {
    paused(10, async |rig| {
        rig.fail_reopening(1_000);
        fs::remove_file(rig.log()).unwrap();
        rig.watch();
        pass(Duration::from_secs(60)).await;
        let calls = rig.fake.calls(Rpc::ReopenContainerLog);
        assert!((1..=7).contains(&calls), "{calls}");
    });
}

#[test]
fn what_an_agent_left_behind_is_tidied_by_the_next() {
    paused(MIB, async |rig| {
        let folder = rig.log();
        let folder = folder.parent().unwrap();
        for (name, text) in [
            ("0.log.20250101-000000.gz", "kept"),
            ("0.log.20250101-000001", "old"),
            ("0.log.20250101-000001.tmp", "half"),
            ("0.log.20250101-000002", "source"),
            ("0.log.20250101-000002.gz", "result"),
            ("0.log.20250101-000003", "newest"),
            ("1.log.20250101-000000.tmp", "another instance's"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        rig.watch();
        pass(Duration::from_secs(1)).await;
        let expected = [
            "20250101-000000.gz",
            "20250101-000001.gz",
            "20250101-000002.gz",
            "20250101-000003",
        ];
        assert_eq!(rig.rotated(), expected);
        assert!(folder.join("1.log.20250101-000000.tmp").exists());
    });
}

/// Upstream's TestCompressLog.
#[test]
fn a_compressed_log_holds_the_same_and_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("0.log.20260101-000000");
    fs::write(&log, "test log content").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o640)).unwrap();
    files::compress(&log, &AtomicBool::new(false)).unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1);
    let compressed = folder.path().join("0.log.20260101-000000.gz");
    assert_eq!(fs::metadata(&compressed).unwrap().mode() & 0o777, 0o640);
    let mut text = String::new();
    GzDecoder::new(File::open(&compressed).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "test log content");
}

#[test]
fn a_compression_that_is_called_off_leaves_the_log_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("0.log.20260101-000000");
    fs::write(&log, "text").unwrap();
    files::compress(&log, &AtomicBool::new(true)).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::read(&log).unwrap(), b"text");
    // A removed log is not compressed.
    fs::remove_file(&log).unwrap();
    files::compress(&log, &AtomicBool::new(false)).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Upstream's TestRotateLogs: a container that does not run.
#[test]
fn the_log_of_a_container_that_ended_is_left_alone() {
    paused(10, async |rig| {
        rig.watch();
        pass(Duration::from_secs(1)).await;
        rig.tell(Vec::new());
        rig.append(20);
        pass(Duration::from_secs(60)).await;
        assert_eq!((rig.size(), rig.rotated().len()), (20, 0));
        rig.watch();
        rig.logs
            .tell(Msg::Forget {
                uid: PodUid::from("pod"),
            })
            .unwrap();
        pass(Duration::from_secs(60)).await;
        assert_eq!(rig.snapshot().await["logs"], 0);
        assert_eq!(rig.snapshot().await["reported"], 0);
    });
}

#[test]
fn a_log_that_is_a_link_is_not_rotated() {
    paused(10, async |rig| {
        let target = rig.folder.path().join("target");
        fs::write(&target, "longer than ten bytes").unwrap();
        fs::remove_file(rig.log()).unwrap();
        symlink(&target, rig.log()).unwrap();
        rig.watch();
        pass(Duration::from_secs(30)).await;
        assert_eq!(rig.rotated(), [""; 0]);
        assert_eq!(rig.fake.calls(Rpc::ReopenContainerLog), 0);
    });
}

/// A pod's log folder that leads elsewhere: nothing there is renamed, compressed or removed.
#[test]
fn a_folder_that_is_a_link_is_not_gone_into() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("etc");
    let names = [
        "0.log",
        "0.log.20250101-000000",
        "0.log.20250101-000000.tmp",
    ];
    fs::create_dir_all(target.join("main")).unwrap();
    for name in names {
        fs::write(target.join("main").join(name), "content").unwrap();
    }
    symlink(&target, folder.path().join("pod")).unwrap();
    let log = folder.path().join("pod/main/0.log");
    let source = log.with_file_name(names[1]);
    files::set_aside(&log, jiff::Timestamp::UNIX_EPOCH).unwrap_err();
    files::compress(&source, &AtomicBool::new(false)).unwrap_err();
    let policy = LogRotationPolicy::default();
    files::clean_up(&log, &BTreeSet::new(), None, &policy).unwrap_err();
    let left = fs::read_dir(target.join("main")).unwrap().count();
    assert_eq!(left, names.len());
}

#[test]
fn without_a_limit_nothing_is_watched() {
    run_paused(|| async {
        let rig = Rig::start(LogRotationPolicy {
            limit: None,
            ..LogRotationPolicy::default()
        })
        .await;
        rig.watch();
        rig.append(1_000);
        pass(Duration::from_secs(60)).await;
        assert_eq!(rig.rotated(), [""; 0]);
        assert_eq!(rig.snapshot().await["logs"], 0);
    });
}

#[test]
fn a_log_whose_writes_nobody_reports_is_kept_by_looking() {
    paused(MIB, async |mut rig| {
        rig.watch();
        pass(Duration::from_millis(500)).await;
        rig.pod_manager.drain();
        rig.logs
            .tell(Msg::WatchLost(io::ErrorKind::OutOfMemory.into()))
            .unwrap();
        let mut writer = LogWriter::open(rig.log());
        // A hundred kilobytes a second.
        for _ in 0..9 {
            pass(Duration::from_secs(1)).await;
            writer.write(&[b'x'; 100_000]);
        }
        assert_eq!(rig.snapshot().await["reported"], 0);
        for _ in 0..30 {
            writer.write(&[b'x'; 100_000]);
            pass(Duration::from_secs(1)).await;
        }
        assert!(rig.rotated().len() >= 2, "{:?}", rig.rotated());
        assert!(writer.largest < 2 * MIB, "{}", writer.largest);
        // The next sweep had tried for inotify again.
        assert_eq!(rig.snapshot().await["reported"], 1);
    });
}

#[test]
fn a_thousand_idle_logs_are_looked_at_in_few_pieces_of_work() {
    paused(MIB, async |rig| {
        let folder = rig.folder.path().join("idle");
        fs::create_dir(&folder).unwrap();
        let watched = (0..1_000).map(|number| {
            let path = folder.join(format!("{number}.log"));
            fs::write(&path, "x").unwrap();
            RunningLog {
                id: format!("c{number}").into(),
                path,
            }
        });
        rig.tell(watched.collect());
        pass(Duration::from_secs(5)).await;
        assert_eq!(rig.snapshot().await["reported"], 1_000);
        let before = rig.snapshot().await["looks"].as_u64().unwrap();
        pass(Duration::from_secs(100)).await;
        let looks = rig.snapshot().await["looks"].as_u64().unwrap() - before;
        assert!(looks <= 2 * 8, "{looks}");
    });
}

#[test]
fn a_successor_has_the_workers_say_everything_again() {
    paused(10, async |mut rig| {
        let asked = |rig: &mut Rig| {
            let told = rig.pod_manager.drain();
            told.iter()
                .filter(|msg| matches!(msg, pod_manager::Msg::Resync))
                .count()
        };
        pass(Duration::from_secs(1)).await;
        assert_eq!(asked(&mut rig), 1);
        rig.watch();
        rig.root.inject("test/logs", InjectedFault::Panic).unwrap();
        pass(Duration::from_secs(1)).await;
        assert_eq!(asked(&mut rig), 1);
        rig.watch();
        rig.append(20);
        pass(Duration::from_secs(1)).await;
        assert_eq!(rig.rotated().len(), 1);
    });
}
