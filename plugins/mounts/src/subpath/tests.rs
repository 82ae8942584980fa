//! Upstream's tables (pkg/volume/util/subpath/subpath_linux_test.go), and races for the way out.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proto::storage::ReleaseSubpathsRequest;
use tonic::Code;

use super::*;
use crate::table::MountTable;
use crate::test_dir::{TestDir, exchange, layers};

const TARGETS: &str = "pods/uid-1/volume-subpaths";

fn request(test_dir: &TestDir, subpath: &str) -> BindSubpathRequest {
    BindSubpathRequest {
        pod_uid: "uid-1".to_owned(),
        volume_name: "data".to_owned(),
        root: test_dir.path("volume").display().to_string(),
        subpath: subpath.to_owned(),
        container: "main".to_owned(),
        index: 0,
        target: target_of(test_dir).display().to_string(),
        ..BindSubpathRequest::default()
    }
}

fn target_of(test_dir: &TestDir) -> PathBuf {
    test_dir.root().join(TARGETS).join("data/main/0")
}

fn release_all(test_dir: &TestDir, container: &str) -> Result<(), Status> {
    release(&ReleaseSubpathsRequest {
        pod_uid: "uid-1".to_owned(),
        container: container.to_owned(),
        folder: test_dir.root().join(TARGETS).display().to_string(),
        within_ms: 0,
    })
}

fn id(path: &Path) -> (u64, u64) {
    let found = fs::metadata(path).unwrap();
    (found.dev(), found.ino())
}

fn mounts(test_dir: &TestDir) -> usize {
    let table = MountTable::read().unwrap();
    let below = table.below(&test_dir.root().join("pods"));
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
        let test_dir = TestDir::new();
        test_dir.folder("volume/dir/deeper");
        test_dir.file("volume/file", "content");
        let volume = test_dir.path("volume");
        symlink("dir", volume.join("link")).unwrap();
        symlink("dir/../file", volume.join("file-link")).unwrap();
        symlink("..", volume.join("dir/up")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, volume.join("pipe"), Mode::RUSR).unwrap();
        drop(std::os::unix::net::UnixListener::bind(volume.join("socket")).unwrap());
        if aim.is_empty() {
            bind(&request(&test_dir, subpath)).unwrap_err();
            continue;
        }
        let target = bind(&request(&test_dir, subpath)).unwrap();
        assert_eq!(target, target_of(&test_dir));
        assert_eq!(id(&target), id(&volume.join(aim)), "{subpath}");
        assert_eq!(layers(&target), 1);
        release_all(&test_dir, "").unwrap();
        assert_eq!(mounts(&test_dir), 0);
        assert!(!test_dir.root().join(TARGETS).exists());
        assert!(volume.join(aim).exists());
    }
}

/// Upstream resolves all links of a sub-path before it opens what they end at: a release of a host's folder, say.
#[test]
fn an_absolute_link_is_followed_where_it_ends_within_the_volume() {
    for (subpath, aim) in [
        ("current", "releases/5"),
        ("current/file", "releases/5/file"),
        ("chain", "releases/5"),
        ("through-a-link", "releases/5"),
        ("itself", "."),
    ] {
        let test_dir = TestDir::new();
        test_dir.file("volume/releases/5/file", "content");
        let volume = test_dir.path("volume");
        symlink(&volume, test_dir.path("other-name")).unwrap();
        for (aim, link) in [
            (volume.join("releases/5"), "current"),
            (volume.join("current"), "chain"),
            (test_dir.path("other-name/releases/5"), "through-a-link"),
            (volume.clone(), "itself"),
        ] {
            symlink(aim, volume.join(link)).unwrap();
        }
        let target = bind(&request(&test_dir, subpath)).unwrap();
        assert_eq!(id(&target), id(&volume.join(aim)), "{subpath}");
        release_all(&test_dir, "").unwrap();
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
        ("in-and-out", Code::InvalidArgument),
        ("beside", Code::InvalidArgument),
        ("out/new", Code::InvalidArgument),
        ("../outside", Code::InvalidArgument),
        ("/etc", Code::InvalidArgument),
        ("ring", Code::FailedPrecondition),
        ("file/below", Code::FailedPrecondition),
        ("dangling", Code::FailedPrecondition),
    ] {
        let test_dir = TestDir::new();
        test_dir.folder("volume/dir");
        test_dir.file("volume/file", "");
        test_dir.file("outside/file", "");
        test_dir.folder("volume-2");
        let volume = test_dir.path("volume");
        let in_and_out = volume.join("dir/out");
        let beside = test_dir.path("volume-2");
        for (aim, link) in [
            ("../outside", "out"),
            ("../../outside", "dir/out"),
            (in_and_out.to_str().unwrap(), "in-and-out"),
            (beside.to_str().unwrap(), "beside"),
            ("/etc", "absolute"),
            ("ring", "ring"),
            ("nowhere", "dangling"),
        ] {
            symlink(aim, volume.join(link)).unwrap();
        }
        let refusal = bind(&request(&test_dir, subpath)).unwrap_err();
        assert_eq!(refusal.code(), code, "{subpath}: {refusal}");
        assert_eq!(mounts(&test_dir), 0, "{subpath}");
        assert!(!test_dir.root().join(TARGETS).exists(), "{subpath}");
        assert_eq!(fs::read_dir(test_dir.path("outside")).unwrap().count(), 1);
    }
}

