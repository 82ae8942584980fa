//! The campaign: seeds in batches, each on three runtimes at once, and what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use nix::mount::{MsFlags, mount};
use rig::containerd::Containerd;
use tempfile::TempDir;

use crate::case::Case;
use crate::explained::{self, Explanation};
use crate::generate;
use crate::image;
use crate::lane::Lane;
use crate::native::{HANDLERS, Native, unmount_below};
use crate::observed::Observation;
use crate::requests::PROFILES;

/// Images are imported so many at a time.
const BATCH: u64 = 20;
/// Cases that run at once: each has three pods.
const ABREAST: usize = 2;

/// Seeds whose whole report is printed: the kinds of differences are printed of all.
const MAX_REPORTS: usize = 20;

/// A path on which the native runtime and containerd differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The native runtime's handler.
    pub handler: String,
    /// Container and fact, such as `exec.status.Uid`.
    pub path: String,
    /// None where the probe saw nothing of it.
    pub native: Option<String>,
    /// What the measure has: containerd, or runc as the native runtime's handler.
    pub expected: Option<String>,
}

/// The outcome of all seeds.
#[derive(Debug, Default)]
pub struct Outcome {
    pub seeds: u64,
    /// How many of them ran on the measure: the others it refuses, as the native runtime should.
    pub ran: u64,
    /// By seed: what no entry of `explained.json` is about, and the report of it.
    pub unexplained: BTreeMap<u64, (Vec<Difference>, String)>,
    /// How many differences each entry was needed for, by its place in the file.
    pub explained: BTreeMap<usize, u64>,
}

