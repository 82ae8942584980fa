//! What one run has shown: texts by their paths, without what differs from run to run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;

use tonic::{Response, Status};

/// Namespaces as the probe names them.
const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// What is replaced in all texts.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) fixture: String,
    pub(crate) cgroup: String,
    pub(crate) home: String,
    pub(crate) ids: Vec<(String, &'static str)>,
}

/// The observation of one case on one runtime.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) names: Names,
    pub(crate) values: BTreeMap<String, String>,
    /// The runtime's words about what it refused: reported, not compared.
    pub(crate) refusals: Vec<String>,
}

impl Observation {
    pub(crate) fn new(names: Names) -> Self {
        Self {
            names,
            values: BTreeMap::new(),
            refusals: Vec::new(),
        }
    }

    pub(crate) fn put(&mut self, key: impl Display, value: impl Display) {
        self.values.insert(key.to_string(), value.to_string());
    }

    /// Notes whether the runtime did what it was asked for; returns its answer.
    pub(crate) fn accepted<T>(
        &mut self,
        key: &str,
        answer: Result<Response<T>, Status>,
    ) -> Option<T> {
        match answer {
            Ok(answer) => {
                // What was refused before stays so.
                self.values
                    .entry(key.to_owned())
                    .or_insert_with(|| "yes".to_owned());
                Some(answer.into_inner())
            }
            Err(status) => {
                self.put(key, "refused");
                self.refusals.push(format!("{key}: {}", status.message()));
                None
            }
        }
    }

    /// Takes a line of the probe's.
    pub(crate) fn read(&mut self, prefix: &str, line: &str) {
        match serde_json::from_str::<BTreeMap<String, String>>(line.trim()) {
            Ok(report) => {
                for (key, value) in report {
                    self.put(format!("{prefix}.{key}"), value);
                }
            }
            Err(error) => self.put(format!("{prefix}.report"), format!("{error}: {line}")),
        }
    }

    /// Returns the values without ids, paths and numbers that are this run's alone.
    pub(crate) fn normalized(&self) -> BTreeMap<String, String> {
        let mut values: BTreeMap<String, String> = self
            .values
            .iter()
            .map(|(key, value)| (self.names.replaced(key), self.names.replaced(value)))
            .collect();
        // On the node's own /dev/shm others mount too.
        values.retain(|key, _| !key.contains(".mounts./dev/shm/."));
        for prefix in ["main", "exec", "second"] {
            normalize_report(prefix, &mut values);
        }
        label_namespaces(&mut values);
        values
    }
}

impl Names {
    fn replaced(&self, text: &str) -> String {
        let mut text = text
            .replace(&self.fixture, "<fixture>")
            .replace(&self.cgroup, "<parent>")
            .replace(&self.home, "<home>");
        for (id, name) in &self.ids {
            text = text.replace(id.as_str(), name);
        }
        text
    }
}

fn normalize_report(prefix: &str, values: &mut BTreeMap<String, String>) {
    if let Some(names) = values.get_mut(&format!("{prefix}.keyrings")) {
        // The node's root sees keyrings of other containers too, and a second one of the same name until the kernel's garbage
        // collector has run.
        let own = names.split(' ').filter(|name| name.contains("<id>"));
        *names = own
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
            .join(" ");
    }
    let on_node = |values: &BTreeMap<String, String>, kind: &str| {
        values
            .get(&format!("{prefix}.ns.{kind}"))
            .is_some_and(|inode| is_nodes(kind, inode))
    };
    if on_node(values, "net") {
        values.remove(&format!("{prefix}.net.interfaces"));
    }
    descriptors(prefix, values);
    for (key, value) in values.iter_mut().filter(|(key, _)| key.starts_with(prefix)) {
        if key.ends_with(".root") {
            *value = root(value);
        } else if key.ends_with(".super") {
            *value = super_options(value);
        }
    }
}

/// A pipe is a pipe, whether it has a name or not. Two flags tell of the program that opened a file alone: that it may be
/// large, and, of a terminal, that it was not to be handed on.
fn descriptors(prefix: &str, values: &mut BTreeMap<String, String>) {
    const O_LARGEFILE: u32 = 0o100_000;
    const O_CLOEXEC: u32 = 0o2_000_000;
    let pipes: Vec<String> = values
        .iter()
        .filter(|(key, value)| {
            key.starts_with(&format!("{prefix}.fd.")) && value.starts_with("fifo ")
        })
        .filter_map(|(key, _)| Some(format!("{}.link", key.strip_suffix(".is")?)))
        .collect();
    for key in pipes {
        values.insert(key, "pipe".to_owned());
    }
    for (key, value) in values.iter_mut() {
        if key.starts_with(&format!("{prefix}.fd."))
            && key.ends_with(".flags")
            && let Ok(flags) = u32::from_str_radix(value, 8)
        {
            *value = format!("{:o}", flags & !(O_LARGEFILE | O_CLOEXEC));
        }
    }
}

