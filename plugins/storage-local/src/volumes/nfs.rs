//! NFS exports, mounted by mount(8) and the node's own helper, or by the mounter in their place (upstream's
//! pkg/volume/nfs/nfs.go and staging/src/k8s.io/mount-utils/mount_linux.go, 1.36).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use blocking_pool::Cancel;
use mounts::mount::{self, How};
use mounts::table;
use proto::storage::{Access, Nfs};
use tonic::{Code, Status};

use crate::command::{self, RunError};
use crate::request::MountParameters;
use crate::state::place::{self, Place};

const FOLDER_MODE: u32 = 0o750;
const MOUNT: &str = "mount";
/// Where mount(8) looks for helpers first.
const HELPER: &str = "/sbin/mount.nfs";
/// Upstream's `unMountTimeout`, after which it is done by force.
const PLAIN_FOR: Duration = Duration::from_secs(60);

/// Time for processes that waited for the server to let go of the mount.
const LET_GO_TIMEOUT: Duration = Duration::from_millis(50);
const FORCED_MAX: usize = 20;

/// The programs that it takes.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) mount: PathBuf,
    pub(crate) umount: PathBuf,
    pub(crate) helper: PathBuf,
    /// Started with `mount` and its arguments, where the node itself has no helper; it brings its own.
    pub(crate) mounter: Option<PathBuf>,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            mount: MOUNT.into(),
            umount: "umount".into(),
            helper: HELPER.into(),
            mounter: None,
        }
    }
}

impl Programs {
    /// Mounts the export unless it is mounted.
    pub(crate) fn set_up(
        &self,
        place: &Place,
        nfs: &Nfs,
        parameters: &MountParameters,
    ) -> Result<(), Status> {
        if mounted(place)? {
            return Ok(());
        }
        let source = source(nfs)?;
        place.make_parents()?;
        place::make(&place.target, FOLDER_MODE)?;
        let tried = self.mount(&source, &place.target, &options(parameters));
        if tried.is_err() {
            // Whatever came of it; what cannot be undone is shown by List.
            if let Err(error) =
                mount::unmount(&place.target).and_then(|()| mount::clean_up(&place.target))
            {
                tracing::warn!(%error, "cannot clean up after a failed mount");
            }
        }
        tried
    }

    /// Unmounts it; by force when the server does not let it go.
    pub(crate) fn tear_down(&self, place: &Place, within: Duration) -> Result<(), Status> {
        let target = &place.target;
        let plain = PLAIN_FOR.min(within / 2);
        if mounted(place)? {
            match command::run(self.umount.as_os_str(), &[target.as_os_str()], Some(plain)) {
                Ok(ended) if ended.code() == Some(0) => {}
                Ok(_) | Err(RunError::Start { .. }) => mount::unmount(target)?,
                Err(RunError::Late { .. }) => force(target)?,
            }
        }
        // Whatever is mounted in more than one layer.
        mount::clean_up(target)
    }

    fn mount(&self, source: &str, target: &Path, options: &str) -> Result<(), Status> {
        let mut words: Vec<&OsStr> = vec!["-t".as_ref(), "nfs".as_ref()];
        if !options.is_empty() {
            words.extend([OsStr::new("-o"), options.as_ref()]);
        }
        words.extend([source.as_ref(), target.as_os_str()]);
        let program = match &self.mounter {
            Some(mounter) => {
                words.insert(0, MOUNT.as_ref());
                mounter
            }
            None => &self.mount,
        };
        if self.mounter.is_none() && !self.helper.exists() {
            let output = format!(
                "mount: {}: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.\n",
                target.display()
            );
            let text = refused("exit status 32", MOUNT.as_ref(), &words, &output);
            return Err(Status::failed_precondition(text));
        }
        let ended = command::run(program.as_os_str(), &words, None)?;
        match ended.code() {
            Some(0) => Ok(()),
            Some(_) | None => Err(Status::internal(refused(
                &ended.exit_text(),
                self.mounter
                    .as_ref()
                    .map_or(MOUNT.as_ref(), |mounter| mounter.as_os_str()),
                &words,
                &ended.output,
            ))),
        }
    }
}

