//! The layers of a configuration, merged as the kubelet merges them: flags over drop-ins over the file
//! over defaults.

use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use crate::alone::Choices;
use crate::defaults;
use crate::document::source;
use crate::document::{self, DocumentError, ParsedDocument};
use crate::error::ConfigError;
use crate::feature_gates::FeatureGates;
use crate::flags::{KubeletFlags, LowArgs};
use crate::kubelet_configuration::{API_VERSION, KIND, KubeletConfiguration, specimen};
use crate::load::drop_in;

/// The merged configuration, and the defaults that it would be without any setting.
pub(super) struct Layers {
    pub(super) kubelet: KubeletConfiguration,
    pub(super) baseline: KubeletConfiguration,
    /// Sentences about unknown and repeated fields, each with its file.
    pub(super) unknown_fields: Vec<String>,
}

/// What the lowest layer is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Base<'a> {
    /// The defaults of a kubelet without a file.
    Legacy,
    /// The file of `--config`, over the defaults.
    File(&'a Path),
    /// What `--alone` chose, over the defaults.
    Chosen(&'a Choices<'a>),
}

pub(super) fn merge(
    low: &LowArgs,
    flags: &KubeletFlags,
    base: Base<'_>,
) -> Result<Layers, ConfigError> {
    let typed = typed_gates(low, &Map::new())?;
    let mut decoder = Decoder::new(low, flags);
    let (mut kubelet, baseline) = match base {
        Base::Legacy => (
            apply(low, &defaults::legacy(&typed)),
            defaults::legacy(&typed),
        ),
        Base::File(path) => {
            let file = decoder.read_file(path)?;
            let mut baseline = defaults::complete(Map::new(), &typed)
                .expect("defaults alone always fit: a test completes them");
            default_eviction(&mut baseline);
            (file, baseline)
        }
        Base::Chosen(choices) => {
            let mut chosen = choices.configuration(&typed);
            default_eviction(&mut chosen);
            (chosen.clone(), chosen)
        }
    };
    if !flags.config_dir.is_empty() {
        let folder = Path::new(&flags.config_dir);
        kubelet = decoder.merge_drop_ins(&kubelet, folder)?;
    }
    let mut kubelet = apply(low, &kubelet);
    if kubelet.merge_default_eviction_settings {
        merge_default_eviction(&mut kubelet);
    }
    Ok(Layers {
        kubelet,
        baseline,
        unknown_fields: decoder.warnings,
    })
}

/// The gates that decide about defaults: those typed, and over them those of the document at hand.
fn typed_gates(low: &LowArgs, fields: &Map<String, Value>) -> Result<FeatureGates, ConfigError> {
    let mut set = std::collections::BTreeMap::new();
    for gates in [
        low.configuration.get("featureGates"),
        fields.get("featureGates"),
    ] {
        let gates = gates.and_then(Value::as_object).into_iter().flatten();
        set.extend(gates.filter_map(|(name, on)| Some((name.clone(), on.as_bool()?))));
    }
    Ok(FeatureGates::new(&set)?)
}

/// Decodes files as the kubelet does (`DecodeKubeletConfiguration`): what it does not know is passed over with a warning,
/// unless the operator wants it refused.
pub(super) struct Decoder<'a> {
    low: &'a LowArgs,
    strict: bool,
    /// Unknown and repeated fields, each with its file.
    pub(super) warnings: Vec<String>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(low: &'a LowArgs, flags: &KubeletFlags) -> Decoder<'a> {
        Decoder {
            low,
            strict: flags.strict_decoding,
            warnings: Vec::new(),
        }
    }

    fn read_file(&mut self, path: &Path) -> Result<KubeletConfiguration, ConfigError> {
        let text = source::read(path).map_err(ConfigError::file(path))?;
        self.read_text(path, &text)
    }

    fn read_text(&mut self, path: &Path, text: &str) -> Result<KubeletConfiguration, ConfigError> {
        let (fields, duplicate) = self.fields(path, text)?;
        self.pass_over(path, duplicate)?;
        let gates = typed_gates(self.low, &fields)?;
        let mut kubelet =
            defaults::complete(fields, &gates).map_err(ConfigError::document(path))?;
        if kubelet.eviction_hard.is_none() {
            default_eviction(&mut kubelet);
        }
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        resolve_paths(&mut kubelet, absolute.parent().unwrap_or(Path::new("/")));
        Ok(kubelet)
    }

    /// The known fields of a document of this kind, and which stands twice.
    fn fields(
        &mut self,
        path: &Path,
        text: &str,
    ) -> Result<(Map<String, Value>, Option<DocumentError>), ConfigError> {
        let ParsedDocument {
            mut fields,
            duplicate,
        } = document::parse(text).map_err(ConfigError::document(path))?;
        document::take_kind(&mut fields, API_VERSION, KIND).map_err(ConfigError::document(path))?;
        let unknown = document::take_unknown(&mut fields, &specimen()).join(", ");
        let unknown = (!unknown.is_empty()).then_some(DocumentError::Unknown { unknown });
        self.pass_over(path, unknown)?;
        Ok((fields, duplicate))
    }

    fn pass_over(&mut self, path: &Path, flaw: Option<DocumentError>) -> Result<(), ConfigError> {
        match flaw {
            Some(flaw) if self.strict => return Err(ConfigError::document(path)(flaw)),
            Some(flaw) => self.warnings.push(format!("{}: {flaw}", path.display())),
            None => {}
        }
        Ok(())
    }

    fn merge_drop_ins(
        &mut self,
        base: &KubeletConfiguration,
        folder: &Path,
    ) -> Result<KubeletConfiguration, ConfigError> {
        let mut fields = to_fields(base);
        let mut last = folder.to_owned();
        for path in drop_in::find(folder)? {
            let text = source::read(&path).map_err(ConfigError::file(&path))?;
            let (patch, duplicate) = self.fields(&path, &text)?;
            // Upstream reads drop-ins strictly as far as keys that stand twice are concerned.
            if let Some(duplicate) = duplicate {
                return Err(ConfigError::document(&path)(duplicate));
            }
            document::merge(&mut fields, patch);
            // Each is decoded as it comes, so that an error names the file that brought it.
            decode_merged(self.low, fields.clone()).map_err(|error| in_file(&path, error))?;
            last = path;
        }
        decode_merged(self.low, fields).map_err(|error| in_file(&last, error))
    }
}