/// Of what is mounted, the path in a fixture or group; else its last name, which a runtime cannot choose.
fn root(path: &str) -> String {
    for known in ["<fixture>", "<parent>"] {
        if let Some((_, rest)) = path.split_once(known) {
            return format!("{known}{rest}");
        }
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    let is_id = last.len() >= 32 && last.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_made = is_id || (is_number && !last.is_empty());
    if is_made { "<made>" } else { last }.to_owned()
}

/// Options of a file system that the kernel, or the place of a runtime's folders, chooses.
const UNCHOSEN: [&str; 9] = [
    "lowerdir",
    "upperdir",
    "workdir",
    "inode64",
    "index",
    "xino",
    "metacopy",
    "redirect_dir",
    "uuid",
];

fn super_options(options: &str) -> String {
    let kept = options.split(',').filter(|option| {
        let name = option.split(['=', '+']).next().unwrap_or_default();
        !UNCHOSEN.contains(&name)
    });
    kept.collect::<Vec<_>>().join(",")
}

/// Whether the namespace is the one that the campaign itself is in.
fn is_nodes(kind: &str, inode: &str) -> bool {
    fs::read_link(format!("/proc/self/ns/{kind}"))
        .is_ok_and(|own| own.display().to_string() == inode)
}

/// A namespace is the node's, the main container's, or its own.
fn label_namespaces(values: &mut BTreeMap<String, String>) {
    // The kernel gives the number of a namespace that is gone to the next one.
    let main_holds = values.contains_key("main.prints");
    for kind in NAMESPACES {
        let main = values.get(&format!("main.ns.{kind}")).cloned();
        for prefix in ["main", "exec", "second"] {
            let Some(value) = values.get_mut(&format!("{prefix}.ns.{kind}")) else {
                continue;
            };
            let label = if is_nodes(kind, value) {
                "the node's"
            } else if prefix == "second" && !main_holds {
                "not the node's"
            } else if prefix != "main" && main.as_ref() == Some(value) {
                "the main container's"
            } else {
                "its own"
            };
            *value = label.to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Observation {
        Observation::new(Names {
            fixture: "/tmp/x/fixtures/1-a".to_owned(),
            cgroup: "/ox1/seed-1-a".to_owned(),
            home: "/tmp/x".to_owned(),
            ids: vec![("cafe".repeat(16), "<id>")],
        })
    }

    #[test]
    fn ids_paths_and_groups_have_names() {
        let mut observation = sample();
        let id = "cafe".repeat(16);
        observation.put("main.cgroup.memory", format!("/ox1/seed-1-a/{id}"));
        observation.put("main.mounts./a.root", "/tmp/x/fixtures/1-a/folder");
        observation.put(
            "main.mounts./b.root",
            format!("/tmp/x/volumes/{}", "ab12".repeat(16)),
        );
        observation.put(
            "main.keyrings",
            format!("_ses _ses.other _ses.{id} _ses.{id}"),
        );
        observation.put("main.ns.uts", "uts:[1]");
        observation.put("exec.ns.uts", "uts:[1]");
        let own = fs::read_link("/proc/self/ns/pid").expect("the namespace has a link");
        observation.put("main.ns.pid", own.display());
        let found = observation.normalized();
        for (key, value) in [
            ("main.cgroup.memory", "<parent>/<id>"),
            ("main.mounts./a.root", "<fixture>/folder"),
            ("main.mounts./b.root", "<made>"),
            ("main.keyrings", "_ses.<id>"),
            ("main.ns.uts", "its own"),
            ("exec.ns.uts", "the main container's"),
            ("main.ns.pid", "the node's"),
        ] {
            assert_eq!(found.get(key).map(String::as_str), Some(value), "{key}");
        }
    }

    #[test]
    fn a_refusal_stays_whatever_is_accepted_after_it() {
        let mut observation = sample();
        assert!(
            observation
                .accepted::<()>("removal", Err(Status::internal("words")))
                .is_none()
        );
        observation.accepted("removal", Ok(Response::new(())));
        assert_eq!(observation.values["removal"], "refused");
        assert_eq!(observation.refusals, ["removal: words"]);
    }
}