/// Ends what waits for the server, and unmounts when that has let go.
fn force(target: &Path) -> Result<(), Status> {
    for _ in 0..FORCED_MAX {
        match mount::unmount_with(target, How::Force) {
            Err(busy) if busy.code() == Code::FailedPrecondition => {
                Cancel::current().sleep(LET_GO_TIMEOUT)?;
            }
            result => return result,
        }
    }
    mount::unmount_with(target, How::Force)
}

/// As upstream's mounter says it.
fn refused(end: &str, program: &OsStr, words: &[&OsStr], output: &str) -> String {
    let program = program.to_string_lossy();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!(
        "mount failed: {end}\nMounting command: {program}\nMounting arguments: {}\nOutput: {output}",
        words.join(" ")
    )
}

/// By the mount table only: a server that is gone hangs every access to the path itself.
fn mounted(place: &Place) -> Result<bool, Status> {
    match table::is_mount_point(&place.target) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        result => result.map_err(|error| {
            mounts::answer::failed(format!("stat {}", place.target.display()), error)
        }),
    }
}

fn source(nfs: &Nfs) -> Result<String, Status> {
    let Nfs { server, path } = nfs;
    // What looks like an option would be one.
    if server.is_empty() || server.starts_with('-') || server.contains('\0') {
        return Err(Status::invalid_argument(format!(
            "nfs server {server:?} is no name of a server"
        )));
    }
    if path.contains('\0') {
        return Err(Status::invalid_argument(format!(
            "nfs path {path:?} is no path"
        )));
    }
    Ok(match server.parse::<std::net::Ipv6Addr>() {
        Ok(_) => format!("[{server}]:{path}"),
        Err(_) => format!("{server}:{path}"),
    })
}

