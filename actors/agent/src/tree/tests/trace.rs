//! What happened, line by line: when on the simulated clock, where, and what.

use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

/// The lines so far; clones write to the same ones.
#[derive(Clone)]
pub(super) struct Trace {
    began: Instant,
    /// The node's folder, which stands for itself: it is the one thing that no seed decides.
    folder: Arc<str>,
    lines: Arc<Mutex<Vec<String>>>,
    /// Gets each line at once, for a run that does not end well.
    file: Option<Arc<File>>,
}

impl Trace {
    pub(super) fn begin(folder: &str) -> Trace {
        Trace {
            began: Instant::now(),
            folder: folder.into(),
            lines: Arc::default(),
            file: std::env::var_os("OXLET_TRACE").map(|path| Arc::new(File::create(path).unwrap())),
        }
    }

    /// Adds a line about this place.
    pub(super) fn add(&self, place: &str, line: &str) {
        let at = self.passed().as_micros();
        let line = line.replace(&*self.folder, "$NODE");
        let line = format!("{at:>10} {place} {line}");
        if let Some(mut file) = self.file.as_deref() {
            writeln!(file, "{line}").unwrap();
        }
        self.lines.lock().unwrap().push(line);
    }

    /// The simulated time since the beginning.
    pub(super) fn passed(&self) -> Duration {
        self.began.elapsed()
    }

    /// What writes the lines of this place.
    pub(super) fn of(&self, place: &'static str) -> impl FnMut(String) + Send + use<> {
        let trace = self.clone();
        move |line| trace.add(place, &line)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

/// Where two traces part, with the lines before; none if they are the same.
pub(super) fn difference(left: &[String], right: &[String]) -> Option<String> {
    /// Lines of context.
    const BEFORE: usize = 12;
    /// Lines of each after they parted.
    const AFTER: usize = 6;
    let same = left
        .iter()
        .zip(right)
        .take_while(|(left, right)| left == right);
    let at = same.count();
    if at == left.len() && at == right.len() {
        return None;
    }
    let lines = |lines: &[String], from: usize, to: usize| {
        let lines = lines.get(from..to.min(lines.len())).unwrap_or_default();
        lines
            .iter()
            .map(|line| format!("  {line:.600}\n"))
            .collect::<String>()
    };
    Some(format!(
        "after {at} lines of {} and {}:\n{}one:\n{}other:\n{}",
        left.len(),
        right.len(),
        lines(left, at.saturating_sub(BEFORE), at),
        lines(left, at, at + AFTER),
        lines(right, at, at + AFTER),
    ))
}
