//! A target in a process of its own, and whoever watches it from outside.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, setrlimit};
use tempfile::TempDir;

use super::mutate::{Random, input};
use super::{Run, Target};

/// One input may take so long, on a busy machine too.
const SLOW: Duration = Duration::from_secs(5);
/// How much longer than its time a target may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a target may have of address space: a few kilobytes of input have no use for more.
const MEMORY: u64 = 4 << 30;
/// How a process ends in which something was found.
pub const FOUND: u8 = 3;
/// Different mistakes after which a run ends.
const ENOUGH: usize = 10;

/// How a target's run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it printed last: the number of inputs and their rate.
    pub said: String,
    /// Files with inputs that something was wrong with, and a sentence each.
    pub found: Vec<(PathBuf, String)>,
}

impl Target {
    /// Runs the target here; returns the sentence to print, and what was found.
    pub fn run(&self, run: &Run) -> Result<Outcome> {
        setrlimit(Resource::RLIMIT_AS, MEMORY, MEMORY).context("cannot limit memory")?;
        fs::create_dir_all(&run.folder)?;
        let folder = scratch()?;
        let corpus = self.corpus(folder.path())?;
        let panics = Panics::listen();
        let current = File::create(self.current(&run.folder))?;
        let mut random = Random::new(run.seed);
        let (began, mut inputs) = (kernel::now(), 0_u32);
        let mut mistakes: BTreeMap<String, PathBuf> = BTreeMap::new();
        while kernel::now() - began < run.lasting && mistakes.len() < ENOUGH {
            let input = input(&mut random, &corpus);
            // What kills the process is found there.
            current.set_len(input.len() as u64)?;
            current.write_all_at(&input, 0)?;
            let before = kernel::now();
            let survived =
                panic::catch_unwind(AssertUnwindSafe(|| self.read(folder.path(), &input)));
            let took = kernel::now() - before;
            inputs += 1;
            let mistake = match survived {
                Err(_) => panics.last(),
                Ok(()) if took > SLOW => format!("it takes {took:?}"),
                Ok(()) => continue,
            };
            if !mistakes.contains_key(&mistake) {
                let kept = self.keep(&run.folder, &input, mistakes.len())?;
                mistakes.insert(mistake, kept);
            }
        }
        let rate = f64::from(inputs) / (kernel::now() - began).as_secs_f64();
        Ok(Outcome {
            said: format!(
                "{}: {inputs} inputs, {rate:.0} a second, seed {}",
                self.name, run.seed
            ),
            found: mistakes
                .into_iter()
                .map(|(why, path)| (path, why))
                .collect(),
        })
    }

    fn current(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.current", self.name))
    }

    fn keep(&self, folder: &Path, input: &[u8], nth: usize) -> Result<PathBuf> {
        let path = folder.join(format!("{}-{}-{nth}", self.name, std::process::id()));
        fs::write(&path, input)?;
        Ok(path)
    }
}

/// Runs `command`, which runs the target, and finds out what only a stranger can: a death, or a hang.
pub async fn watch(
    target: &Target,
    run: &Run,
    mut command: tokio::process::Command,
) -> Result<Outcome> {
    let child = command
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start")?;
    let ended = tokio::time::timeout(run.lasting + PATIENCE, child.wait_with_output()).await;
    let why = match ended {
        Ok(output) => {
            let output = output?;
            let found = match output.status.code() {
                Some(0) => Vec::new(),
                Some(code) if code == i32::from(FOUND) => {
                    vec![(run.folder.clone(), "see above".to_owned())]
                }
                Some(_) => bail!("target {} cannot run: see above", target.name),
                None => return died(target, run, &format!("the process died: {}", output.status)),
            };
            drop(fs::remove_file(target.current(&run.folder)));
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            return Ok(Outcome { said, found });
        }
        Err(_) => "it hangs",
    };
    died(target, run, why)
}

/// Keeps the input that the process was reading.
fn died(target: &Target, run: &Run, why: &str) -> Result<Outcome> {
    let kept = run.folder.join(format!("{}-died", target.name));
    fs::rename(target.current(&run.folder), &kept)?;
    Ok(Outcome {
        said: target.name.to_owned(),
        found: vec![(kept, why.to_owned())],
    })
}

/// A folder in memory where there is one: a disk would be most of what is measured.
fn scratch() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    tempfile::tempdir_in(&folder).with_context(|| format!("no folder in {}", folder.display()))
}

/// Where and why it panicked last, instead of a page on standard error each time.
struct Panics(Arc<Mutex<String>>);

impl Panics {
    fn listen() -> Self {
        let last = Arc::new(Mutex::new(String::new()));
        let told = last.clone();
        panic::set_hook(Box::new(move |info| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
        }));
        Self(last)
    }

    /// Numbers differ from input to input; the place does not.
    fn last(&self) -> String {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place: String = text.lines().next().unwrap_or_default().to_owned();
        drop(writeln!(std::io::stderr(), "{text}"));
        place
    }
}
