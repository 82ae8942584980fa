//! Invariants of reading termination messages.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use logic_api::testing::bare;
use logic_api::testing::yaml::pod;
use logic_api::types::ContainerState;
use tempfile::TempDir;

use super::*;

const AT: &str = "2016-10-20T18:39:20.57606443Z";

struct Rig {
    folder: TempDir,
    pod: Arc<Pod>,
    ended: RuntimeContainer,
    node: NodePolicy,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let yaml = "
            metadata: { name: web }
            spec:
              containers:
              - name: main
                terminationMessagePath: /dev/termination-log
                terminationMessagePolicy: FallbackToLogsOnError
        ";
        let node = NodePolicy {
            root_dir: folder.path().join("root"),
            pod_logs_dir: folder.path().join("logs"),
            ..NodePolicy::default()
        };
        let rig = Rig {
            pod: pod(yaml),
            ended: ended(),
            node,
            folder,
        };
        for path in [rig.message(), rig.log()] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        rig
    }

    fn message(&self) -> PathBuf {
        self.folder
            .path()
            .join("root/pods/web/containers/main/0000000b")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("logs/default_web_web/main/11.log")
    }

    fn words(&self) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(last_words(&self.pod, &self.ended, &self.node))
    }
}

/// A container that failed in its twelfth restart.
fn ended() -> RuntimeContainer {
    RuntimeContainer {
        attempt: 11,
        exit_code: 1,
        reason: "Error".into(),
        restart_count: 11,
        ..bare("c", "s", "main", ContainerState::Exited)
    }
}

#[test]
fn the_message_file_speaks_before_the_log() {
    let mut rig = Rig::new();
    assert!(
        rig.words()
            .starts_with("Error on reading termination message from logs: /")
    );
    fs::write(rig.log(), format!("{AT} stderr F out of cheese\n")).unwrap();
    assert_eq!(rig.words(), "out of cheese\n");
    fs::write(rig.message(), "").unwrap();
    assert_eq!(rig.words(), "out of cheese\n");
    fs::write(rig.message(), "bye").unwrap();
    assert_eq!(rig.words(), "bye");
    fs::remove_file(rig.message()).unwrap();
    rig.ended.exit_code = 0;
    assert_eq!(rig.words(), "");
    rig.ended.name = "nobody".to_owned();
    assert_eq!(rig.words(), "");
}

#[test]
fn the_log_is_read_where_the_runtime_says() {
    let mut rig = Rig::new();
    let elsewhere = rig.log().with_file_name("docker-json.log");
    let line = format!("{{\"log\":\"from docker\\n\",\"stream\":\"stdout\",\"time\":\"{AT}\"}}\n");
    fs::write(&elsewhere, line).unwrap();
    rig.ended.log_path = elsewhere.to_string_lossy().into_owned();
    assert_eq!(rig.words(), "from docker\n");
}

/// As a pod with the folder of all logs as a hostPath volume can make it.
#[test]
fn a_log_that_leads_elsewhere_is_named_and_not_read() {
    let rig = Rig::new();
    let secret = rig.folder.path().join("secret");
    fs::write(&secret, format!("{AT} stderr F root:x:0\n")).unwrap();
    let log = rig.log();
    let refused = |kind: &str| {
        let words = rig.words();
        let expected = format!(
            "Error on reading termination message from logs: {}: ",
            log.display()
        );
        assert!(words.starts_with(&expected), "{kind}: {words}");
        assert!(!words.contains("root:x:0"), "{kind}: {words}");
    };
    symlink(&secret, &log).unwrap();
    refused("link");
    fs::remove_file(&log).unwrap();
    fs::rename(&secret, &log).unwrap();
    std::os::unix::fs::chown(&log, Some(1_000), None).unwrap();
    refused("another user's file");
    std::os::unix::fs::chown(&log, Some(0), None).unwrap();
    let folder = log.parent().unwrap();
    let elsewhere = rig.folder.path().join("elsewhere");
    fs::rename(folder, &elsewhere).unwrap();
    symlink(&elsewhere, folder).unwrap();
    refused("folder");
}

#[test]
fn only_the_end_of_huge_files_is_read() {
    let rig = Rig::new();
    let message = File::create(rig.message()).unwrap();
    message.set_len(1 << 40).unwrap();
    assert_eq!(rig.words(), "\0".repeat(MAX_MESSAGE_BYTES));
    fs::write(rig.message(), "x".repeat(5_000) + "end").unwrap();
    assert_eq!(rig.words(), "x".repeat(MAX_MESSAGE_BYTES - 3) + "end");
    fs::remove_file(rig.message()).unwrap();
    File::create(rig.log()).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(rig.words().len(), 2048);
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    let rig = Rig::new();
    let secret = rig.folder.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let file = rig.message();
    let refused = |kind: &str| {
        let words = rig.words();
        let expected = format!("Error on reading termination log {}: ", file.display());
        assert!(
            words.starts_with(&expected) && !words.contains("secret "),
            "{kind}: {words}"
        );
    };
    symlink(&secret, &file).unwrap();
    refused("link");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    refused("folder");
    fs::remove_dir(&file).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &file,
        rustix::fs::FileType::Fifo,
        0o666.into(),
        0,
    )
    .unwrap();
    refused("pipe");
    fs::remove_file(&file).unwrap();
    let _socket = UnixListener::bind(&file).unwrap();
    refused("socket");
}