/// Upstream's TestSafeMakeDir.
#[test]
fn missing_folders_get_the_permissions_of_the_volume_s_root() {
    for mode in [0o755, 0o2775, 0o1777, 0o700] {
        let test_dir = TestDir::new();
        let volume = test_dir.folder("volume");
        fs::set_permissions(&volume, fs::Permissions::from_mode(mode)).unwrap();
        let target = bind(&request(&test_dir, "a/b")).unwrap();
        for made in ["a", "a/b"] {
            let found = fs::metadata(volume.join(made)).unwrap();
            assert_eq!(found.permissions().mode() & 0o7777, mode, "{made}");
        }
        assert_eq!(id(&target), id(&volume.join("a/b")));
    }
}

#[test]
fn a_folder_missing_in_a_read_only_volume_is_told() {
    let test_dir = TestDir::new();
    let volume = test_dir.folder("volume");
    let mut request = request(&test_dir, "new");
    request.set_access(Access::ReadOnly);
    let refusal = bind(&request).unwrap_err();
    let words = format!("mkdir {}/new: read-only file system", volume.display());
    assert_eq!(refusal.message(), words);
    assert!(!volume.join("new").exists());
    test_dir.folder("volume/new");
    bind(&request).unwrap();
}

/// Upstream's TestSubpath_PrepareSafeSubpath, TestBindSubPath "mount already".
#[test]
fn bound_to_the_same_it_is_left_alone() {
    let test_dir = TestDir::new();
    test_dir.folder("volume/dir");
    let target = bind(&request(&test_dir, "dir")).unwrap();
    let before = MountTable::read().unwrap().at(&target).unwrap().id;
    for _ in 0..3 {
        bind(&request(&test_dir, "dir")).unwrap();
        assert_eq!(layers(&target), 1);
    }
    assert_eq!(MountTable::read().unwrap().at(&target).unwrap().id, before);
}

#[test]
fn bound_to_something_else_it_is_replaced() {
    let test_dir = TestDir::new();
    let (one, other) = (
        test_dir.folder("volume/one"),
        test_dir.folder("volume/other"),
    );
    let file = test_dir.file("volume/file", "");
    for (subpath, aim) in [
        ("one", &one),
        ("other", &other),
        ("file", &file),
        ("one", &one),
    ] {
        let target = bind(&request(&test_dir, subpath)).unwrap();
        assert_eq!((id(&target), layers(&target)), (id(aim), 1), "{subpath}");
    }
    // Another folder under the same name.
    fs::rename(&one, test_dir.path("volume/before")).unwrap();
    let fresh = test_dir.folder("volume/one");
    let target = bind(&request(&test_dir, "one")).unwrap();
    assert_eq!((id(&target), layers(&target)), (id(&fresh), 1));
}

#[test]
fn a_place_that_holds_something_is_never_covered_up() {
    let test_dir = TestDir::new();
    test_dir.folder("volume/dir");
    test_dir.file("volume/file", "");
    let target = target_of(&test_dir);
    test_dir.file(&format!("{TARGETS}/data/main/0"), "content");
    let refusal = bind(&request(&test_dir, "dir")).unwrap_err();
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert_eq!(fs::read(&target).unwrap(), b"content");
}

#[test]
fn a_target_of_another_form_is_refused() {
    let test_dir = TestDir::new();
    test_dir.folder("volume/dir");
    let good = request(&test_dir, "dir");
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
    assert_eq!(mounts(&test_dir), 0);
    bind(&good).unwrap();
}

#[test]
fn a_volume_that_is_gone_is_told() {
    let test_dir = TestDir::new();
    let refusal = bind(&request(&test_dir, "dir")).unwrap_err();
    assert_eq!(refusal.code(), Code::NotFound);
    assert!(!test_dir.root().join(TARGETS).exists());
}

