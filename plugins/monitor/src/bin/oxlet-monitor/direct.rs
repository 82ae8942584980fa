//! What our own OCI runtime has in its state, so that a program need not be started to ask it or to have it act.
//!
//! Only for the `oxlet-oci` that this monitor came with (`Handler::is_own`); every other runtime has its command line alone.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use monitor::Create;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use serde::Deserialize;

/// The record of a container in the runtime's state (`plugins/oxlet-oci/src/record.rs`).
const RECORD: &str = "oxlet.json";
/// The largest record of the runtime's that is read, in bytes.
const MAX_RECORD_BYTES: u64 = 64 << 10;
/// What its init waits at for its start.
const START_FIFO: &str = "exec.fifo";

#[derive(Deserialize)]
struct Record {
    /// Whether nothing is to be done for a start but to let the init go on: no hook of the node runs after it.
    #[serde(default)]
    starts_by_fifo: bool,
}

/// Lets the init of a created container go on. False if the runtime's own command must do it, or say why it cannot.
pub(crate) fn start(create: &Create) -> io::Result<bool> {
    let state = create.handler.root.join(&create.container);
    if !create.handler.is_own || !starts_by_fifo(&state) {
        return Ok(false);
    }
    let path = state.join(START_FIFO);
    // Without an init that reads, opening it for writing alone fails.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fifo = match open(&path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NXIO) => return Ok(false),
        opened => fs::File::from(opened?),
    };
    if !fifo.metadata()?.file_type().is_fifo() {
        return Ok(false);
    }
    (&fifo).write_all(b"0")?;
    fs::remove_file(path)?;
    Ok(true)
}

fn starts_by_fifo(state: &Path) -> bool {
    let text = files::read_regular(state, Path::new(RECORD), MAX_RECORD_BYTES);
    let record = text
        .ok()
        .and_then(|text| serde_json::from_slice::<Record>(&text).ok());
    record.is_some_and(|record| record.starts_by_fifo)
}

#[cfg(test)]
mod tests {
    use monitor::{Handler, Input};
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn create(root: &Path, is_own: bool) -> Create {
        Create {
            container: "box".to_owned(),
            handler: Handler {
                program: "/p".into(),
                root: root.to_owned(),
                systemd_cgroup: false,
                is_own,
                deadline_ms: 1,
            },
            bundle: "/b".into(),
            log: None,
            log_folder: None,
            stdin: Input::Closed,
            terminal: false,
        }
    }

    #[test]
    fn only_an_init_that_waits_is_let_go_and_only_if_its_record_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("box");
        fs::create_dir(&state).unwrap();
        let start = |is_own| super::start(&create(folder.path(), is_own)).unwrap();
        let record = |text: &str| fs::write(state.join(RECORD), text).unwrap();
        assert!(!start(true));
        mknodat(
            CWD,
            state.join(START_FIFO),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let waits = open(state.join(START_FIFO), flags, Mode::empty()).unwrap();
        record("{}");
        assert!(!start(true));
        record(r#"{"starts_by_fifo": true}"#);
        assert!(!start(false));
        assert!(start(true));
        let mut byte = [0];
        assert_eq!(rustix::io::read(&waits, &mut byte).unwrap(), 1);
        assert!(!state.join(START_FIFO).exists());
        // An init that is gone.
        mknodat(
            CWD,
            state.join(START_FIFO),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(!start(true));
        // Something else in its place.
        fs::remove_file(state.join(START_FIFO)).unwrap();
        fs::write(state.join(START_FIFO), "x").unwrap();
        assert!(!start(true));
        assert_eq!(fs::read(state.join(START_FIFO)).unwrap(), b"x");
    }
}