/// Reads the text of a configuration file as if it stood at `path`, with defaults filled in.
pub fn parse_configuration(path: &Path, text: &str) -> Result<KubeletConfiguration, ConfigError> {
    Decoder::new(&LowArgs::default(), &KubeletFlags::default()).read_text(path, text)
}

enum MergeError {
    Document(DocumentError),
    Other(ConfigError),
}

fn in_file(path: &Path, error: MergeError) -> ConfigError {
    match error {
        MergeError::Document(error) => ConfigError::document(path)(error),
        MergeError::Other(error) => error,
    }
}

fn decode_merged(
    low: &LowArgs,
    fields: Map<String, Value>,
) -> Result<KubeletConfiguration, MergeError> {
    let gates = typed_gates(low, &fields).map_err(MergeError::Other)?;
    defaults::complete(fields, &gates).map_err(MergeError::Document)
}

pub(super) fn to_fields(kubelet: &KubeletConfiguration) -> Map<String, Value> {
    match serde_json::to_value(kubelet) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a structure of plain data is a JSON object"),
    }
}

/// Lays the typed flags over a configuration. Gates add to those that are there; all else replaces.
fn apply(low: &LowArgs, kubelet: &KubeletConfiguration) -> KubeletConfiguration {
    let mut fields = to_fields(kubelet);
    for (path, value) in &low.configuration {
        match (*path, value) {
            ("featureGates", Value::Object(gates)) => {
                let patch =
                    Map::from_iter([("featureGates".to_owned(), Value::Object(gates.clone()))]);
                document::merge(&mut fields, patch);
            }
            (path, value) => document::put(&mut fields, path, value.clone()),
        }
    }
    document::decode(fields)
        .expect("every kind of flag gives what its field takes: a test sets each of them")
}

fn default_eviction(kubelet: &mut KubeletConfiguration) {
    kubelet.eviction_hard = Some(Default::default());
    merge_default_eviction(kubelet);
}

/// Adds the default thresholds of signals that have none.
fn merge_default_eviction(kubelet: &mut KubeletConfiguration) {
    let hard = kubelet.eviction_hard.get_or_insert_default();
    for (signal, amount) in defaults::EVICTION_HARD {
        hard.entry(signal.to_owned())
            .or_insert_with(|| amount.to_owned());
    }
}

/// Makes the paths of a file absolute: they are relative to the file's directory.
fn resolve_paths(kubelet: &mut KubeletConfiguration, folder: &Path) {
    for path in [
        &mut kubelet.static_pod_path,
        &mut kubelet.authentication.x509.client_ca_file,
        &mut kubelet.tls_cert_file,
        &mut kubelet.tls_private_key_file,
        &mut kubelet.resolver_config,
        &mut kubelet.volume_plugin_dir,
        &mut kubelet.pod_logs_dir,
    ] {
        if !path.is_empty() && !path.starts_with('/') {
            *path = clean(&folder.join(&*path)).to_string_lossy().into_owned();
        }
    }
}

fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                clean.push(component)
            }
        }
    }
    clean
}
