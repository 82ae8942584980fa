//! The file's JSON and its checksum.
//!
//! The checksum is Go's FNV-1a in 32 bits of a debug dump that names every type: upstream's checkpointmanager/checksum
//! and k8s.io/utils/dump. Three versions of the file differ by their entries, which none names.

use std::collections::BTreeMap;

use logic_api::pod::hash::{fnv32a, go_json_string};
use serde_json::{Map, Value};

use super::CpuStateFileError;
use crate::cpus::cpu_set::CpuSet;

/// The name under which each version hashes itself.
const NAME: &str = "CPUManagerCheckpoint";
/// The same of version 2 in a kubelet that knows version 3 and does not write it.
const NAME_OF_V2: &str = "CPUManagerCheckpointV2";

/// CPU lists by container id.
pub(super) type ById = BTreeMap<String, String>;
/// CPU lists by pod and container name.
pub(super) type ByPod = BTreeMap<String, BTreeMap<String, String>>;

/// What a file holds, its lists of CPUs as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) policy: String,
    pub(super) default: String,
    pub(super) entries: Entries,
}

/// The entries of each version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entries {
    V1(ById),
    V2(ByPod),
    /// With the CPUs of whole pods (feature gate `PodLevelResourceManagers`).
    V3(ByPod, BTreeMap<String, CpuSet>),
}

impl Default for Entries {
    fn default() -> Self {
        Self::V2(ByPod::new())
    }
}

/// Which versions are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newest {
    V2,
    V3,
}

impl Checkpoint {
    /// Reads a file of the newest version or an older one: the first one that it could be and whose checksum is right.
    pub(super) fn read(bytes: &[u8], newest: Newest) -> Result<Self, CpuStateFileError> {
        let file = File::read(bytes)?;
        let of = |entries| Self {
            policy: file.policy.clone(),
            default: file.default.clone(),
            entries,
        };
        let nested = file.nested().map(|nested| (nested, file.pods()));
        let mut versions = Vec::new();
        if let Some((nested, pods)) = nested {
            let third = pods.filter(|_| newest == Newest::V3);
            versions.extend(third.map(|pods| of(Entries::V3(nested.clone(), pods))));
            versions.push(of(Entries::V2(nested)));
        }
        versions.extend(file.flat().map(|flat| of(Entries::V1(flat))));
        if versions.is_empty() {
            return Err(CpuStateFileError::Field("entries"));
        }
        let mut versions = versions.into_iter();
        let whole = versions.find(|version| version.has_checksum(file.checksum, newest));
        whole.ok_or(CpuStateFileError::Checksum)
    }

    /// Old kubelets wrote files of versions 1 and 2 without a checksum: zero is right.
    fn has_checksum(&self, found: u64, newest: Newest) -> bool {
        let matches = |name| found == u64::from(self.checksum(name));
        match self.entries {
            Entries::V1(_) => found == 0 || matches(NAME),
            Entries::V2(_) => {
                found == 0 || matches(NAME) || (newest == Newest::V2 && matches(NAME_OF_V2))
            }
            Entries::V3(..) => matches(NAME),
        }
    }

    /// The file as the kubelet writes it.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut json = String::from("{\"policyName\":");
        go_json_string(&self.policy, &mut json);
        json.push_str(",\"defaultCpuSet\":");
        go_json_string(&self.default, &mut json);
        let text = |text: &String, json: &mut String| go_json_string(text, json);
        match &self.entries {
            Entries::V1(containers) => object(",\"entries\":", containers, &mut json, text),
            Entries::V2(pods) | Entries::V3(pods, _) => {
                object(",\"entries\":", pods, &mut json, |own, json| {
                    object("", own, json, text);
                });
            }
        }
        if let Entries::V3(_, pods) = &self.entries {
            object(",\"podEntries\":", pods, &mut json, |cpus, json| {
                json.push_str("{\"cpuSet\":");
                go_json_string(&cpus.to_string(), json);
                json.push('}');
            });
        }
        json.push_str(&format!(",\"checksum\":{}}}", self.checksum(NAME)));
        json.into_bytes()
    }

    fn checksum(&self, name: &str) -> u32 {
        fnv32a(self.dump(name).as_bytes())
    }

    /// Go's dump: the types of a struct's fields are named, those of a map's keys and values are not.
    fn dump(&self, name: &str) -> String {
        let Self {
            policy, default, ..
        } = self;
        let entries = match &self.entries {
            Entries::V1(containers) => format!("(map[string]string){}", texts(containers)),
            Entries::V2(pods) | Entries::V3(pods, _) => {
                format!("(map[string]map[string]string){}", dump_of(pods, texts))
            }
        };
        let pods = match &self.entries {
            Entries::V1(_) | Entries::V2(_) => String::new(),
            Entries::V3(_, pods) => {
                let pods = dump_of(pods, whole);
                format!(" PodEntries:(state.PodCPUAssignments){pods}")
            }
        };
        format!(
            "(*state.{name}){{PolicyName:(string){policy} DefaultCPUSet:(string){default} \
             Entries:{entries}{pods} Checksum:(checksum.Checksum)0}}"
        )
    }
}

