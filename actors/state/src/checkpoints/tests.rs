//! Records on the disk: when they are there, and what an earlier version left.

use kernel::testing::run_paused;
use kernel::{Addr, ChildSpec, Intensity, Supervisor, mailbox};
use tempfile::TempDir;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(5);

fn manager(folder: &TempDir) -> (Supervisor, Addr<Msg>) {
    let root = Supervisor::root("test", Intensity::UNLIMITED);
    let (addr, port) = mailbox(MAILBOX);
    let (file, folder) = (file(folder), folder.path().to_owned());
    root.spawn(ChildSpec::permanent("checkpoints"), port, move || {
        CheckpointManager::new(file.clone(), &folder)
    });
    (root, addr)
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("pods.checkpoint")
}

fn on_disk(folder: &TempDir) -> BTreeMap<PodUid, PodRecord> {
    match CheckpointFile::new(file(folder), SCHEMA).load() {
        Ok(LoadOutcome::Found(records)) => records,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_that_records_are_stored_comes_when_they_are() {
    run_paused(|| async {
        let folder = tempfile::tempdir().unwrap();
        let (_root, addr) = manager(&folder);
        // The first is written at once, the second is in the write after it.
        for id in ["a", "b"] {
            let record = PodRecord {
                replaced: [id.into()].into(),
                ..PodRecord::default()
            };
            let keep = Msg::Keep {
                uid: "web".into(),
                record: Box::new(record.clone()),
            };
            addr.tell(keep).unwrap();
            addr.ask(TIMEOUT, |reply| Msg::Stored { reply })
                .await
                .unwrap();
            assert_eq!(on_disk(&folder), [("web".into(), record)].into());
        }
        addr.ask(TIMEOUT, |reply| Msg::Stored { reply })
            .await
            .unwrap();
    });
}
