//! Laws of paths within a volume: a writer of the volume cannot make the plugin leave it.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use futures_util::FutureExt;
use proto::storage::{Access, BindSubpathRequest, Mode, ReadFileRequest, ReleaseSubpathsRequest};
use tonic::{Code, Response, Status};

use super::super::{CheckResult, CheckStop, holds, refused, same};
use super::case::{Mounted, StorageCase, each, exists, text};
use super::table::layers;
use super::{Sample, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    ("one file of a volume is read", |case| {
        each(case, Mode::FileSystem, |case, it| read(case, it).boxed()).boxed()
    }),
    ("file is never read from outside its volume", |case| {
        each(case, Mode::FileSystem, |case, it| {
            read_outside(case, it).boxed()
        })
        .boxed()
    }),
    ("path in a volume is bound once, as what it is", |case| {
        each(case, Mode::FileSystem, |case, it| bound(case, it).boxed()).boxed()
    }),
    (
        "folder that is missing is made, but not in a read-only volume",
        |case| each(case, Mode::FileSystem, |case, it| made(case, it).boxed()).boxed(),
    ),
    ("path that leads out of a volume is not bound", |case| {
        each(case, Mode::FileSystem, |case, it| {
            bound_outside(case, it).boxed()
        })
        .boxed()
    }),
    (
        "binding is made nowhere but in the pod's own folder",
        |case| {
            each(case, Mode::FileSystem, |case, it| {
                bound_elsewhere(case, it).boxed()
            })
            .boxed()
        },
    ),
    ("bindings are released, and may be released again", |case| {
        each(case, Mode::FileSystem, |case, it| {
            released(case, it).boxed()
        })
        .boxed()
    }),
];

const CONTENT: &[u8] = b"content";