fn dump_of<V>(map: &BTreeMap<String, V>, value: impl Fn(&V) -> String) -> String {
    let entries = map.iter();
    let entries: Vec<_> = entries
        .map(|(name, own)| format!("{name}:{}", value(own)))
        .collect();
    format!("map[{}]", entries.join(" "))
}

fn texts(map: &BTreeMap<String, String>) -> String {
    dump_of(map, String::clone)
}

/// A set of CPUs: a map without values.
fn whole(cpus: &CpuSet) -> String {
    let elements: Vec<_> = cpus.iter().map(|cpu| format!("{cpu}:{{}}")).collect();
    let elements = elements.join(" ");
    format!("{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{elements}]}}}}")
}

/// A field that is an object; absent where it is empty, as Go's `omitempty`.
fn object<V>(
    field: &str,
    map: &BTreeMap<String, V>,
    json: &mut String,
    value: impl Fn(&V, &mut String),
) {
    if map.is_empty() && !field.is_empty() {
        return;
    }
    json.push_str(field);
    json.push('{');
    for (index, (name, own)) in map.iter().enumerate() {
        json.push_str(if index == 0 { "" } else { "," });
        go_json_string(name, json);
        json.push(':');
        value(own, json);
    }
    json.push('}');
}

/// The fields of a file. Go finds them whatever their case.
#[derive(Debug, Default)]
struct File {
    policy: String,
    default: String,
    entries: Map<String, Value>,
    pod_entries: Map<String, Value>,
    checksum: u64,
}

impl File {
    fn read(bytes: &[u8]) -> Result<Self, CpuStateFileError> {
        let malformed = |error: serde_json::Error| match error.is_eof() {
            true => CpuStateFileError::Truncated,
            false => CpuStateFileError::Malformed(error),
        };
        let fields: Map<String, Value> = serde_json::from_slice(bytes).map_err(malformed)?;
        let mut file = Self::default();
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
            match name.to_ascii_lowercase().as_str() {
                "policyname" => file.policy = text(value, "policyName")?,
                "defaultcpuset" => file.default = text(value, "defaultCpuSet")?,
                "entries" => file.entries = fields_of(value, "entries")?,
                "podentries" => file.pod_entries = fields_of(value, "podEntries")?,
                "checksum" => {
                    let number = value.as_u64();
                    file.checksum = number.ok_or(CpuStateFileError::Field("checksum"))?;
                }
                _ => {}
            }
        }
        Ok(file)
    }

    fn flat(&self) -> Option<ById> {
        texts_of(&self.entries)
    }

    fn nested(&self) -> Option<ByPod> {
        let pods = self.entries.iter();
        pods.map(|(uid, own)| Some((uid.clone(), texts_of(own.as_object()?)?)))
            .collect()
    }

    fn pods(&self) -> Option<BTreeMap<String, CpuSet>> {
        let pods = self.pod_entries.iter();
        let cpus = |entry: &Value| {
            let mut fields = entry.as_object()?.iter();
            let field = fields.find(|(name, _)| name.eq_ignore_ascii_case("cpuSet"));
            field.map_or(Some(CpuSet::default()), |(_, list)| {
                list.as_str()?.parse().ok()
            })
        };
        pods.map(|(uid, entry)| Some((uid.clone(), cpus(entry)?)))
            .collect()
    }
}

fn texts_of(map: &Map<String, Value>) -> Option<BTreeMap<String, String>> {
    let entries = map.iter();
    entries
        .map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())))
        .collect()
}

fn text(value: Value, field: &'static str) -> Result<String, CpuStateFileError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(CpuStateFileError::Field(field))
        }
    }
}

fn fields_of(value: Value, field: &'static str) -> Result<Map<String, Value>, CpuStateFileError> {
    match value {
        Value::Object(fields) => Ok(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::String(_) => {
            Err(CpuStateFileError::Field(field))
        }
    }
}
