//! Upstream's tables (pkg/volume/util/subpath/subpath_linux_test.go), and races for the way out.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proto::storage::ReleaseSubpathsRequest;
use tonic::Code;

use super::*;
use crate::ground::{Ground, exchange, layers};
use crate::table::Table;

const TARGETS: &str = "pods/uid-1/volume-subpaths";

fn request(ground: &Ground, subpath: &str) -> BindSubpathRequest {
    BindSubpathRequest {
        pod_uid: "uid-1".to_owned(),
        volume_name: "data".to_owned(),
        root: ground.path("volume").display().to_string(),
        subpath: subpath.to_owned(),
        container: "main".to_owned(),
        index: 0,
        target: target_of(ground).display().to_string(),
        ..BindSubpathRequest::default()
    }
}

fn target_of(ground: &Ground) -> PathBuf {
    ground.root().join(TARGETS).join("data/main/0")
}

fn release_all(ground: &Ground, container: &str) -> Result<(), Status> {
    release(&ReleaseSubpathsRequest {
        pod_uid: "uid-1".to_owned(),
        container: container.to_owned(),
        folder: ground.root().join(TARGETS).display().to_string(),
        within_ms: 0,
    })
}

fn id(path: &Path) -> (u64, u64) {
    let found = fs::metadata(path).unwrap();
    (found.dev(), found.ino())
}

fn mounts(ground: &Ground) -> usize {
    let table = Table::read().unwrap();
    let below = table.below(&ground.root().join("pods"));
    below.len()
}

/// Upstream's TestBindSubPath, the cases that succeed.
#[test]
fn what_is_within_the_volume_is_bound_as_what_it_is() {
    for (subpath, aim) in [
        ("dir", "dir"),
        ("dir/deeper", "dir/deeper"),
        ("file", "file"),
        ("dir/../file", ""),
        ("link", "dir"),
        ("file-link", "file"),
        ("dir/up/file", "file"),
        ("pipe", "pipe"),
        ("socket", "socket"),
        ("", "."),
        ("./dir//deeper/", "dir/deeper"),
    ] {
        let ground = Ground::new();
        ground.folder("volume/dir/deeper");
        ground.file("volume/file", "content");
        let volume = ground.path("volume");
        symlink("dir", volume.join("link")).unwrap();
        symlink("dir/../file", volume.join("file-link")).unwrap();
        symlink("..", volume.join("dir/up")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, volume.join("pipe"), Mode::RUSR).unwrap();
        drop(std::os::unix::net::UnixListener::bind(volume.join("socket")).unwrap());
        if aim.is_empty() {
            bind(&request(&ground, subpath)).unwrap_err();
            continue;
        }
        let target = bind(&request(&ground, subpath)).unwrap();
        assert_eq!(target, target_of(&ground));
        assert_eq!(id(&target), id(&volume.join(aim)), "{subpath}");
        assert_eq!(layers(&target), 1);
        release_all(&ground, "").unwrap();
        assert_eq!(mounts(&ground), 0);
        assert!(!ground.root().join(TARGETS).exists());
        assert!(volume.join(aim).exists());
    }
}

/// Upstream's TestBindSubPath, "mount-unix-socket" apart, and TestSafeOpen: the cases that fail.
#[test]
fn what_leads_out_is_not_bound_and_leaves_no_trace() {
    for (subpath, code) in [
        ("out", Code::InvalidArgument),
        ("out/file", Code::InvalidArgument),
        ("dir/out", Code::InvalidArgument),
        ("absolute", Code::InvalidArgument),
        ("out/new", Code::InvalidArgument),
        ("../outside", Code::InvalidArgument),
        ("/etc", Code::InvalidArgument),
        ("ring", Code::FailedPrecondition),
        ("file/below", Code::FailedPrecondition),
        ("dangling", Code::FailedPrecondition),
    ] {
        let ground = Ground::new();
        ground.folder("volume/dir");
        ground.file("volume/file", "");
        ground.file("outside/file", "");
        let volume = ground.path("volume");
        for (aim, link) in [
            ("../outside", "out"),
            ("../../outside", "dir/out"),
            ("/etc", "absolute"),
            ("ring", "ring"),
            ("nowhere", "dangling"),
        ] {
            symlink(aim, volume.join(link)).unwrap();
        }
        let refusal = bind(&request(&ground, subpath)).unwrap_err();
        assert_eq!(refusal.code(), code, "{subpath}: {refusal}");
        assert_eq!(mounts(&ground), 0, "{subpath}");
        assert!(!ground.root().join(TARGETS).exists(), "{subpath}");
        assert_eq!(fs::read_dir(ground.path("outside")).unwrap().count(), 1);
    }
}

