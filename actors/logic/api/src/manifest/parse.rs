//! From bytes to pods, with the path of whatever does not fit.
//!
//! YAML is read as JSON values first, as upstream does: a number where a text is expected (`value: 8080` of an
//! environment variable) is refused.

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::Value;

use super::{MAX_MANIFEST_BYTES, ManifestError, UnknownField, UnknownFields, dump};
use crate::decode::strict_decode::decode;
use crate::decode::yaml_numbers;

const EXPECTED_KIND: &str = "a v1 Pod, PodList or List";

/// The pods of a manifest. A bad pod of a list is an error in its place; the others stand.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedManifest {
    /// In the manifest's order; one that cannot be read does not keep the others.
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
pub fn parse(data: &[u8], unknown: UnknownFields) -> Result<ParsedManifest, ManifestError> {
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
    let document = ManifestDocument::read(text, unknown)?;
    let head = decode::<Option<TypeMeta>>(&document.value)
        .map_err(|misfit| malformed(&misfit.path, &misfit.problem))?;
    let pods = match head.value.ok_or(ManifestError::Empty)?.kind()? {
        ManifestKind::Pod => vec![pod(&document.value, "", unknown)],
        ManifestKind::List => list(&document.value, unknown)?,
    };
    let mut warnings = Vec::from_iter(document.duplicate);
    if document.more_documents {
        warnings
            .push("only the first YAML document of the manifest is read; more follow".to_owned());
    }
    Ok(ParsedManifest { pods, warnings })
}

enum ManifestKind {
    Pod,
    List,
}

/// Enough of a manifest to know what to read it as.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    api_version: Option<String>,
    kind: Option<String>,
}

impl TypeMeta {
    fn kind(&self) -> Result<ManifestKind, ManifestError> {
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
            Some("Pod") => Ok(ManifestKind::Pod),
            Some("PodList" | "List") => Ok(ManifestKind::List),
            _ => Err(ManifestError::WrongKind {
                field: "kind",
                found: found(&self.kind),
                expected: EXPECTED_KIND,
            }),
        }
    }
}

/// The first document of a text.
struct ManifestDocument {
    /// Null where there is none.
    value: Value,
    more_documents: bool,
    /// Which key stands twice, if one does: its last value counts.
    duplicate: Option<String>,
}

impl ManifestDocument {
    /// JSON is read as JSON; what is not quite JSON may still be YAML.
    fn read(text: &str, unknown: UnknownFields) -> Result<ManifestDocument, ManifestError> {
        if !text.trim_start().starts_with('{') {
            return ManifestDocument::yaml(text, unknown);
        }
        match serde_json::from_str(text) {
            Ok(value) => Ok(ManifestDocument {
                value,
                more_documents: false,
                duplicate: None,
            }),
            Err(error) => ManifestDocument::yaml(text, unknown).map_err(|_| malformed("", &error)),
        }
    }

    fn yaml(text: &str, unknown: UnknownFields) -> Result<ManifestDocument, ManifestError> {
        use serde_saphyr::DuplicateKeyPolicy::{Error, LastWins};
        let flaw = match (ManifestDocument::yaml_with(text, Error), unknown) {
            (Err(flaw), UnknownFields::Warn) => flaw,
            (read, _) => return read,
        };
        match ManifestDocument::yaml_with(text, LastWins) {
            Ok(document) => Ok(ManifestDocument {
                duplicate: Some(flaw.to_string()),
                ..document
            }),
            Err(_) => Err(flaw),
        }
    }

    fn yaml_with(
        text: &str,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy,
    ) -> Result<ManifestDocument, ManifestError> {
        let options = serde_saphyr::options! {
            duplicate_keys: duplicate_keys,
            legacy_octal_numbers: true,
            with_snippet: false,
        };
        let mut kept = None;
        let outcome =
            serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
                let mut value = Value::deserialize(yaml)?;
                yaml_numbers::normalize(&mut value);
                kept = Some(value);
                Ok(())
            });
        let document = |value, more_documents| ManifestDocument {
            value,
            more_documents,
            duplicate: None,
        };
        match (outcome, kept) {
            (Ok(()), value) => Ok(document(value.unwrap_or_default(), false)),
            // As upstream: the first document counts, whatever follows.
            (Err(serde_saphyr::Error::MultipleDocuments { .. }), Some(value)) => {
                Ok(document(value, true))
            }
            (Err(error), _) => Err(malformed("", &error)),
        }
    }
}

/// One bad item does not hide the others.
fn list(
    list: &Value,
    unknown: UnknownFields,
) -> Result<Vec<Result<ParsedPod, ManifestError>>, ManifestError> {
    let items = match list.get("items") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().enumerate(),
        Some(_) => return Err(malformed("items", &"expected a list of v1 Pods")),
    };
    Ok(items
        .map(|(index, value)| pod(value, &format!("items[{index}]"), unknown))
        .collect())
}

/// Reads one pod; `place` is the path that leads to it.
fn pod(value: &Value, place: &str, unknown: UnknownFields) -> Result<ParsedPod, ManifestError> {
    let read = decode::<Pod>(value)
        .map_err(|misfit| malformed(&within(place, &misfit.path), &misfit.problem))?;
    let name = |path: String| UnknownField {
        owner: dump::owner(&path),
        path: within(place, &path),
    };
    let fields: Vec<UnknownField> = read.unknown.into_iter().map(name).collect();
    match unknown {
        UnknownFields::Refuse if !fields.is_empty() => Err(ManifestError::UnknownFields { fields }),
        UnknownFields::Refuse | UnknownFields::Warn => Ok(ParsedPod {
            pod: read.value,
            warnings: fields.iter().map(ToString::to_string).collect(),
        }),
    }
}

fn within(place: &str, path: &str) -> String {
    let dot = if place.is_empty() || path.is_empty() {
        ""
    } else {
        "."
    };
    format!("{place}{dot}{path}")
}

fn malformed(field: &str, error: &dyn std::fmt::Display) -> ManifestError {
    /// The YAML reader's advice to programmers.
    const ADVICE: &str = ", set DuplicateKeyPolicy in Options if acceptable";
    let field = if field.is_empty() { "manifest" } else { field };
    let problem = error.to_string().replace(ADVICE, "");
    let problem = problem.split_whitespace().collect::<Vec<_>>().join(" ");
    ManifestError::Malformed {
        field: field.to_owned(),
        problem,
    }
}
