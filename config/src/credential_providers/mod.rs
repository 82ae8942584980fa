//! Credential provider programs: `--image-credential-provider-config`, a file or a directory of files, and
//! `--image-credential-provider-bin-dir`.
//!
//! Mirrors upstream's pkg/credentialprovider/plugin/config.go (v1.36). An error ends the start, as there.

mod check;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use serde::Deserialize;
use serde_json::Value;

use crate::document::source::{self, FileError};
use crate::document::{self, DocumentError};
use crate::feature_gates::FeatureGates;
use crate::kubelet_configuration::GoDuration;

const KIND: &str = "CredentialProviderConfig";
/// The versions of the file; service account tokens came with the last.
const API_VERSIONS: [&str; 3] = [
    "kubelet.config.k8s.io/v1alpha1",
    "kubelet.config.k8s.io/v1beta1",
    V1,
];
const V1: &str = "kubelet.config.k8s.io/v1";
/// The files of a directory that are read.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// One program, checked: it is there, and may be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialProvider {
    /// The provider's name, that of its program.
    pub name: String,
    /// The program's path.
    pub program: PathBuf,
    /// The version of the protocol that the provider speaks.
    pub api_version: String,
    /// Patterns of images for which it is asked.
    pub match_images: Vec<String>,
    /// How long an answer holds that does not say.
    pub default_cache_duration: Duration,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Beside the agent's own environment.
    pub env: Vec<(String, String)>,
}

/// Why the credential providers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialProviderError {
    #[error("plugin binary directory {} did not exist", .0.display())]
    NoFolder(PathBuf),
    #[error("error inspecting binary directory {}", .folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error("credential provider config path is empty")]
    NoPath,
    #[error("unable to read directory {}", .folder.display())]
    List { folder: PathBuf, source: io::Error },
    #[error("no configuration files found in directory {}", .0.display())]
    NoFiles(PathBuf),
    #[error("unable to read file {}", .path.display())]
    File { path: PathBuf, source: FileError },
    #[error("error decoding config {}", .path.display())]
    Document {
        path: PathBuf,
        source: DocumentError,
    },
    #[error("duplicate provider name {0:?} found in configuration file(s)")]
    Duplicate(String),
    #[error("failed to validate credential provider config: {0}")]
    Invalid(String),
    #[error("plugin binary executable {} did not exist", .0.display())]
    NoProgram(PathBuf),
    #[error("plugin binary executable {} is not a file that may be executed", .0.display())]
    NotExecutable(PathBuf),
    #[error(
        "credential provider {0} wants service account tokens (tokenAttributes), which the API server would issue: this version does not ask it yet"
    )]
    Tokens(String),
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawCredentialProviders {
    providers: Vec<RawProvider>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawProvider {
    name: String,
    match_images: Vec<String>,
    default_cache_duration: Option<GoDuration>,
    api_version: String,
    args: Vec<String>,
    env: Vec<RawVariable>,
    token_attributes: Option<RawToken>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawVariable {
    name: String,
    value: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawToken {
    service_account_token_audience: String,
    cache_type: String,
    require_service_account: Option<bool>,
    required_service_account_annotation_keys: Vec<String>,
    optional_service_account_annotation_keys: Vec<String>,
}

/// The two flags' paths: the configuration file and the directory of the providers' programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CredentialProviderPaths<'a> {
    pub(crate) config: &'a str,
    pub(crate) bin_dir: &'a str,
}

/// Reads what the flags name; none if they name nothing.
pub(crate) fn load(
    paths: CredentialProviderPaths<'_>,
    gates: &FeatureGates,
) -> Result<Vec<CredentialProvider>, CredentialProviderError> {
    if paths.config.is_empty() && paths.bin_dir.is_empty() {
        return Ok(Vec::new());
    }
    let bin_dir = Path::new(paths.bin_dir);
    if let Err(source) = fs::metadata(bin_dir) {
        let folder = bin_dir.to_owned();
        return Err(if source.kind() == io::ErrorKind::NotFound {
            CredentialProviderError::NoFolder(folder)
        } else {
            CredentialProviderError::Folder { folder, source }
        });
    }
    let providers = read(paths.config)?;
    let wrong = check::check(&providers, gates);
    if !wrong.is_empty() {
        return Err(CredentialProviderError::Invalid(wrong.join(", ")));
    }
    providers
        .into_iter()
        .map(|raw| provider(raw, bin_dir))
        .collect()
}

fn read(config: &str) -> Result<Vec<RawProvider>, CredentialProviderError> {
    if config.is_empty() {
        return Err(CredentialProviderError::NoPath);
    }
    let path = Path::new(config);
    let files = match path.is_dir() {
        true => files_of(path)?,
        false => vec![path.to_owned()],
    };
    let mut providers: Vec<RawProvider> = Vec::new();
    for path in files {
        let text = source::read(&path).map_err(|source| CredentialProviderError::File {
            path: path.clone(),
            source,
        })?;
        let file =
            parse(&text).map_err(|source| CredentialProviderError::Document { path, source })?;
        for provider in file.providers {
            if providers.iter().any(|known| known.name == provider.name) {
                return Err(CredentialProviderError::Duplicate(provider.name));
            }
            providers.push(provider);
        }
    }
    Ok(providers)
}

/// The files of a directory that are read, in the order of their names.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, CredentialProviderError> {
    let failed = |source| CredentialProviderError::List {
        folder: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let counts = path
            .extension()
            .and_then(|extension| extension.to_str())
            .is_some_and(|extension| EXTENSIONS.contains(&extension));
        if counts && !entry.file_type().map_err(failed)?.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    match files.is_empty() {
        true => Err(CredentialProviderError::NoFiles(folder.to_owned())),
        false => Ok(files),
    }
}

fn parse(text: &str) -> Result<RawCredentialProviders, DocumentError> {
    let mut fields = document::parse_strictly(text)?;
    let found = fields.get("apiVersion").cloned().unwrap_or(Value::Null);
    let version = API_VERSIONS
        .into_iter()
        .find(|version| found == **version)
        .unwrap_or(V1);
    document::take_kind(&mut fields, version, KIND)?;
    document::strip_nulls(&mut fields);
    let file: RawCredentialProviders = document::decode(fields)?;
    let with_tokens = |provider: &RawProvider| provider.token_attributes.is_some();
    match file.providers.iter().position(with_tokens) {
        Some(index) if version != V1 => Err(DocumentError::Unknown {
            unknown: format!("providers[{index}].tokenAttributes"),
        }),
        Some(_) | None => Ok(file),
    }
}

fn provider(
    raw: RawProvider,
    bin_dir: &Path,
) -> Result<CredentialProvider, CredentialProviderError> {
    let program = bin_dir.join(&raw.name);
    match fs::metadata(&program) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => {}
        Ok(_) => return Err(CredentialProviderError::NotExecutable(program)),
        Err(_) => return Err(CredentialProviderError::NoProgram(program)),
    }
    if raw.token_attributes.is_some() {
        return Err(CredentialProviderError::Tokens(raw.name));
    }
    let env = raw.env.into_iter();
    Ok(CredentialProvider {
        name: raw.name,
        // Not searched in PATH, whatever the flag is.
        program: std::path::absolute(&program).unwrap_or(program),
        api_version: raw.api_version,
        match_images: raw.match_images,
        default_cache_duration: raw.default_cache_duration.unwrap_or_default().as_std(),
        args: raw.args,
        env: env
            .map(|variable| (variable.name, variable.value))
            .collect(),
    })
}

#[cfg(test)]
mod tests;