/// Upstream's TestCleanSubPaths.
#[test]
fn releasing_takes_a_container_s_bindings_or_all_of_them() {
    let test_dir = TestDir::new();
    test_dir.folder("volume/dir");
    test_dir.file("volume/file", "kept");
    let mut targets = Vec::new();
    for (container, index, subpath) in [("main", 0, "dir"), ("main", 10, "file"), ("side", 1, "")] {
        for volume in ["data", "more"] {
            let mut request = request(&test_dir, subpath);
            let name = format!("{volume}/{container}/{index}");
            let target = test_dir.root().join(TARGETS).join(name);
            (request.container, request.index) = (container.to_owned(), index);
            request.target = target.display().to_string();
            targets.push(bind(&request).unwrap());
        }
    }
    assert_eq!(mounts(&test_dir), 6);
    for _ in 0..2 {
        release_all(&test_dir, "main").unwrap();
        assert_eq!(mounts(&test_dir), 2);
    }
    assert!(!targets[0].exists() && targets[5].exists());
    for _ in 0..2 {
        release_all(&test_dir, "").unwrap();
        assert_eq!(mounts(&test_dir), 0);
        assert!(!test_dir.root().join(TARGETS).exists());
    }
    assert!(test_dir.path("pods/uid-1").exists());
    assert_eq!(fs::read(test_dir.path("volume/file")).unwrap(), b"kept");
}

#[test]
fn stacked_bindings_and_left_over_places_are_released_too() {
    let test_dir = TestDir::new();
    let source = test_dir.folder("volume/dir");
    let target = bind(&request(&test_dir, "dir")).unwrap();
    rustix::mount::mount_bind(&source, &target).unwrap();
    test_dir.file(&format!("{TARGETS}/data/main/7"), "");
    test_dir.folder(&format!("{TARGETS}/data/main/8"));
    assert_eq!(layers(&target), 2);
    release_all(&test_dir, "").unwrap();
    assert!(!test_dir.root().join(TARGETS).exists());
}

#[test]
fn one_binding_that_refuses_does_not_keep_the_others() {
    let test_dir = TestDir::new();
    test_dir.file("volume/dir/file", "");
    let mut targets = Vec::new();
    for index in 0..3 {
        let mut request = request(&test_dir, "dir");
        request.index = index;
        let target = test_dir
            .root()
            .join(TARGETS)
            .join(format!("data/main/{index}"));
        request.target = target.display().to_string();
        targets.push(bind(&request).unwrap());
    }
    let held = fs::File::open(targets[1].join("file")).unwrap();
    let refusal = release_all(&test_dir, "").unwrap_err();
    let words = format!(
        "error cleaning subpath mount {}: unmount failed",
        targets[1].display()
    );
    assert!(refusal.message().starts_with(&words), "{refusal}");
    assert_eq!(mounts(&test_dir), 1);
    drop(held);
    release_all(&test_dir, "").unwrap();
    assert_eq!(mounts(&test_dir), 0);
}

#[test]
fn a_release_elsewhere_is_refused() {
    let test_dir = TestDir::new();
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
        release_all(&test_dir, "..").unwrap_err().code(),
        Code::InvalidArgument
    );
    release_all(&test_dir, "").unwrap();
}

#[test]
fn whoever_exchanges_folders_and_links_meanwhile_is_never_given_the_outside() {
    let test_dir = TestDir::new();
    let inside = id(&test_dir.folder("volume/d/in"));
    test_dir.folder("outside/in");
    let volume = test_dir.path("volume");
    symlink("../outside", volume.join("link")).unwrap();
    race(&test_dir, inside, "d/in");
}

/// The path that an absolute link names is exchanged for one that leads out, after it was resolved.
#[test]
fn whoever_exchanges_what_an_absolute_link_names_is_never_given_the_outside() {
    let test_dir = TestDir::new();
    let inside = id(&test_dir.folder("volume/d/in"));
    test_dir.folder("outside/in");
    let volume = test_dir.path("volume");
    symlink("../outside", volume.join("link")).unwrap();
    symlink(volume.join("d/in"), volume.join("absolute")).unwrap();
    race(&test_dir, inside, "absolute");
}

/// Binds a sub-path again and again while `d` and `link` change places in the volume.
fn race(test_dir: &TestDir, inside: (u64, u64), subpath: &str) {
    let volume = test_dir.path("volume");
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
        match bind(&request(test_dir, subpath)) {
            Ok(target) => {
                assert_eq!(id(&target), inside);
                bound += 1;
                release_all(test_dir, "").unwrap();
            }
            Err(_) => refused += 1,
        }
    }
    over.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    assert!(bound > 0 && refused > 0, "{bound} bound, {refused} refused");
    assert_eq!(mounts(test_dir), 0);
    assert_eq!(fs::read_dir(test_dir.path("outside")).unwrap().count(), 1);
}