/// Upstream's TestSafeMakeDir.
#[test]
fn missing_folders_get_the_permissions_of_the_volume_s_root() {
    for mode in [0o755, 0o2775, 0o1777, 0o700] {
        let ground = Ground::new();
        let volume = ground.folder("volume");
        fs::set_permissions(&volume, fs::Permissions::from_mode(mode)).unwrap();
        let target = bind(&request(&ground, "a/b")).unwrap();
        for made in ["a", "a/b"] {
            let found = fs::metadata(volume.join(made)).unwrap();
            assert_eq!(found.permissions().mode() & 0o7777, mode, "{made}");
        }
        assert_eq!(id(&target), id(&volume.join("a/b")));
    }
}

#[test]
fn a_folder_missing_in_a_read_only_volume_is_told() {
    let ground = Ground::new();
    let volume = ground.folder("volume");
    let mut request = request(&ground, "new");
    request.set_access(Access::ReadOnly);
    let refusal = bind(&request).unwrap_err();
    let words = format!("mkdir {}/new: read-only file system", volume.display());
    assert_eq!(refusal.message(), words);
    assert!(!volume.join("new").exists());
    ground.folder("volume/new");
    bind(&request).unwrap();
}

/// Upstream's TestSubpath_PrepareSafeSubpath, TestBindSubPath "mount already".
#[test]
fn bound_to_the_same_it_is_left_alone() {
    let ground = Ground::new();
    ground.folder("volume/dir");
    let target = bind(&request(&ground, "dir")).unwrap();
    let before = Table::read().unwrap().at(&target).unwrap().id;
    for _ in 0..3 {
        bind(&request(&ground, "dir")).unwrap();
        assert_eq!(layers(&target), 1);
    }
    assert_eq!(Table::read().unwrap().at(&target).unwrap().id, before);
}

#[test]
fn bound_to_something_else_it_is_replaced() {
    let ground = Ground::new();
    let (one, other) = (ground.folder("volume/one"), ground.folder("volume/other"));
    let file = ground.file("volume/file", "");
    for (subpath, aim) in [
        ("one", &one),
        ("other", &other),
        ("file", &file),
        ("one", &one),
    ] {
        let target = bind(&request(&ground, subpath)).unwrap();
        assert_eq!((id(&target), layers(&target)), (id(aim), 1), "{subpath}");
    }
    // Another folder under the same name.
    fs::rename(&one, ground.path("volume/before")).unwrap();
    let fresh = ground.folder("volume/one");
    let target = bind(&request(&ground, "one")).unwrap();
    assert_eq!((id(&target), layers(&target)), (id(&fresh), 1));
}

#[test]
fn a_place_that_holds_something_is_never_covered_up() {
    let ground = Ground::new();
    ground.folder("volume/dir");
    ground.file("volume/file", "");
    let target = target_of(&ground);
    ground.file(&format!("{TARGETS}/data/main/0"), "content");
    let refusal = bind(&request(&ground, "dir")).unwrap_err();
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert_eq!(fs::read(&target).unwrap(), b"content");
}

#[test]
fn a_target_of_another_form_is_refused() {
    let ground = Ground::new();
    ground.folder("volume/dir");
    let good = request(&ground, "dir");
    let bad = |change: fn(&mut BindSubpathRequest)| {
        let mut request = good.clone();
        change(&mut request);
        bind(&request).unwrap_err()
    };
    for refusal in [
        bad(|request| request.index = 1),
        bad(|request| request.container = "other".to_owned()),
        bad(|request| request.pod_uid = "uid-2".to_owned()),
        bad(|request| request.container = "../main".to_owned()),
        bad(|request| request.container.clear()),
        bad(|request| request.pod_uid.clear()),
        bad(|request| request.target.clear()),
        bad(|request| request.target = "/0".to_owned()),
        bad(|request| request.target.push_str("/../0")),
        bad(|request| request.root.clear()),
        bad(|request| request.root = "volume".to_owned()),
    ] {
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal}");
    }
    assert_eq!(mounts(&ground), 0);
    bind(&good).unwrap();
}

#[test]
fn a_volume_that_is_gone_is_told() {
    let ground = Ground::new();
    let refusal = bind(&request(&ground, "dir")).unwrap_err();
    assert_eq!(refusal.code(), Code::NotFound);
    assert!(!ground.root().join(TARGETS).exists());
}

