//! From bytes to pods, with the path of whatever does not fit.
//!
//! YAML goes straight into the Kubernetes types, never through an untyped value: only the target's type says whether
//! `yes`, `0644` or `1e3` is a text. Upstream types scalars before it knows the target, so it refuses some manifests
//! that are accepted here (`value: 8080` of an environment variable), never the other way round.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::{MAX_MANIFEST_BYTES, ManifestError, UnknownField, UnknownFields, dump};

/// A list is read again without each bad item that it holds: beyond this it is refused as one.
const MAX_READ_AGAIN_BYTES: usize = 64 << 20;
const EXPECTED_KIND: &str = "a v1 Pod, PodList or List";

/// What a manifest holds. A bad pod of a list is an error in its place; the others stand.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub pods: Vec<Result<ParsedPod, ManifestError>>,
    /// Sentences about the manifest as a whole.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ParsedPod {
    pub pod: Pod,
    /// Sentences about this pod, each naming a field.
    pub warnings: Vec<String>,
}

/// Reads a manifest; see [`UnknownFields`] for what `unknown` decides.
pub fn parse(data: &[u8], unknown: UnknownFields) -> Result<Parsed, ManifestError> {
    if data.len() > MAX_MANIFEST_BYTES {
        return Err(ManifestError::TooLong {
            found: data.len(),
            limit: MAX_MANIFEST_BYTES,
        });
    }
    let text = std::str::from_utf8(data).map_err(|error| ManifestError::NotText {
        offset: error.valid_up_to(),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document = Document::new(text);
    let read = document.read(HeadTarget)?;
    let head = read.value.ok_or(ManifestError::Empty)?;
    let pods = match head.kind()? {
        Kind::Pod => vec![document.pod(unknown)],
        Kind::List => document.list(unknown)?,
    };
    let mut warnings = Vec::new();
    if read.more_documents {
        warnings
            .push("only the first YAML document of the manifest is read; more follow".to_owned());
    }
    Ok(Parsed { pods, warnings })
}

enum Kind {
    Pod,
    List,
}

/// Enough of a manifest to know what to read it as.
#[derive(Default)]
struct Head {
    api_version: Option<String>,
    kind: Option<String>,
}

impl Head {
    fn kind(&self) -> Result<Kind, ManifestError> {
        let found = |text: &Option<String>| {
            text.as_ref()
                .map_or("is missing".to_owned(), |text| format!("found {text:?}"))
        };
        if self.api_version.as_deref() != Some("v1") {
            let found = found(&self.api_version);
            return Err(ManifestError::WrongKind {
                field: "apiVersion",
                found,
                expected: "v1",
            });
        }
        match self.kind.as_deref() {
            Some("Pod") => Ok(Kind::Pod),
            Some("PodList" | "List") => Ok(Kind::List),
            _ => Err(ManifestError::WrongKind {
                field: "kind",
                found: found(&self.kind),
                expected: EXPECTED_KIND,
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Head {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeadVisitor;
        impl<'de> Visitor<'de> for HeadVisitor {
            type Value = Head;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(EXPECTED_KIND)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Head, A::Error> {
                let mut head = Head::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "apiVersion" => head.api_version = map.next_value()?,
                        "kind" => head.kind = map.next_value()?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(head)
            }
        }
        deserializer.deserialize_map(HeadVisitor)
    }
}

/// What to read a document as.
trait Target: Copy {
    type Value;

    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error>;
}

#[derive(Clone, Copy)]
struct HeadTarget;

impl Target for HeadTarget {
    type Value = Option<Head>;

    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Head>, D::Error> {
        Option::deserialize(deserializer)
    }
}

#[derive(Clone, Copy)]
struct PodTarget;

impl Target for PodTarget {
    type Value = Pod;

    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Pod, D::Error> {
        Pod::deserialize(deserializer)
    }
}

/// The pods of a list with their places, without those that are known to be bad.
#[derive(Clone, Copy)]
struct Items<'a> {
    bad: &'a BTreeMap<usize, ManifestError>,
}

impl Target for Items<'_> {
    type Value = Vec<(usize, Pod)>;

    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = Vec<(usize, Pod)>;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a list of v1 Pods")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pods = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "items" {
                pods = map.next_value_seed(Sequence(self))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(pods)
    }
}

struct Sequence<'a>(Items<'a>);

impl<'de> DeserializeSeed<'de> for Sequence<'_> {
    type Value = Vec<(usize, Pod)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Sequence<'_> {
    type Value = Vec<(usize, Pod)>;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a list of v1 Pods")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut pods = Vec::new();
        for index in 0.. {
            let more = if self.0.bad.contains_key(&index) {
                items.next_element::<IgnoredAny>()?.map(drop)
            } else {
                items.next_element()?.map(|pod| pods.push((index, pod)))
            };
            if more.is_none() {
                break;
            }
        }
        Ok(pods)
    }
}

/// What was read of the first document, and what it held that nobody asked for.
struct Read<T> {
    value: T,
    ignored: Vec<String>,
    more_documents: bool,
}

#[derive(Clone, Copy)]
struct Document<'a> {
    text: &'a str,
    json: bool,
}

