//! The plugin's settings, as the agent configures it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The plugin's section of the plugin file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// The folder of network configurations.
    pub(crate) conf_dir: PathBuf,
    /// The folders of CNI plugins, searched in this order.
    pub(crate) bin_dirs: Vec<PathBuf>,
    /// Where attachments are written down; the plugin's own folder where it is not said. Not that of a runtime: two
    /// that write there take each other's attachments away.
    pub(crate) cache_dir: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            conf_dir: "/etc/cni/net.d".into(),
            bin_dirs: vec!["/opt/cni/bin".into()],
            cache_dir: None,
        }
    }
}

impl Settings {
    /// Checks what has a form.
    pub(crate) fn check(&self) -> Result<(), String> {
        let absolute = |field: &str, path: &Path| match path.is_absolute() {
            true => Ok(()),
            false => Err(format!(
                "{field} {}: expected an absolute path",
                path.display()
            )),
        };
        absolute("confDir", &self.conf_dir)?;
        if self.bin_dirs.is_empty() {
            return Err("binDirs: expected at least one folder".to_owned());
        }
        for dir in &self.bin_dirs {
            absolute("binDirs", dir)?;
            if dir.to_string_lossy().contains(':') {
                return Err(format!(
                    "binDirs {}: ':' parts folders in CNI_PATH",
                    dir.display()
                ));
            }
        }
        match &self.cache_dir {
            Some(dir) => absolute("cacheDir", dir),
            None => Ok(()),
        }
    }
}
