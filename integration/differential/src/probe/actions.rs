//! What the process may do: each action tries one capability, filter or device rule, and changes nothing that lasts.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use super::report::{Report, errno, outcome};

const BUSYBOX: &str = "/bin/busybox";

/// Programs that ask the kernel for one thing.
const PROGRAMS: [(&str, &[&str]); 5] = [
    ("unshare_user", &["unshare", "-U", BUSYBOX, "true"]),
    ("unshare_mount", &["unshare", "-m", BUSYBOX, "true"]),
    ("unshare_net", &["unshare", "-n", BUSYBOX, "true"]),
    ("chroot", &["chroot", "/", BUSYBOX, "true"]),
    ("ulimit", &["sh", "-c", "ulimit -Hn; ulimit -n 64"]),
];

pub(super) fn report(report: &mut Report) {
    for (name, arguments) in PROGRAMS {
        report.put(format!("may.{name}"), run(arguments));
    }
    // In the node's network another container may have the port: only a refusal tells something.
    let bound = TcpListener::bind("127.0.0.1:81");
    let refused = bound.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    report.put("may.bind_low_port", !refused);
    let name = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let folder = ["/tmp", "/dev/shm", "/"]
        .map(|place| Path::new(place).join(format!(".probe-{}", name.trim())))
        .into_iter()
        .find(|folder| fs::create_dir(folder).is_ok());
    let Some(folder) = folder else {
        return report.put("may.write_files", "nowhere");
    };
    files(&folder, report);
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        drop(fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)));
    }
    drop(fs::remove_dir(&folder));
}

fn files(folder: &Path, report: &mut Report) {
    let file = folder.join("file");
    report.put("may.write_file", outcome(&fs::write(&file, "text")));
    report.put("may.chown", outcome(&chown(&file, Some(7), Some(7))));
    let mode = fs::Permissions::from_mode(0o4711);
    report.put("may.chmod", outcome(&fs::set_permissions(&file, mode)));
    report.put("may.mkdir", outcome(&fs::create_dir(folder.join("folder"))));
    report.put("may.symlink", outcome(&symlink("to", folder.join("link"))));
    report.put(
        "may.link",
        outcome(&fs::hard_link(&file, folder.join("hard"))),
    );
    report.put(
        "may.rename",
        outcome(&fs::rename(&file, folder.join("other"))),
    );
    let folder = folder.display();
    for (name, numbers) in [
        ("null", ["c", "1", "3"]),
        ("memory", ["c", "1", "1"]),
        ("fuse", ["c", "10", "229"]),
    ] {
        let node = format!("{folder}/{name}");
        let made = run(&[&["mknod", node.as_str()], &numbers[..]].concat());
        report.put(format!("may.mknod_{name}"), &made);
        if made == "0" {
            let opened = fs::File::options().read(true).open(&node);
            report.put(format!("may.open_{name}"), outcome(&opened));
        }
    }
}

/// Runs an applet; returns its status, and the last words of what it complains about.
fn run(arguments: &[&str]) -> String {
    let output = Command::new(BUSYBOX)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            let code = output.status.code();
            let code = code.map_or_else(|| output.status.to_string(), |code| code.to_string());
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let told = told.trim().rsplit(": ").next().unwrap_or_default();
            format!("{code} {told}").trim().to_owned()
        }
        Err(error) => errno(&error),
    }
}