impl<'a> Document<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            json: text.trim_start().starts_with('{'),
        }
    }

    fn pod(self, unknown: UnknownFields) -> Result<ParsedPod, ManifestError> {
        let read = self.read(PodTarget)?;
        judge(read.value, read.ignored, "", unknown)
    }

    /// Each bad item costs one more reading of the whole.
    fn list(
        self,
        unknown: UnknownFields,
    ) -> Result<Vec<Result<ParsedPod, ManifestError>>, ManifestError> {
        let mut bad = BTreeMap::new();
        let read = loop {
            let error = match self.read(Items { bad: &bad }) {
                Ok(read) => break read,
                Err(error) => error,
            };
            let again = (bad.len() + 1).saturating_mul(self.text.len()) <= MAX_READ_AGAIN_BYTES;
            match item_of(&error) {
                Some(index) if again && !bad.contains_key(&index) => drop(bad.insert(index, error)),
                _ => return Err(error),
            }
        };
        let mut pods: BTreeMap<usize, Result<ParsedPod, ManifestError>> = bad
            .into_iter()
            .map(|(index, error)| (index, Err(error)))
            .collect();
        for (index, pod) in read.value {
            let ignored = of_item(&read.ignored, index);
            pods.insert(index, judge(pod, ignored, &item(index), unknown));
        }
        Ok(pods.into_values().collect())
    }

    /// JSON is read as JSON, so that its texts stay texts; what is not quite JSON may still be YAML.
    fn read<T: Target>(self, target: T) -> Result<Read<T::Value>, ManifestError> {
        if !self.json {
            return self.read_yaml(target);
        }
        match self.read_json(target) {
            Ok(read) => Ok(read),
            Err(Refusal {
                error,
                maybe_yaml: true,
            }) => self.read_yaml(target).map_err(|_| error),
            Err(Refusal {
                error,
                maybe_yaml: false,
            }) => Err(error),
        }
    }

    fn read_json<T: Target>(self, target: T) -> Result<Read<T::Value>, Refusal> {
        let mut json = serde_json::Deserializer::from_str(self.text);
        let mut notes = Notes::default();
        let read = notes
            .take(target, &mut json)
            .and_then(|value| json.end().map(|()| value));
        read.map(|value| Read {
            value,
            ignored: notes.ignored,
            more_documents: false,
        })
        .map_err(|error| Refusal {
            maybe_yaml: error.is_syntax(),
            error: malformed(&notes.path, &error),
        })
    }

    fn read_yaml<T: Target>(self, target: T) -> Result<Read<T::Value>, ManifestError> {
        let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
        let mut notes = Notes::default();
        let mut kept = None;
        let outcome =
            serde_saphyr::with_deserializer_from_str_with_options(self.text, options, |yaml| {
                kept = Some(notes.take(target, yaml)?);
                Ok(())
            });
        match (outcome, kept) {
            (Ok(()), Some(value)) => Ok(Read {
                value,
                ignored: notes.ignored,
                more_documents: false,
            }),
            // As upstream: the first document counts, whatever follows.
            (Err(serde_saphyr::Error::MultipleDocuments { .. }), Some(value)) => Ok(Read {
                value,
                ignored: notes.ignored,
                more_documents: true,
            }),
            (Err(error), _) => Err(malformed(&notes.path, &error)),
            (Ok(()), None) => Err(ManifestError::Empty),
        }
    }
}

struct Refusal {
    error: ManifestError,
    maybe_yaml: bool,
}

/// Where reading stopped and what it passed over.
#[derive(Default)]
struct Notes {
    ignored: Vec<String>,
    path: String,
}

impl Notes {
    fn take<'de, T: Target, D: Deserializer<'de>>(
        &mut self,
        target: T,
        from: D,
    ) -> Result<T::Value, D::Error> {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(from, &mut track);
        let mut note = |path: serde_ignored::Path<'_>| self.ignored.push(path_text(&path));
        let read = target.read(serde_ignored::Deserializer::new(tracked, &mut note));
        if read.is_err() {
            self.path = track.path().to_string();
        }
        read
    }
}

fn malformed(path: &str, error: &dyn std::fmt::Display) -> ManifestError {
    /// The YAML reader's advice to programmers.
    const ADVICE: &str = ", set DuplicateKeyPolicy in Options if acceptable";
    let known = path.trim_end_matches('?').trim_end_matches('.');
    let field = if known.is_empty() { "manifest" } else { known };
    let problem = error.to_string().replace(ADVICE, "");
    let problem = problem.split_whitespace().collect::<Vec<_>>().join(" ");
    ManifestError::Malformed {
        field: field.to_owned(),
        problem,
    }
}

fn path_text(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", path_text(parent)),
        Path::Map { parent, key } => match path_text(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => path_text(parent),
    }
}

fn item(index: usize) -> String {
    format!("items[{index}]")
}

/// The item of a list that an error is about.
fn item_of(error: &ManifestError) -> Option<usize> {
    let ManifestError::Malformed { field, .. } = error else {
        return None;
    };
    let (index, _) = field.strip_prefix("items[")?.split_once(']')?;
    index.parse().ok()
}

fn of_item(ignored: &[String], index: usize) -> Vec<String> {
    let prefix = format!("{}.", item(index));
    ignored
        .iter()
        .filter_map(|path| path.strip_prefix(&prefix))
        .map(str::to_owned)
        .collect()
}

fn judge(
    pod: Pod,
    ignored: Vec<String>,
    prefix: &str,
    unknown: UnknownFields,
) -> Result<ParsedPod, ManifestError> {
    let name = |path: String| {
        let owner = dump::owner(&path);
        let path = if prefix.is_empty() {
            path
        } else {
            format!("{prefix}.{path}")
        };
        UnknownField { path, owner }
    };
    let fields: Vec<UnknownField> = ignored.into_iter().map(name).collect();
    match unknown {
        UnknownFields::Refuse if !fields.is_empty() => Err(ManifestError::UnknownFields { fields }),
        UnknownFields::Refuse | UnknownFields::Warn => Ok(ParsedPod {
            pod,
            warnings: fields.iter().map(ToString::to_string).collect(),
        }),
    }
}
