//! Files and directories of providers, as upstream reads and checks them.

use kernel::error_chain;
use tempfile::TempDir;

use super::*;
use crate::error::ConfigError;

const FILE: &str = "
kind: CredentialProviderConfig
apiVersion: kubelet.config.k8s.io/v1
providers:
- name: test
  matchImages: [registry.io/foobar]
  defaultCacheDuration: 10m
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [--v=5]
  env: [{name: FOO, value: BAR}]
";

fn gates() -> FeatureGates {
    FeatureGates::new(&Default::default()).unwrap()
}

/// A directory with `bin/test`, `bin/other`, and these files in `config`.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (bin, config) = (folder.path().join("bin"), folder.path().join("config"));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&config).unwrap();
    for name in ["test", "other"] {
        fs::write(bin.join(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(bin.join("data"), "no program").unwrap();
    for (name, text) in files {
        fs::write(config.join(name), text).unwrap();
    }
    folder
}

fn load_from(folder: &TempDir) -> Result<Vec<CredentialProvider>, CredentialProviderError> {
    let at = |name: &str| folder.path().join(name).display().to_string();
    load(
        CredentialProviderPaths {
            config: &at("config"),
            bin_dir: &at("bin"),
        },
        &gates(),
    )
}

/// Upstream's Test_readCredentialProviderConfig: a file, in YAML or JSON, in each version.
#[test]
fn a_file_declares_providers_in_any_version() {
    let folder = folder(&[]);
    let path = folder.path().join("providers");
    for version in ["v1alpha1", "v1beta1", "v1"] {
        fs::write(&path, FILE.replace("io/v1", &format!("io/{version}"))).unwrap();
        let bin = folder.path().join("bin");
        let paths = CredentialProviderPaths {
            config: path.to_str().unwrap(),
            bin_dir: bin.to_str().unwrap(),
        };
        let expected = CredentialProvider {
            name: "test".into(),
            program: bin.join("test"),
            api_version: format!("credentialprovider.kubelet.k8s.io/{version}"),
            match_images: vec!["registry.io/foobar".into()],
            default_cache_duration: Duration::from_secs(600),
            args: vec!["--v=5".into()],
            env: vec![("FOO".into(), "BAR".into())],
        };
        assert_eq!(load(paths, &gates()).unwrap(), [expected], "{version}");
    }
}

/// Upstream's Test_readCredentialProviderConfig: directories.
#[test]
fn a_folder_is_read_in_the_order_of_names_and_only_what_is_meant_for_it() {
    let other = FILE.replace("name: test", "name: other");
    let folder = folder(&[("b.yaml", FILE), ("a.yml", &other), ("notes.txt", "no")]);
    fs::create_dir(folder.path().join("config/c.yaml")).unwrap();
    let names: Vec<String> = load_from(&folder)
        .unwrap()
        .into_iter()
        .map(|provider| provider.name)
        .collect();
    assert_eq!(names, ["other", "test"]);
}

/// Invalid files, and the error of each.
fn wrong_files() -> Vec<(String, &'static str)> {
    let with = |from: &str, to: &str| FILE.replace(from, to);
    let replaced = |from: &str, to: &str, why| (with(from, to), why);
    let of_names = [
        ("foo/../bar", "provider name cannot contain '/'"),
        ("foo bar", "provider name cannot contain spaces"),
        (".", "provider name cannot be '.'"),
        ("'..'", "provider name cannot be '..'"),
        ("''", "provider name cannot be empty"),
        ("absent", "bin/absent did not exist"),
        ("data", "bin/data is not a file that may be executed"),
    ]
    .map(|(name, why)| replaced("name: test", &format!("name: {name}"), why));
    let of_fields = [
        replaced(
            "kind: C",
            "kind: W",
            "field kind: expected \"CredentialProviderConfig\"",
        ),
        replaced(
            "kubelet.config",
            "foobar",
            "field apiVersion: expected \"kubelet.config.k8s.io/v1\"",
        ),
        replaced(
            "args:",
            "unknownField: 1\n  args:",
            "unknown field `unknownField`",
        ),
        replaced("10m", "soon", "providers[0].defaultCacheDuration"),
        replaced("10m", "-1m", "must be greater than or equal to 0"),
        replaced(
            "  defaultCacheDuration: 10m\n",
            "",
            "providers.defaultCacheDuration: Required value",
        ),
        replaced(
            "[registry.io/foobar]",
            "[]",
            "at least 1 item in matchImages is required",
        ),
        replaced(
            "registry.io/foobar",
            "'%invalid%'",
            "match image is invalid: invalid URL escape",
        ),
        replaced(
            "  apiVersion: cred",
            "  # cred",
            "providers.apiVersion: Required value",
        ),
        replaced(
            "provider.kubelet.k8s.io/v1",
            "provider.kubelet.k8s.io/v0",
            "providers.apiVersion: Unsupported value",
        ),
        (
            FILE[..FILE.find("- name").unwrap()].replace("rs:", "rs: []"),
            "at least 1 item in plugins is required",
        ),
        (String::new(), "it is empty"),
    ];
    of_names.into_iter().chain(of_fields).collect()
}

/// Files that ask for service account tokens, and the error of each.
fn token_files() -> [(String, &'static str); 4] {
    let token = "  tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}\n";
    let with = |from: &str, to: &str| FILE.to_owned() + &token.replace(from, to);
    let older = FILE.replace("config.k8s.io/v1", "config.k8s.io/v1beta1") + token;
    [
        (
            with("", ""),
            "credential provider test wants service account tokens",
        ),
        (with("cacheType: Token, ", ""), "cacheType is required"),
        (
            with("Token, ", "Pod, "),
            "cacheType: Unsupported value: \"Pod\"",
        ),
        (older, "unknown fields providers[0].tokenAttributes"),
    ]
}

/// Upstream's Test_readCredentialProviderConfig and Test_validateCredentialProviderConfig: refusals.
#[test]
fn what_is_wrong_ends_the_start_with_its_reason() {
    for (text, expected) in wrong_files().into_iter().chain(token_files()) {
        let folder = folder(&[("a.yaml", &text)]);
        let error = error_chain(&load_from(&folder).unwrap_err());
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn the_two_flags_need_each_other() {
    let folder = folder(&[("a.yaml", FILE), ("b.yaml", FILE)]);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let refused = |config: &str, bin_dir: &str| {
        error_chain(&load(CredentialProviderPaths { config, bin_dir }, &gates()).unwrap_err())
    };
    assert!(
        load(
            CredentialProviderPaths {
                config: "",
                bin_dir: ""
            },
            &gates()
        )
        .unwrap()
        .is_empty()
    );
    assert_eq!(
        refused(&at("config"), ""),
        "plugin binary directory  did not exist"
    );
    assert!(refused(&at("config"), &at("none")).ends_with("none did not exist"));
    assert_eq!(
        refused("", &at("bin")),
        "credential provider config path is empty"
    );
    assert!(refused(&at("absent"), &at("bin")).contains("it does not exist"));
    assert!(refused(&at("bin"), &at("bin")).starts_with("no configuration files found"));
    assert_eq!(
        refused(&at("config"), &at("bin")),
        "duplicate provider name \"test\" found in configuration file(s)"
    );
    let error = ConfigError::CredentialProviders(CredentialProviderError::NoPath);
    assert_eq!(
        error.to_string(),
        "cannot use the image credential providers"
    );
}
