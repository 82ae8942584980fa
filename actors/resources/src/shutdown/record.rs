//! The times of the last shutdown, kept for metrics after the reboot. The file is upstream's
//! (pkg/kubelet/nodeshutdown/storage.go, 1.36).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use metrics::node::{SHUTDOWN_BEGAN, SHUTDOWN_ENDED};
use serde::{Deserialize, Serialize};

/// The file's name in the agent's root folder.
pub const NAME: &str = "graceful_node_shutdown_state";
/// How Go writes the zero time.
const NEVER: &str = "0001-01-01T00:00:00Z";
/// A disk that hangs must not delay the shutdown.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// When the shutdown began, and when the pods had ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShutdownRecord {
    pub(super) began: Option<Timestamp>,
    pub(super) ended: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordJson {
    #[serde(default)]
    start_time: String,
    #[serde(default)]
    end_time: String,
}

impl ShutdownRecord {
    pub(super) fn show(self) {
        let seconds = |at: Option<Timestamp>| at.map_or(0.0, |at| at.as_second() as f64);
        SHUTDOWN_BEGAN.set(seconds(self.began));
        SHUTDOWN_ENDED.set(seconds(self.ended));
    }

    fn to_text(self) -> String {
        let time = |at: Option<Timestamp>| at.map_or(NEVER.to_owned(), |at| at.to_string());
        let text = RecordJson {
            start_time: time(self.began),
            end_time: time(self.ended),
        };
        serde_json::to_string(&text).expect("two texts are JSON")
    }

    fn parse(text: &[u8]) -> Result<ShutdownRecord, io::Error> {
        let text: RecordJson = serde_json::from_slice(text)?;
        let time = |text: &str| match text {
            "" | NEVER => Ok(None),
            text => text.parse().map(Some).map_err(io::Error::other),
        };
        Ok(ShutdownRecord {
            began: time(&text.start_time)?,
            ended: time(&text.end_time)?,
        })
    }
}

/// Reads the record; the default if there is no file.
pub(super) async fn read(path: PathBuf) -> io::Result<ShutdownRecord> {
    beside(move || match fs::read(path) {
        Ok(text) => ShutdownRecord::parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ShutdownRecord::default()),
        Err(error) => Err(error),
    })
    .await
}

/// Writes the file beside and renames it, as upstream does.
pub(super) async fn write(path: PathBuf, record: ShutdownRecord) -> io::Result<()> {
    beside(move || {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let beside = folder.join(format!(".tmp-{NAME}"));
        let mut file = File::create(&beside)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        file.write_all(record.to_text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    })
    .await
}

async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::time::timeout(WRITE_TIMEOUT, kernel::spawn_blocking(work)).await {
        Ok(done) => done.map_err(io::Error::other)?,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestLocalStorage.
    #[test]
    fn the_record_is_written_and_read_in_upstreams_words() {
        let began: Timestamp = "2026-01-02T03:04:05.5Z".parse().unwrap();
        let down = ShutdownRecord {
            began: Some(began),
            ended: None,
        };
        let text = down.to_text();
        assert_eq!(
            text,
            "{\"startTime\":\"2026-01-02T03:04:05.5Z\",\"endTime\":\"0001-01-01T00:00:00Z\"}"
        );
        assert_eq!(ShutdownRecord::parse(text.as_bytes()).unwrap(), down);
        let theirs =
            b"{\"startTime\":\"2026-01-02T04:04:05.5+01:00\",\"endTime\":\"2026-01-02T03:05:00Z\"}";
        let read = ShutdownRecord::parse(theirs).unwrap();
        assert_eq!(read.began, Some(began));
        assert_eq!(read.ended, "2026-01-02T03:05:00Z".parse().ok());
        assert!(ShutdownRecord::parse(b"{").is_err());
        assert!(ShutdownRecord::parse(b"{\"startTime\":\"soon\"}").is_err());
    }
}