/// Upstream's JoinMountOptions: each word once, sorted.
fn options(parameters: &MountParameters) -> String {
    let words = parameters.options.iter().map(String::as_str);
    let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if parameters.access == Access::ReadOnly {
        words.push("ro");
    }
    words.sort_unstable();
    words.dedup();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::{Node, mounted};

    /// Programs in the place of mount(8) and umount(8): they note their arguments and do it with a tmpfs.
    fn programs(node: &Node, mount: &str, umount: &str) -> Programs {
        let script = |name: &str, body: &str| {
            let path = node.path(name);
            let log = node.path("log").display().to_string();
            let text =
                format!("#!/bin/sh\necho {name} \"$@\" >> {log}\nfor last; do :; done\n{body}\n");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        Programs {
            mount: script("mount", mount),
            umount: script("umount", umount),
            helper: script("mount.nfs", ""),
            mounter: None,
        }
    }

    fn log(node: &Node) -> String {
        let root = node.root().display().to_string();
        let text = fs::read_to_string(node.path("log")).unwrap_or_default();
        text.replace(&root, "ROOT")
    }

    fn nfs(server: &str) -> Nfs {
        Nfs {
            server: server.to_owned(),
            path: "/export/home".to_owned(),
        }
    }

    const MOUNT: &str = "exec mount -t tmpfs share \"$last\"";
    const UMOUNT: &str = "exec umount \"$last\"";
    const MINUTE: Duration = Duration::from_secs(60);

    /// Upstream's TestPluginVolume and TestPluginPersistentVolume of NFS.
    #[test]
    fn an_export_is_mounted_once_with_its_options_and_unmounted() {
        let node = Node::new();
        let programs = programs(&node, MOUNT, UMOUNT);
        let place = node.place("u", "nfs", "share");
        let parameters = MountParameters {
            access: Access::ReadOnly,
            options: vec!["nfsvers=4.1".to_owned(), String::new(), "hard".to_owned()],
            ..MountParameters::default()
        };
        for _ in 0..2 {
            programs
                .set_up(&place, &nfs("server.example.com"), &parameters)
                .unwrap();
            assert_eq!(mounted(&place.target).len(), 1);
        }
        for _ in 0..2 {
            programs.tear_down(&place, MINUTE).unwrap();
            assert!(mounted(&place.target).is_empty() && !place.target.exists());
        }
        assert_eq!(
            log(&node),
            "mount -t nfs -o hard,nfsvers=4.1,ro server.example.com:/export/home ROOT/pods/u/volumes/kubernetes.io~nfs/share\n\
             umount ROOT/pods/u/volumes/kubernetes.io~nfs/share\n"
        );
    }

    /// Upstream's TestGetServerFromSource.
    #[test]
    fn an_address_of_version_six_stands_in_brackets() {
        for (server, expected) in [
            ("fd00::1", "[fd00::1]:/export/home"),
            ("10.0.0.1", "10.0.0.1:/export/home"),
            ("nfs.example.com", "nfs.example.com:/export/home"),
        ] {
            assert_eq!(source(&nfs(server)).unwrap(), expected);
        }
        for server in ["", "--bind", "-o"] {
            assert_eq!(
                source(&nfs(server)).unwrap_err().code(),
                Code::InvalidArgument
            );
        }
    }

    #[test]
    fn a_node_without_the_helper_says_so_in_the_words_of_mount() {
        let node = Node::new();
        let place = node.place("u", "nfs", "share");
        let programs = Programs {
            helper: node.path("missing"),
            ..programs(&node, MOUNT, UMOUNT)
        };
        let refused = programs
            .set_up(&place, &nfs("server"), &MountParameters::default())
            .unwrap_err();
        let target = place.target.display();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(
            refused.message(),
            format!(
                "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs server:/export/home {target}\nOutput: mount: {target}: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.\n"
            )
        );
        assert!(!place.target.exists() && log(&node).is_empty());
    }

    /// Upstream's TestMakeMountArgs with a mounter path: it is told `mount`, and needs no helper of the node.
    #[test]
    fn a_mounter_takes_the_place_of_mount_and_its_helper() {
        let node = Node::new();
        let place = node.place("u", "nfs", "share");
        let usual = programs(&node, MOUNT, UMOUNT);
        let mounter = node.path("mounter");
        fs::rename(&usual.mount, &mounter).unwrap();
        let programs = Programs {
            helper: node.path("missing"),
            mounter: Some(mounter.clone()),
            ..usual
        };
        let parameters = MountParameters::default();
        programs
            .set_up(&place, &nfs("server"), &parameters)
            .unwrap();
        assert_eq!(mounted(&place.target).len(), 1);
        programs.tear_down(&place, MINUTE).unwrap();
        let folder = "ROOT/pods/u/volumes/kubernetes.io~nfs/share";
        assert_eq!(
            log(&node),
            format!("mount mount -t nfs server:/export/home {folder}\numount {folder}\n")
        );

        fs::write(&mounter, "#!/bin/sh\necho no server >&2; exit 32\n").unwrap();
        let why = programs.set_up(&place, &nfs("server"), &parameters);
        let why = why.unwrap_err().message().to_owned();
        let command = format!("Mounting command: {}\n", mounter.display());
        assert!(
            why.contains(&command) && why.contains("arguments: mount -t nfs"),
            "{why}"
        );
    }

    #[test]
    fn a_mount_that_fails_leaves_nothing_and_says_why() {
        let node = Node::new();
        let place = node.place("u", "nfs", "share");
        let script = format!(
            "{}\necho access denied >&2; exit 32",
            MOUNT.replace("exec ", "")
        );
        let programs = programs(&node, &script, UMOUNT);
        let refused = programs
            .set_up(&place, &nfs("server"), &MountParameters::default())
            .unwrap_err();
        assert!(
            refused
                .message()
                .starts_with("mount failed: exit status 32\n")
        );
        assert!(refused.message().ends_with("Output: access denied\n"));
        assert!(mounted(&place.target).is_empty() && !place.target.exists());
    }

    #[test]
    fn an_unmount_that_hangs_is_done_by_force() {
        let node = Node::new();
        let place = node.place("u", "nfs", "share");
        let programs = programs(&node, MOUNT, "exec sleep 600");
        programs
            .set_up(&place, &nfs("server"), &MountParameters::default())
            .unwrap();
        programs
            .tear_down(&place, Duration::from_millis(200))
            .unwrap();
        assert!(mounted(&place.target).is_empty() && !place.target.exists());
    }
}
