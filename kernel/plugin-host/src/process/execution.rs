//! From the start of a process to the program that it is for: what it said on the way, and what holds of it then.

use std::sync::Arc;

use confine::Word;
use kernel::watch;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;

use crate::confinement::{Confined, Preparation};

/// More than every part of an order refused with a path in each.
const MAX_WORDS: u64 = 64 << 10;

/// Where a process is on the way to its program.
#[derive(Clone, Debug)]
pub(super) enum Execution {
    /// It confines itself.
    Pending,
    /// It does not run its program, and why.
    Failed(String),
    /// It runs its program, or has ended.
    Running(Option<Arc<Confined>>),
}

impl Execution {
    /// Follows a process that was started with this preparation and says on `output` what became of it. Output's end is
    /// the program's start, or the end of the process.
    pub(super) fn follow(
        pid: u32,
        output: Option<ChildStdout>,
        prepared: Option<Preparation>,
    ) -> watch::Receiver<Self> {
        let (Some(output), Some(prepared)) = (output, prepared) else {
            return watch::channel(Self::Running(None)).1;
        };
        let (told, execution) = watch::channel(Self::Pending);
        tokio::spawn(async move {
            let mut text = String::new();
            // What cannot be read says nothing; what the kernel says of the process counts.
            drop(output.take(MAX_WORDS).read_to_string(&mut text).await);
            told.send_replace(Self::of(pid, &text, prepared).await);
        });
        execution
    }

    async fn of(pid: u32, text: &str, prepared: Preparation) -> Self {
        let mut refused = Vec::new();
        for line in text.lines() {
            match serde_json::from_str(line) {
                Ok(Word::Refused(what)) => refused.push(what),
                Ok(Word::Failed(why)) => return Self::Failed(why),
                Err(_) => refused.push(format!("it said {line:?}")),
            }
        }
        let seen = kernel::spawn_blocking(move || prepared.seen(pid, refused)).await;
        Self::Running(seen.ok().map(Arc::new))
    }
}
