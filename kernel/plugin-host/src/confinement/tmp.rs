//! Where a plugin's temporary files are: in a `/tmp` of its own where that is sound, else in a folder of its own.
//!
//! A mount namespace is for clients alone, and only where every mount of the machine is shared: then the end of a mount
//! reaches the namespace as well. A copy of a mount that nobody ends there would keep a volume's device busy for ever. A plugin
//! that mounts for others gets none: what it mounts must show everywhere, and so would its `/tmp`.

use std::io;
use std::path::Path;

use super::{LaunchSpec, MountVisibility};
use crate::process::socket::private_folder;

/// What lives below these is the kernel's own, and no device is behind it.
const KERNELS: [&str; 4] = ["/proc", "/sys", "/dev", "/run/credentials"];
const TMP: &str = "/tmp";

pub(super) fn may_be_private(launch: &LaunchSpec<'_>, mountinfo: &str) -> bool {
    let declaration = launch.declaration;
    let used = |path: &Path| path.starts_with(TMP);
    let is_client = declaration.confinement.mounts == MountVisibility::Own;
    // A path of its own section is the plugin's to understand: one that names the node's /tmp keeps it.
    let named = declaration.configuration.to_string().contains("/tmp/");
    is_client && !named && !used(launch.folder) && all_shared(mountinfo)
}

/// Whether each mount tells other namespaces of its end: `shared:N` among its optional fields.
fn all_shared(mountinfo: &str) -> bool {
    let mut lines = mountinfo.lines().peekable();
    let told = |line: &str| {
        let fields = line.split_once(" - ").map_or(line, |(fields, _)| fields);
        let mut fields = fields.split(' ');
        let is_kernels = fields
            .nth(4)
            .is_some_and(|mount| KERNELS.iter().any(|top| Path::new(mount).starts_with(top)));
        is_kernels || fields.any(|field| field.starts_with("shared:"))
    };
    lines.peek().is_some() && lines.all(told)
}

/// Makes a folder for this plugin alone; empties it first where no other process of the plugin runs.
pub(super) fn make_folder(folder: &Path, alone: bool) -> io::Result<()> {
    if alone {
        files::remove_tree(folder)?;
    }
    private_folder(folder)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use confine::SystemCalls;
    use serde_json::json;

    use super::*;
    use crate::confinement::Confinement;
    use crate::declaration::{Declaration, LaunchMethod, ServiceKind};

    const ROOT: &str = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n";
    const PROC: &str = "22 27 0:21 / /proc rw,relatime - proc proc rw\n";
    const LONE: &str = "97 27 0:71 / /var/lib/volume rw,relatime - ext4 /dev/vdb rw\n";

    #[test]
    fn namespace_is_for_a_client_where_all_is_shared_and_tmp_is_not_its_own_place() {
        let start = LaunchMethod::Managed {
            command: "/a".into(),
            args: Vec::new(),
        };
        let mut declaration = Declaration::new("a", ServiceKind::Runtime, start);
        declaration.confinement = Confinement {
            mounts: MountVisibility::Own,
            system_calls: SystemCalls::Client,
            ..Confinement::default()
        };
        let may = |declaration: &Declaration, folder: &str, mountinfo: &str| {
            let launch = LaunchSpec {
                declaration,
                generation: 1,
                folder: Path::new(folder),
                others: &[],
            };
            may_be_private(&launch, mountinfo)
        };
        let shared = [ROOT, PROC].concat();
        assert!(may(&declaration, "/var/lib/plugins", &shared));
        assert!(!may(&declaration, "/tmp/plugins", &shared));
        assert!(!may(
            &declaration,
            "/var/lib/plugins",
            &[ROOT, LONE].concat()
        ));
        assert!(!may(&declaration, "/var/lib/plugins", ""));
        declaration.configuration = json!({ "endpoint": "unix:///tmp/c.sock" });
        assert!(!may(&declaration, "/var/lib/plugins", &shared));
        declaration.configuration = json!({});
        declaration.confinement.mounts = MountVisibility::Machine;
        assert!(!may(&declaration, "/var/lib/plugins", &shared));
    }

    #[test]
    fn folder_is_the_plugins_alone_and_emptied_only_when_no_other_process_uses_it() {
        use std::os::unix::fs::PermissionsExt;
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("a.tmp");
        make_folder(&folder, true).unwrap();
        let mode = fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(folder.join("file"), "").unwrap();
        make_folder(&folder, false).unwrap();
        assert!(folder.join("file").exists());
        make_folder(&folder, true).unwrap();
        assert!(!folder.join("file").exists());
    }
}
