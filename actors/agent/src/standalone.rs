//! What a node alone writes down before it runs: the runtime that it has chosen, and the network of its pods.
//!
//! Both are kept as they are found: an operator's network stays, and so does the first choice of a runtime.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use config::{NodeConfig, Standalone};

/// The network that ships, below the agent's own folder of networks.
const NETWORK_FILE: &str = "10-oxlet.conflist";
/// Ends a name that is no network's and nobody's choice.
const DRAFT: &str = "draft";
/// Follows the name of a file that was set aside; no network's file ends so.
const DAMAGED: &str = ".damaged";

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", .path.display())]
pub(crate) struct StandaloneError {
    path: PathBuf,
    source: io::Error,
}

/// Writes down what was chosen, and logs it; nothing on a node that is not alone. Blocks.
///
/// # Errors
/// Names the file. The node must not start then: its next life might choose another runtime beside the pods of this one.
pub(crate) fn keep(config: &NodeConfig) -> Result<(), StandaloneError> {
    let Some(alone) = &config.alone else {
        return Ok(());
    };
    let Standalone { runtime, networks } = alone;
    if let Some(kept) = runtime {
        write_once(&kept.file, &format!("{}\n", kept.runtime.name()))?;
    }
    if let Some(folder) = networks {
        write_once(&folder.join(NETWORK_FILE), config::SHIPPED_NETWORK)?;
    }
    tracing::info!(
        manifests = config.kubelet.static_pod_path,
        runtime = config.plugins.runtime,
        cgroup_driver = config.kubelet.cgroup_driver,
        resolv_conf = config.kubelet.resolver_config,
        root_dir = config.flags.root_dir,
        "a node alone: no API server, nothing open to the network"
    );
    Ok(())
}

/// Writes a file that is not there, whole or not at all. One that was emptied, cut short or got a tail is set aside first;
/// any other content is the operator's.
fn write_once(path: &Path, text: &str) -> Result<(), StandaloneError> {
    let failed = |source| StandaloneError {
        path: path.to_owned(),
        source,
    };
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(found) if !is_damaged(&found, text.as_bytes()) => return Ok(()),
        Ok(_) => {
            let mut aside = path.to_owned().into_os_string();
            aside.push(DAMAGED);
            fs::rename(path, &aside).map_err(failed)?;
            tracing::error!(
                "{} is damaged and written anew; it is kept as {}",
                path.display(),
                Path::new(&aside).display()
            );
        }
    }
    write(path, text).map_err(failed)
}

fn is_damaged(found: &[u8], written: &[u8]) -> bool {
    found != written && (written.starts_with(found) || found.starts_with(written))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let draft = path.with_extension(DRAFT);
    let mut file = File::create(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use kernel::error_chain;

    use super::*;
    use crate::settings::AgentSettings;
    use crate::settings::testing::load;

    #[test]
    fn the_first_choice_and_an_operators_network_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let line = format!("--alone --root-dir={}", root.display());
        let (choice, network) = (
            root.join("oxlet/runtime-choice"),
            root.join("oxlet/net.d/10-oxlet.conflist"),
        );
        for _ in 0..2 {
            keep(&load(&line)).unwrap();
            assert_eq!(fs::read_to_string(&choice).unwrap(), "native\n");
            let written = fs::read_to_string(&network).unwrap();
            let list: serde_json::Value = serde_json::from_str(&written).unwrap();
            assert_eq!(list["plugins"][0]["type"], "bridge");
        }
        fs::write(&network, "mine").unwrap();
        keep(&load(&line)).unwrap();
        assert_eq!(fs::read_to_string(&network).unwrap(), "mine");

        // Nothing else lies there, and nothing at all where the node is not alone or the runtime was named.
        let entries = fs::read_dir(root.join("oxlet")).unwrap();
        assert_eq!(entries.count(), 2);
        fs::remove_dir_all(&root).unwrap();
        keep(&load(&line.replace("--alone", ""))).unwrap();
        let named = format!("{line} --container-runtime-endpoint=unix:///run/crio/crio.sock");
        keep(&load(&named)).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let line = format!("--alone --root-dir={}", root.display());
        keep(&load(&line)).unwrap();
        for name in ["runtime-choice", "net.d/10-oxlet.conflist"] {
            let file = root.join("oxlet").join(name);
            let whole = fs::read(&file).unwrap();
            let damages = [
                Vec::new(),
                whole[..whole.len() / 2].to_vec(),
                [&whole[..], b"xyz\xff"].concat(),
            ];
            for damage in damages {
                fs::write(&file, &damage).unwrap();
                keep(&load(&line)).unwrap();
                assert_eq!(fs::read(&file).unwrap(), whole, "{name}");
                let aside = root.join("oxlet").join(format!("{name}.damaged"));
                assert_eq!(fs::read(aside).unwrap(), damage, "{name}");
            }
        }
    }

    #[test]
    fn a_choice_that_cannot_be_kept_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("oxlet/runtime-choice.draft")).unwrap();
        let error = keep(&load(&format!("--alone --root-dir={}", root.display())));
        let why = error_chain(&error.unwrap_err());
        assert!(why.contains("root/oxlet/runtime-choice: "), "{why}");
    }

    #[test]
    fn nothing_of_a_node_alone_is_open_to_the_network() {
        let of = |line: &str| AgentSettings::new(Box::new(load(line)));
        let settings = of("--alone");
        assert_eq!((settings.https, settings.read_only), (None, None));
        assert!(settings.healthz.unwrap().ip().is_loopback());
        assert!(settings.cluster.is_none());
        let opened = of("--alone --enable-server --read-only-port=10255");
        let open = [opened.https, opened.read_only];
        assert!(
            open.iter().all(|at| at.unwrap().ip().is_loopback()),
            "{open:?}"
        );
    }
}
