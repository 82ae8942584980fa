//! The kernel's messages about memory that ran out, read for who was killed and where.
//!
//! Mirrors cAdvisor's oomparser and go-kmsg-parser (vendored by 1.36), with the same patterns, matched by hand.

#[cfg(test)]
mod tests;

use serde::Serialize;

/// The kernel's record of one message: `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmsgRecord {
    /// Counts up from the boot.
    pub sequence: u64,
    pub message: String,
}

impl KmsgRecord {
    /// Reads one record; none of what is not in its form.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, message) = text.split_once(';')?;
        let mut fields = head.split(',');
        let priority = fields.next()?;
        let (sequence, timestamp) = (fields.next()?, fields.next()?);
        priority.parse::<u64>().ok()?;
        timestamp.parse::<u64>().ok()?;
        Some(KmsgRecord {
            sequence: sequence.parse().ok()?,
            // Further lines are the device's properties.
            message: message.lines().next().unwrap_or_default().to_owned(),
        })
    }

    /// Whether the message may be one of those about memory that ran out: the kernel writes many others.
    pub fn is_about_memory(text: &str) -> bool {
        [STARTED, KILLED_IN_GROUP, KILLED_IN_TASK, KILLED]
            .iter()
            .any(|mark| text.contains(mark))
    }
}

const STARTED: &str = "invoked oom-killer:";
const KILLED_IN_GROUP: &str = "oom-kill:constraint=";
const KILLED_IN_TASK: &str = "Task in ";
const KILLED: &str = "Killed process ";
/// The group of all processes: what ran out was the machine's memory.
const ROOT: &str = "/";

/// A process that the kernel has killed to free memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OomInstance {
    /// 0 where the kernel does not tell.
    pub pid: i64,
    /// Empty where the kernel does not tell.
    pub process: String,
    /// The group of the process.
    pub container: String,
    /// The group whose memory ran out; `/` for the machine.
    pub victim: String,
    /// `CONSTRAINT_MEMCG` and others; empty before Linux 5.0, and where the machine's memory ran out.
    pub constraint: String,
}

impl OomInstance {
    fn begun() -> Self {
        OomInstance {
            pid: 0,
            process: String::new(),
            container: ROOT.to_owned(),
            victim: ROOT.to_owned(),
            constraint: String::new(),
        }
    }

    /// Whether the machine's memory ran out, rather than that of a group.
    pub fn is_of_system(&self) -> bool {
        self.victim == ROOT
    }

    /// The message of the event, in upstream's words.
    pub fn message(&self) -> String {
        let mut message = "System OOM encountered".to_owned();
        if !self.process.is_empty() && self.pid != 0 {
            message += &format!(", victim process: {}, pid: {}", self.process, self.pid);
        }
        message
    }
}

/// Follows the kernel's messages: each kill is told by several.
#[derive(Debug, Default)]
pub struct OomParser {
    current: Option<OomInstance>,
}

impl OomParser {
    /// Takes in the next message; returns the kill that it completes.
    pub fn take(&mut self, message: &str) -> Option<OomInstance> {
        if message.contains(STARTED) {
            self.current = Some(OomInstance::begun());
            return None;
        }
        let current = self.current.as_mut()?;
        let is_complete = take_group(current, message) || take_process(current, message);
        match is_complete {
            true => self.current.take(),
            false => None,
        }
    }
}

/// Reads the message of Linux 5.0 and later, which has everything; of the older one, the groups alone.
fn take_group(instance: &mut OomInstance, message: &str) -> bool {
    if let Some((constraint, fields)) = group_fields(message) {
        let [oom_group, task_group, process, pid] = fields;
        instance.container = task_group.to_owned();
        instance.victim = oom_group.to_owned();
        instance.constraint = constraint.to_owned();
        let Ok(pid) = pid.parse() else { return false };
        instance.pid = pid;
        instance.process = process.to_owned();
        return true;
    }
    let groups = message.find(KILLED_IN_TASK).and_then(|at| {
        let told = &message[at + KILLED_IN_TASK.len()..];
        told.rsplit_once(" killed as a result of limit of ")
    });
    if let Some((container, victim)) = groups {
        instance.container = absolute(container);
        instance.victim = absolute(victim);
    }
    false
}

/// The constraint, and the group that ran out, the process's group, its name and its id. Names may hold commas and whatever
/// else, so the fields are found from the end.
fn group_fields(message: &str) -> Option<(&str, [&str; 4])> {
    let at = message.find(KILLED_IN_GROUP)?;
    let told = &message[at + KILLED_IN_GROUP.len()..];
    let (told, _uid) = told.rsplit_once(",uid=")?;
    let (told, pid) = told.rsplit_once(",pid=")?;
    let (told, process) = told.rsplit_once(",task=")?;
    let (told, task_group) = told.rsplit_once(",task_memcg=")?;
    let (told, oom_group) = told.rsplit_once(",oom_memcg=")?;
    let (told, _mems) = told.rsplit_once(",mems_allowed=")?;
    let (told, _cpuset) = told.rsplit_once(",cpuset=")?;
    let (constraint, _nodes) = told.rsplit_once(",nodemask=")?;
    Some((constraint, [oom_group, task_group, process, pid]))
}

/// Reads `Killed process 7 (name)`.
fn take_process(instance: &mut OomInstance, message: &str) -> bool {
    let Some((pid, process)) = killed(message) else {
        return false;
    };
    instance.pid = pid;
    instance.process = process.to_owned();
    true
}

fn killed(message: &str) -> Option<(i64, &str)> {
    let at = message.find(KILLED)?;
    let (pid, named) = message[at + KILLED.len()..].split_once(" (")?;
    let is_number = pid.bytes().all(|digit| digit.is_ascii_digit());
    let (process, _) = named.rsplit_once(')')?;
    let pid = pid.parse().ok().filter(|_| is_number)?;
    (!process.is_empty()).then_some((pid, process))
}

/// As Go's `path.Join("/", path)`.
fn absolute(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
