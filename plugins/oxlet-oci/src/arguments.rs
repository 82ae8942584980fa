//! The command line, as runc has it: options, a command, its options, the container's id.

use std::ffi::OsString;
use std::path::PathBuf;

/// The one command that is about no container.
pub(crate) const FEATURES: &str = "features";

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// The folder of all containers' states.
    pub(crate) root: PathBuf,
    pub(crate) log: Option<PathBuf>,
    pub(crate) command: String,
    pub(crate) id: String,
    /// What follows the id: the signal of `kill`.
    pub(crate) rest: Vec<String>,
    pub(crate) bundle: Option<PathBuf>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) console_socket: Option<PathBuf>,
    pub(crate) process: Option<PathBuf>,
    pub(crate) resources: Option<PathBuf>,
    /// Where `checkpoint` writes a container's state.
    pub(crate) image_path: Option<PathBuf>,
    /// Where it logs.
    pub(crate) work_path: Option<PathBuf>,
    /// Whether the container runs on after it.
    pub(crate) leave_running: bool,
    /// Whether `linux.cgroupsPath` is `SLICE:PREFIX:NAME`, a scope that systemd makes.
    pub(crate) systemd_cgroup: bool,
    pub(crate) force: bool,
    pub(crate) detach: bool,
}

/// Why a command line is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentsError {
    #[error("{0} is no option of this runtime")]
    Unknown(String),
    #[error("option {0} needs a value")]
    Value(String),
    #[error("usage: oxlet-oci [--root DIR] [--log FILE] COMMAND [OPTION...] ID")]
    Usage,
    #[error("container id {0:?} is none")]
    Id(String),
}

impl Arguments {
    pub(crate) fn read(
        mut args: impl Iterator<Item = OsString>,
    ) -> Result<Arguments, ArgumentsError> {
        let mut read = Arguments {
            root: PathBuf::from("/run/oxlet-oci"),
            ..Arguments::default()
        };
        let mut words = Vec::new();
        while let Some(arg) = args.next() {
            let arg = arg.to_string_lossy().into_owned();
            match arg.split_once('=').filter(|_| arg.starts_with("--")) {
                Some((name, value)) => read.option(name, &mut std::iter::once(value.into()))?,
                None if arg.starts_with('-') && arg.len() > 1 => read.option(&arg, &mut args)?,
                None => words.push(arg),
            }
        }
        let mut words = words.into_iter();
        read.command = words.next().ok_or(ArgumentsError::Usage)?;
        if read.command == FEATURES {
            return Ok(read);
        }
        read.id = words.next().ok_or(ArgumentsError::Usage)?;
        read.rest = words.collect();
        let is_plain = read
            .id
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.+".contains(c));
        if read.id.is_empty() || read.id.starts_with('.') || !is_plain {
            return Err(ArgumentsError::Id(read.id));
        }
        Ok(read)
    }

    fn option(
        &mut self,
        name: &str,
        args: &mut dyn Iterator<Item = OsString>,
    ) -> Result<(), ArgumentsError> {
        let mut value = || {
            args.next()
                .map(PathBuf::from)
                .ok_or_else(|| ArgumentsError::Value(name.to_owned()))
        };
        match name {
            "--root" => self.root = value()?,
            "--log" => self.log = Some(value()?),
            // There is one format of the log, and one of the list of processes.
            "--log-format" | "--format" => drop(value()?),
            "--bundle" | "-b" => self.bundle = Some(value()?),
            "--pid-file" => self.pid_file = Some(value()?),
            "--console-socket" => self.console_socket = Some(value()?),
            "--process" | "-p" => self.process = Some(value()?),
            "--resources" | "-r" => self.resources = Some(value()?),
            "--image-path" => self.image_path = Some(value()?),
            "--work-path" => self.work_path = Some(value()?),
            "--leave-running" => self.leave_running = true,
            "--force" => self.force = true,
            "--detach" | "-d" => self.detach = true,
            "--systemd-cgroup" => self.systemd_cgroup = true,
            other => return Err(ArgumentsError::Unknown(other.to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, ArgumentsError> {
        Arguments::read(line.split(' ').map(OsString::from))
    }

    #[test]
    fn options_stand_before_and_after_the_command() {
        let line = "--root /r --log /l --log-format json --systemd-cgroup kill box 9";
        let read = read(line).unwrap();
        assert!(read.systemd_cgroup);
        assert_eq!(
            (read.command.as_str(), read.id.as_str(), read.rest),
            ("kill", "box", vec!["9".to_owned()])
        );
        assert_eq!(read.log.unwrap(), PathBuf::from("/l"));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        assert!(
            read("--rootless create box")
                .unwrap_err()
                .to_string()
                .contains("--rootless")
        );
        assert!(
            read("create --no-pivot box")
                .unwrap_err()
                .to_string()
                .contains("--no-pivot")
        );
        assert!(matches!(read("create ../box"), Err(ArgumentsError::Id(_))));
        assert!(matches!(read("create"), Err(ArgumentsError::Usage)));
        assert_eq!(read("features").unwrap().command, FEATURES);
    }
}