/// A volume with some files of the law's own in it, which are removed at the end.
struct Scene {
    mounted: Mounted,
    /// In the volume's root.
    folder: PathBuf,
    /// Relative.
    name: String,
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A volume of the node outlives the check.
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl Scene {
    async fn set(case: &mut StorageCase, sample: &Sample) -> Result<Self, CheckStop> {
        let mounted = case.mounted(sample).await?;
        let name = mounted.asked.name();
        let folder = mounted.path.join(&name);
        let scene = Self {
            mounted,
            folder,
            name,
        };
        scene
            .write()
            .map_err(|_| CheckStop::Skipped("no sample can be written to"))?;
        Ok(scene)
    }

    fn write(&self) -> io::Result<()> {
        fs::create_dir_all(self.folder.join("folder"))?;
        fs::write(self.folder.join("file"), CONTENT)?;
        symlink("folder", self.folder.join("inner"))?;
        symlink("../../../../../../../../../../etc", self.folder.join("up"))?;
        symlink("/etc", self.folder.join("absolute"))?;
        symlink("/proc/self/root", self.folder.join("magic"))?;
        symlink("loop", self.folder.join("loop"))
    }

    fn read(&self, path: &str) -> ReadFileRequest {
        ReadFileRequest {
            volume_id: self.mounted.asked.id(),
            kind: self.mounted.asked.kind(),
            root: text(&self.mounted.path),
            path: path.to_owned(),
            max_bytes: 1024,
            within_ms: 0,
        }
    }

    fn read_own(&self, path: &str) -> ReadFileRequest {
        self.read(&format!("{}/{path}", self.name))
    }

    fn subpaths(&self) -> PathBuf {
        self.mounted.asked.names.folder().join("volume-subpaths")
    }

    fn bind(&self, path: &str, index: u32) -> BindSubpathRequest {
        let asked = &self.mounted.asked;
        let target = self.subpaths().join(asked.name()).join("main");
        BindSubpathRequest {
            volume_id: asked.id(),
            kind: asked.kind(),
            pod_uid: asked.names.pod.clone(),
            volume_name: asked.name(),
            root: text(&self.mounted.path),
            subpath: path.to_owned(),
            container: "main".to_owned(),
            index,
            target: text(&target.join(index.to_string())),
            within_ms: 0,
            access: Access::ReadWrite.into(),
        }
    }

    fn bind_own(&self, path: &str, index: u32) -> BindSubpathRequest {
        self.bind(&format!("{}/{path}", self.name), index)
    }

    fn release(&self, container: &str) -> ReleaseSubpathsRequest {
        ReleaseSubpathsRequest {
            pod_uid: self.mounted.asked.names.pod.clone(),
            container: container.to_owned(),
            folder: text(&self.subpaths()),
            within_ms: 0,
        }
    }
}

const OUTSIDE: &[&str] = &["up/hostname", "absolute/hostname", "magic/etc/hostname"];
const UPWARDS: &[&str] = &["../etc/hostname", "a/../../x", "..", "/etc/hostname"];

fn invalid<T>(what: &str, answer: Result<Response<T>, Status>) -> CheckResult {
    let status = refused(what, answer)?;
    same(
        &format!("code for {what}"),
        status.code(),
        Code::InvalidArgument,
    )
}

async fn read(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let scene = Scene::set(case, sample).await?;
    fs::write(scene.folder.join("folder/deep"), b"deep")?;
    for (path, data) in [
        ("file", CONTENT),
        ("inner/deep", b"deep"),
        ("folder/deep", b"deep"),
    ] {
        let answer = case.storage.read_file(scene.read_own(path)).await?;
        same(path, answer.into_inner().data.as_slice(), data)?;
    }
    let status = refused(
        "a missing file",
        case.storage.read_file(scene.read_own("no")).await,
    )?;
    same("code", status.code(), Code::NotFound)?;
    refused(
        "a folder",
        case.storage.read_file(scene.read_own("folder")).await,
    )?;
    let mut short = scene.read_own("file");
    short.max_bytes = 3;
    refused(
        "a file larger than max_bytes",
        case.storage.read_file(short).await,
    )?;
    Ok(())
}

async fn read_outside(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let scene = Scene::set(case, sample).await?;
    for path in OUTSIDE.iter().chain(&["loop"]) {
        refused(path, case.storage.read_file(scene.read_own(path)).await)?;
    }
    for path in UPWARDS {
        invalid(path, case.storage.read_file(scene.read(path)).await)?;
    }
    Ok(())
}

fn id(path: &Path) -> Result<(u64, u64), CheckStop> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

async fn bound(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let scene = Scene::set(case, sample).await?;
    for (index, path) in (0..).zip(["folder", "file", "inner", ""]) {
        for _ in 0..3 {
            let request = scene.bind_own(path, index);
            let target = PathBuf::from(&request.target);
            let answer = case.storage.bind_subpath(request).await?.into_inner();
            same("path", answer.path, text(&target))?;
            same("what is bound", id(&target)?, id(&scene.folder.join(path))?)?;
            same("number of mounts there", layers(&target)?, 1)?;
        }
    }
    // Something else at the same place.
    case.storage
        .bind_subpath(scene.bind_own("folder", 1))
        .await?;
    let target = PathBuf::from(scene.bind("", 1).target);
    same(
        "what is bound then",
        id(&target)?,
        id(&scene.folder.join("folder"))?,
    )?;
    same("number of mounts there then", layers(&target)?, 1)
}

async fn made(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let scene = Scene::set(case, sample).await?;
    let mut read_only = scene.bind_own("new/deeper", 0);
    read_only.set_access(Access::ReadOnly);
    refused(
        "a missing folder",
        case.storage.bind_subpath(read_only).await,
    )?;
    holds(!exists(&scene.folder.join("new")), || {
        "it was made".to_owned()
    })?;
    case.storage
        .bind_subpath(scene.bind_own("new/deeper", 0))
        .await?;
    let made = fs::metadata(scene.folder.join("new/deeper"))?;
    let root = fs::metadata(&scene.mounted.path)?;
    let modes = [made.mode(), root.mode()].map(|mode| format!("{:o}", mode & 0o777));
    same("mode of the folder", &modes[0], &modes[1])
}

async fn bound_outside(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let scene = Scene::set(case, sample).await?;
    let target = PathBuf::from(scene.bind("", 0).target);
    for path in ["up", "absolute", "magic", "up/new", "loop"] {
        refused(
            path,
            case.storage.bind_subpath(scene.bind_own(path, 0)).await,
        )?;
        same(path, layers(&target)?, 0)?;
    }
    for path in UPWARDS {
        invalid(path, case.storage.bind_subpath(scene.bind(path, 0)).await)?;
        same(path, layers(&target)?, 0)?;
    }
    holds(!exists(Path::new("/etc/new")), || {
        "/etc/new was made".to_owned()
    })
}

async fn bound_elsewhere(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let scene = Scene::set(case, sample).await?;
    let root = text(&case.target.root);
    let other = format!("{root}-other-{}", case.name);
    let pod = &scene.mounted.asked.names.pod;
    let folder = format!("pods/{pod}/volume-subpaths");
    for folder in [
        format!("{other}/{folder}"),
        format!("{root}/../{}/{folder}", case.name),
        folder,
        root.clone(),
        String::new(),
    ] {
        let mut request = scene.bind_own("folder", 0);
        request.target = match folder.as_str() {
            "" => String::new(),
            folder => format!("{folder}/{}/main/0", scene.name),
        };
        let what = format!("the target {:?}", request.target);
        let bound = invalid(&what, case.storage.bind_subpath(request).await);
        let mut release = scene.release("");
        folder.clone_into(&mut release.folder);
        let what = format!("the folder {folder:?}");
        let released = case.storage.release_subpaths(release).await;
        // What was bound nevertheless is released by the same mistake.
        bound?;
        invalid(&what, released)?;
    }
    holds(!exists(Path::new(&other)), || format!("{other} was made"))
}

async fn released(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let scene = Scene::set(case, sample).await?;
    let mut other = scene.bind_own("folder", 0);
    other.container = "side".to_owned();
    other.target = other.target.replace("/main/", "/side/");
    case.storage.bind_subpath(scene.bind_own("file", 0)).await?;
    case.storage.bind_subpath(other.clone()).await?;
    let (main, side) = (scene.bind("", 0).target, other.target);
    for _ in 0..2 {
        case.storage.release_subpaths(scene.release("main")).await?;
        same("bindings of main", layers(main.as_ref())?, 0)?;
        same("bindings of the other container", layers(side.as_ref())?, 1)?;
    }
    for _ in 0..2 {
        case.storage.release_subpaths(scene.release("")).await?;
        same("bindings of the other container", layers(side.as_ref())?, 0)?;
    }
    let folder = scene.subpaths();
    holds(!exists(&folder), || format!("{folder:?} is still there"))?;
    let data = fs::read(scene.folder.join("file"))?;
    same("what was bound", data.as_slice(), CONTENT)
}