/// A lane's name and what a case has shown on it.
type Seen = (&'static str, Observation);

/// The runtimes, and the folder of everything that they are given.
struct Rigs {
    // In this order: what is mounted in the folder goes before the folder.
    native: Native,
    containerd: Containerd,
    folder: TempDir,
}

impl Drop for Rigs {
    fn drop(&mut self) {
        self.containerd.end_pods();
        unmount_below(&self.folder.path().join("fixtures"));
    }
}

/// Runs the seeds; `None`, with a sentence, where containerd cannot run (with `CI=true` that panics).
pub async fn run(seeds: Range<u64>) -> Result<Option<Outcome>> {
    let folder = tempfile::Builder::new().prefix("differential-").tempdir()?;
    for name in ["containerd", "native", "fixtures", "logs", "profiles"] {
        fs::create_dir(folder.path().join(name))?;
    }
    let Some(containerd) = Containerd::for_test(&folder.path().join("containerd")).await else {
        return Ok(None);
    };
    for (name, text) in PROFILES {
        fs::write(folder.path().join("profiles").join(name), text)?;
    }
    share(&folder.path().join("fixtures"))?;
    let native = Native::start(&folder.path().join("native")).await?;
    let rigs = Rigs {
        native,
        containerd,
        folder,
    };
    let outcome = rigs.run(seeds).await;
    Ok(Some(outcome.with_context(|| rigs.native.log())?))
}

/// Makes a folder a shared mount, from which mounts spread.
fn share(folder: &Path) -> Result<()> {
    let none = None::<&str>;
    let bound = mount(Some(folder), folder, none, MsFlags::MS_BIND, none);
    let shared = bound.and_then(|()| mount(none, folder, none, MsFlags::MS_SHARED, none));
    shared.with_context(|| format!("cannot share {}", folder.display()))
}

impl Rigs {
    async fn run(&self, seeds: Range<u64>) -> Result<Outcome> {
        let explanations = explained::all()?;
        let mut outcome = Outcome::default();
        let mut first = seeds.start;
        while first < seeds.end {
            let end = seeds.end.min(first + BATCH);
            let cases: Vec<Case> = (first..end).map(generate::case).collect();
            self.import(&cases).await?;
            let devices = node_devices()?;
            let observed = self.observe(cases).await?;
            ensure!(
                devices == node_devices()?,
                "the node's devices are not what they were before seeds {first} to {}",
                end - 1
            );
            for (case, observations) in observed {
                outcome.seeds += 1;
                judge(&case, &observations, &explanations, &mut outcome)?;
            }
            let differ = outcome.unexplained.len();
            let (seeds, ran) = (outcome.seeds, outcome.ran);
            eprintln!(
                "{seeds} seeds, {ran} ran on what they are measured by, {differ} differ without an explanation"
            );
            first = end;
        }
        Ok(outcome)
    }

    async fn import(&self, cases: &[Case]) -> Result<()> {
        let archive = image::archive(cases)?;
        self.native.import(&archive).await?;
        let path = self.folder.path().join("images.tar");
        fs::write(&path, &archive)?;
        let output = tokio::process::Command::new("ctr")
            .arg("-a")
            .arg(self.containerd.socket())
            .args(["-n", "k8s.io", "images", "import"])
            .arg(&path)
            .output()
            .await?;
        if !output.status.success() {
            bail!(
                "ctr images import: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    /// The measure first.
    fn every_lane(&self) -> [Lane; 3] {
        let home = self.folder.path();
        let native = |handler| Lane {
            name: handler,
            runtime: self.native.runtime(),
            handler,
            cgroup: self.native.cgroup.clone(),
            home: home.to_owned(),
        };
        let containerd = Lane {
            name: "containerd",
            runtime: self.containerd.runtime(),
            handler: "",
            cgroup: self.containerd.cgroup(),
            home: home.to_owned(),
        };
        [containerd, native(HANDLERS[0]), native(HANDLERS[1])]
    }

    /// What each case has shown, the measure's first.
    async fn observe(&self, cases: Vec<Case>) -> Result<Vec<(Case, Vec<Seen>)>> {
        let [measure, own, runc] = &self.every_lane();
        let runs = cases.into_iter().map(|case| async move {
            let lanes = if case.runs_on_containerd() {
                vec![measure, own, runc]
            } else {
                vec![runc, own]
            };
            let runs = lanes.into_iter().map(async |lane| {
                let observation = lane.run(&case).await?;
                anyhow::Ok((lane.name, observation))
            });
            let observations = try_join_all(runs).await;
            let observations = observations.with_context(|| format!("seed {}", case.seed))?;
            Ok((case, observations))
        });
        stream::iter(runs).buffered(ABREAST).try_collect().await
    }
}

/// What is in the node's `/dev`, with kinds, numbers, modes and owners: no container may change that.
fn node_devices() -> Result<BTreeMap<OsString, [u64; 5]>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/dev")? {
        let entry = entry?;
        let data = entry.metadata()?;
        let facts = [
            data.mode().into(),
            data.rdev(),
            data.uid().into(),
            data.gid().into(),
            data.ino(),
        ];
        found.insert(entry.file_name(), facts);
    }
    Ok(found)
}

fn judge(
    case: &Case,
    seen: &[Seen],
    explanations: &[Explanation],
    outcome: &mut Outcome,
) -> Result<()> {
    let Some(((_, measure), others)) = seen.split_first() else {
        bail!("nothing has run seed {}", case.seed);
    };
    let text = serde_json::to_string_pretty(case)?;
    let expected = measure.normalized();
    if expected.get("main.runs").is_some_and(|runs| runs == "yes") {
        outcome.ran += 1;
    }
    let mut differences: Vec<Difference> = others
        .iter()
        .flat_map(|(handler, found)| compare(handler, &found.normalized(), &expected))
        .collect();
    differences.retain(|difference| {
        let entry = explanations
            .iter()
            .position(|entry| entry.explains(difference, &text));
        if let Some(entry) = entry {
            *outcome.explained.entry(entry).or_default() += 1;
        }
        entry.is_none()
    });
    if differences.is_empty() {
        return Ok(());
    }
    let mut report = format!("seed {}: {text}\n", case.seed);
    for (name, observation) in seen {
        for refusal in &observation.refusals {
            writeln!(report, "  {name} refuses {refusal}")?;
        }
    }
    for difference in &differences {
        writeln!(report, "  {difference}")?;
    }
    outcome.unexplained.insert(case.seed, (differences, report));
    Ok(())
}

/// Compares what two runs saw. Of a container that ran on one of them alone, only that is a difference.
fn compare(
    handler: &str,
    native: &BTreeMap<String, String>,
    expected: &BTreeMap<String, String>,
) -> Vec<Difference> {
    let paths: BTreeSet<&String> = native.keys().chain(expected.keys()).collect();
    let differs = |path: &str| native.get(path) != expected.get(path);
    let ran_on_one = |container: &str| differs(&format!("{container}.runs"));
    let is_consequence = |path: &str| match path.split('.').next().unwrap_or_default() {
        "sandbox" => false,
        _ if differs("sandbox") => true,
        "second" if path.ends_with(".runs") => {
            // One that joins the first container is not begun without that.
            let is_missing = native.get(path).is_none() || expected.get(path).is_none();
            is_missing && ran_on_one("main")
        }
        "main" if path.ends_with(".runs") => false,
        // Its namespaces are named by the main container's.
        "second" if path.starts_with("second.ns.") && ran_on_one("main") => true,
        "second" => ran_on_one("second"),
        // The exec and the stop are the main container's.
        _ => ran_on_one("main"),
    };
    paths
        .into_iter()
        .filter(|path| differs(path) && !is_consequence(path))
        .map(|path| Difference {
            handler: handler.to_owned(),
            path: path.clone(),
            native: native.get(path).cloned(),
            expected: expected.get(path).cloned(),
        })
        .collect()
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = |value: &Option<String>| match value {
            Some(value) => format!("{value:?}"),
            None => "absent".to_owned(),
        };
        write!(
            f,
            "{} [{}]: {}, expected {}",
            self.path,
            self.handler,
            value(&self.native),
            value(&self.expected)
        )
    }
}

impl Outcome {
    /// Returns every seed's report, and the kinds of differences with their seeds, the most frequent ones first.
    pub fn report(&self) -> String {
        let mut kinds: BTreeMap<&Difference, Vec<u64>> = BTreeMap::new();
        for (seed, (differences, _)) in &self.unexplained {
            for difference in differences {
                kinds.entry(difference).or_default().push(*seed);
            }
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, seeds)| std::cmp::Reverse(seeds.len()));
        let reports = self.unexplained.values().take(MAX_REPORTS);
        let reports = reports.map(|(_, report)| report.clone());
        let kinds = kinds.iter().map(|(difference, seeds)| {
            let some: Vec<String> = seeds.iter().take(5).map(u64::to_string).collect();
            format!(
                "{} seeds ({}): {difference}\n",
                seeds.len(),
                some.join(", ")
            )
        });
        reports.chain(kinds).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    fn paths(native: &[(&str, &str)], containerd: &[(&str, &str)]) -> Vec<String> {
        let found = compare("runc", &values(native), &values(containerd));
        found
            .into_iter()
            .map(|difference| difference.path)
            .collect()
    }

    #[test]
    fn a_value_that_one_side_lacks_is_a_difference() {
        assert_eq!(
            paths(&[("a", "1"), ("b", "1")], &[("a", "1"), ("c", "1")]),
            ["b", "c"]
        );
    }

    #[test]
    fn of_a_container_that_ran_on_one_side_only_that_is_told() {
        let native = [
            ("main.runs", "yes"),
            ("main.x", "1"),
            ("exec.x", "1"),
            ("second.x", "1"),
        ];
        assert_eq!(
            paths(&native, &[("main.runs", "refused"), ("second.x", "2")]),
            ["main.runs", "second.x"]
        );
        assert_eq!(
            paths(&[("sandbox", "yes"), ("x", "1")], &[("sandbox", "refused")]),
            ["sandbox"]
        );
    }
}
