//! From the first version of the packages to the next and away, on a root that systemd runs: what their scripts ask of
//! systemd, which of their files are left, and what becomes of the settings that the operator has changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::bare_root::{BareRoot, said, words};
use super::package::{WORKSPACE, files, packed_from, small_programs};

const RELOAD: &str = "systemctl daemon-reload";
const TMPFILES: &str = "systemd-tmpfiles --create oxlet.conf";
const RESTART: &str = "systemctl try-restart --no-block oxlet.service";
const DISABLE: &str = "systemctl disable --now oxlet.service";
const SETTINGS: &str = "etc/oxlet/config.yaml";

/// Two versions of a package; the next one ships other settings.
struct Versions {
    _dir: TempDir,
    first: PathBuf,
    next: PathBuf,
}

fn versions(verb: &str) -> Versions {
    let dir = tempfile::tempdir().unwrap();
    let (programs, sources) = (dir.path().join("programs"), dir.path().join("sources"));
    small_programs(&programs, None);
    fs::create_dir(&sources).unwrap();
    let copied = [".ci", "config", "Cargo.toml", "LICENSE"];
    let copied = copied.map(|name| Path::new(WORKSPACE).join(name));
    said(Command::new("cp").arg("-r").args(copied).arg(&sources));
    let package = || {
        let environment = [
            ("PROGRAMS", &*programs),
            ("OUT", dir.path()),
            ("COMPRESSION", Path::new("none")),
        ];
        let done = packed_from(&sources, verb, &environment);
        assert!(done.status.success(), "{}", words(&done));
        PathBuf::from(String::from_utf8(done.stdout).unwrap().trim())
    };
    let first = package();
    let manifest = sources.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(
        &manifest,
        text.replacen("\nversion = \"", "\nversion = \"9", 1),
    )
    .unwrap();
    append(
        &sources.join("config/service/config.yaml"),
        "# of the next version\n",
    );
    let next = package();
    assert_ne!(first, next);
    Versions {
        _dir: dir,
        first,
        next,
    }
}

fn append(file: &Path, text: &str) {
    let all = fs::read_to_string(file).unwrap() + text;
    fs::write(file, all).unwrap();
}

/// All that is below the root, but for what a package manager remembers, and the file that scripts make where a device should
/// be.
fn left(root: &BareRoot) -> Vec<String> {
    let others = ["var/lib/dpkg/", "var/lib/rpm/", "dev/null"];
    let is_meant = |file: &String| !others.iter().any(|other| file.starts_with(other));
    let files = files(&root.path(""));
    files.into_iter().filter(is_meant).collect()
}

/// A step went well, though every call to systemd fails, and made these calls.
fn assert_calls(root: &BareRoot, what: &str, done: &Output, calls: &[&str]) {
    assert!(done.status.success(), "{what}: {}", words(done));
    assert_eq!(root.systemd_calls(), calls, "{what}");
}

fn assert_installed(root: &BareRoot) {
    let program = fs::canonicalize(root.path("usr/bin/oxlet")).unwrap();
    let root_folder = fs::canonicalize(root.path("")).unwrap();
    assert_eq!(program, root_folder.join("usr/lib/oxlet/oxlet"));
    for file in [
        "etc/oxlet/plugins.yaml",
        "usr/lib/oxlet/oxlet-plugins",
        "usr/lib/systemd/system/oxlet.service",
        "usr/lib/tmpfiles.d/oxlet.conf",
        "usr/share/oxlet/90-kubeadm.conf",
    ] {
        assert!(root.path(file).is_file(), "{file}");
    }
    assert!(root.path("etc/oxlet/config.d").is_dir());
}

#[test]
fn a_deb_restarts_the_service_that_runs_and_stops_it_before_it_goes() {
    let Versions { _dir, first, next } = &versions("deb");
    let root = BareRoot::new();
    root.add_failing_systemd();
    let before = left(&root);
    let install = |package: &Path| {
        let package = package.display().to_string();
        root.dpkg(&["--force-confold", "--install", &package])
    };
    assert_calls(
        &root,
        "install",
        &install(first),
        &[RELOAD, TMPFILES, RESTART],
    );
    assert_installed(&root);
    append(&root.path(SETTINGS), "# mine\n");
    // The old version's script comes first.
    let calls = [RELOAD, RELOAD, TMPFILES, RESTART];
    assert_calls(&root, "upgrade", &install(next), &calls);
    assert_calls(&root, "reinstallation", &install(next), &calls);
    let settings = fs::read_to_string(root.path(SETTINGS)).unwrap();
    assert!(settings.ends_with("# mine\n") && !settings.contains("next version"));
    let removed = root.dpkg(&["--remove", "oxlet"]);
    assert_calls(&root, "removal", &removed, &[DISABLE, RELOAD]);
    assert_eq!(fs::read_to_string(root.path(SETTINGS)).unwrap(), settings);
    let purged = root.dpkg(&["--purge", "oxlet"]);
    assert_calls(&root, "purge", &purged, &[RELOAD]);
    assert_eq!(left(&root), before);
    assert!(!root.path("etc/oxlet").exists());
}

#[test]
fn an_rpm_restarts_the_service_that_runs_and_stops_it_before_it_goes() {
    let Versions { _dir, first, next } = &versions("rpm");
    let root = BareRoot::new();
    root.add_failing_systemd();
    let before = left(&root);
    let (first, next) = (first.display().to_string(), next.display().to_string());
    let refused = words(&root.rpm(&["--install", &first]));
    for needed in ["glibc >= 2.36", "libgcc", "/bin/sh"] {
        assert!(
            refused.contains(&format!("{needed} is needed by oxlet-")),
            "{refused}"
        );
    }
    assert_eq!(left(&root), before);

    let calls = [RELOAD, TMPFILES, RESTART];
    // RPM knows nothing of what the root has from Debian's packages.
    let installed = root.rpm(&["--install", "--nodeps", &first]);
    assert_calls(&root, "install", &installed, &calls);
    assert_installed(&root);
    append(&root.path(SETTINGS), "# mine\n");
    let upgraded = root.rpm(&["--upgrade", "--nodeps", &next]);
    assert_calls(&root, "upgrade", &upgraded, &calls);
    let again = root.rpm(&["--reinstall", "--nodeps", &next]);
    assert_calls(&root, "reinstallation", &again, &calls);
    let settings = fs::read_to_string(root.path(SETTINGS)).unwrap();
    assert!(settings.ends_with("# mine\n") && !settings.contains("next version"));
    let of_next = fs::read_to_string(root.path("etc/oxlet/config.yaml.rpmnew")).unwrap();
    assert!(of_next.ends_with("# of the next version\n"));
    fs::remove_file(root.path("etc/oxlet/config.yaml.rpmnew")).unwrap();
    let removed = root.rpm(&["--erase", "oxlet"]);
    assert_calls(&root, "removal", &removed, &[DISABLE, RELOAD]);
    let saved = root.path("etc/oxlet/config.yaml.rpmsave");
    assert_eq!(fs::read_to_string(&saved).unwrap(), settings);
    fs::remove_file(saved).unwrap();
    assert_eq!(left(&root), before);
    let folders = fs::read_dir(root.path("etc/oxlet")).unwrap();
    assert_eq!(folders.count(), 0);
}