/// Upstream's TestCleanSubPaths.
#[test]
fn releasing_takes_a_container_s_bindings_or_all_of_them() {
    let ground = Ground::new();
    ground.folder("volume/dir");
    ground.file("volume/file", "kept");
    let mut targets = Vec::new();
    for (container, index, subpath) in [("main", 0, "dir"), ("main", 10, "file"), ("side", 1, "")] {
        for volume in ["data", "more"] {
            let mut request = request(&ground, subpath);
            let name = format!("{volume}/{container}/{index}");
            let target = ground.root().join(TARGETS).join(name);
            (request.container, request.index) = (container.to_owned(), index);
            request.target = target.display().to_string();
            targets.push(bind(&request).unwrap());
        }
    }
    assert_eq!(mounts(&ground), 6);
    for _ in 0..2 {
        release_all(&ground, "main").unwrap();
        assert_eq!(mounts(&ground), 2);
    }
    assert!(!targets[0].exists() && targets[5].exists());
    for _ in 0..2 {
        release_all(&ground, "").unwrap();
        assert_eq!(mounts(&ground), 0);
        assert!(!ground.root().join(TARGETS).exists());
    }
    assert!(ground.path("pods/uid-1").exists());
    assert_eq!(fs::read(ground.path("volume/file")).unwrap(), b"kept");
}

#[test]
fn stacked_bindings_and_left_over_places_are_released_too() {
    let ground = Ground::new();
    let source = ground.folder("volume/dir");
    let target = bind(&request(&ground, "dir")).unwrap();
    rustix::mount::mount_bind(&source, &target).unwrap();
    ground.file(&format!("{TARGETS}/data/main/7"), "");
    ground.folder(&format!("{TARGETS}/data/main/8"));
    assert_eq!(layers(&target), 2);
    release_all(&ground, "").unwrap();
    assert!(!ground.root().join(TARGETS).exists());
}

#[test]
fn one_binding_that_refuses_does_not_keep_the_others() {
    let ground = Ground::new();
    ground.file("volume/dir/file", "");
    let mut targets = Vec::new();
    for index in 0..3 {
        let mut request = request(&ground, "dir");
        request.index = index;
        let target = ground
            .root()
            .join(TARGETS)
            .join(format!("data/main/{index}"));
        request.target = target.display().to_string();
        targets.push(bind(&request).unwrap());
    }
    let held = fs::File::open(targets[1].join("file")).unwrap();
    let refusal = release_all(&ground, "").unwrap_err();
    let words = format!(
        "error cleaning subpath mount {}: unmount failed",
        targets[1].display()
    );
    assert!(refusal.message().starts_with(&words), "{refusal}");
    assert_eq!(mounts(&ground), 1);
    drop(held);
    release_all(&ground, "").unwrap();
    assert_eq!(mounts(&ground), 0);
}

#[test]
fn a_release_elsewhere_is_refused() {
    let ground = Ground::new();
    for folder in [
        "/",
        "/etc",
        "volume-subpaths",
        "/pods/uid-2/volume-subpaths",
        "",
    ] {
        let request = ReleaseSubpathsRequest {
            pod_uid: "uid-1".to_owned(),
            folder: folder.to_owned(),
            ..ReleaseSubpathsRequest::default()
        };
        assert_eq!(release(&request).unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(
        release_all(&ground, "..").unwrap_err().code(),
        Code::InvalidArgument
    );
    release_all(&ground, "").unwrap();
}

#[test]
fn whoever_exchanges_folders_and_links_meanwhile_is_never_given_the_outside() {
    let ground = Ground::new();
    let inside = id(&ground.folder("volume/d/in"));
    ground.folder("outside/in");
    let volume = ground.path("volume");
    symlink("../outside", volume.join("link")).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let swapping = thread::spawn({
        let over = over.clone();
        move || {
            while !over.load(Ordering::Relaxed) {
                exchange(&volume.join("d"), &volume.join("link"));
            }
        }
    });
    let (mut bound, mut refused) = (0, 0);
    for _ in 0..3_000 {
        match bind(&request(&ground, "d/in")) {
            Ok(target) => {
                assert_eq!(id(&target), inside);
                bound += 1;
                release_all(&ground, "").unwrap();
            }
            Err(_) => refused += 1,
        }
    }
    over.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    assert!(bound > 0 && refused > 0, "{bound} bound, {refused} refused");
    assert_eq!(mounts(&ground), 0);
    assert_eq!(fs::read_dir(ground.path("outside")).unwrap().count(), 1);
}
