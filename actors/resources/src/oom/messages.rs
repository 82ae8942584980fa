//! The kernel's messages, waited for without a thread.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::time::Duration;

use host::kmsg::{KmsgRead, MAX_RECORD, classify};
use logic_resources::oom::KmsgRecord;
use tokio::net::unix::pipe::Receiver;

/// Messages read in one go.
const BATCH: usize = 512;
/// After a full batch: a kernel that writes without end costs little.
const PAUSE: Duration = Duration::from_millis(50);

/// An open `/dev/kmsg`, which is waited for and read as a pipe is.
#[derive(Debug)]
pub(super) struct KernelMessages(Receiver);

impl KernelMessages {
    /// # Errors
    /// A file that cannot be waited for is no `/dev/kmsg`.
    pub(super) fn new(file: File) -> io::Result<Self> {
        Receiver::from_file_unchecked(file).map(KernelMessages)
    }

    /// Waits for messages about memory: at least one.
    ///
    /// # Errors
    /// Those of reading; the messages are to be opened anew.
    pub(super) async fn next(&self) -> io::Result<Vec<KmsgRecord>> {
        let mut buffer = vec![0; MAX_RECORD];
        loop {
            self.0.readable().await?;
            let (records, is_empty) = self.batch(&mut buffer)?;
            if !is_empty {
                tokio::time::sleep(PAUSE).await;
            }
            if !records.is_empty() {
                return Ok(records);
            }
        }
    }

    /// What there is, up to a bound; and whether that was all.
    fn batch(&self, buffer: &mut [u8]) -> io::Result<(Vec<KmsgRecord>, bool)> {
        let mut records = Vec::new();
        for _ in 0..BATCH {
            match classify(self.0.try_read(buffer), buffer)? {
                KmsgRead::Record(record) => records.push(record),
                KmsgRead::Other => {}
                KmsgRead::Empty => return Ok((records, true)),
                KmsgRead::Ended => {
                    let ended = io::Error::new(ErrorKind::UnexpectedEof, "they have ended");
                    return Err(ended);
                }
            }
        }
        Ok((records, false))
    }
}
