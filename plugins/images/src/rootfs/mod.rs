//! An image's layers as one file system, mounted by overlayfs.
//!
//! The kernel's option page holds 4096 bytes, too few for the paths of 40 layers. Since Linux 6.5 layers are appended
//! one by one (`lowerdir+`); before that they get names of a few bytes in a scratch folder that a thread of its own has
//! as its working folder.
//!
//! The files of a container in a user namespace belong to that namespace's users: its layers are mounted with mapped
//! ids (Linux 5.19 and later), which takes a thread with a mount namespace of its own, where each layer is covered by
//! its mapped self. What is mounted there goes with the thread, whatever becomes of this process.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use id_mapped_mounts::Depth;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, mount_change,
    move_mount, unmount,
};

use crate::disk::DiskError;
use crate::store::{Image, Inner, Store, StoreError};

/// The folders of a mount that takes writes; both are there, on one file system.
#[derive(Clone, Debug)]
pub struct Writable {
    /// Where what is written goes.
    pub upper: PathBuf,
    /// overlayfs's own, empty.
    pub work: PathBuf,
}

/// An image that is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The image is not whole in the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The kernel refused.
    #[error("cannot mount {layers} layers at {target:?}: {step}")]
    Refused {
        /// The layers of the image.
        layers: usize,
        /// Where it was to be.
        target: PathBuf,
        /// The step that failed.
        step: &'static str,
        /// The refusal.
        source: io::Error,
    },
}

/// How layers are told to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MountMethod {
    Append,
    ShortNames,
}

impl Store {
    /// Returns the lower folders of an image for overlayfs, the topmost first. They stay as long as the image is
    /// leased, and nothing may be written to them.
    pub fn rootfs(&self, image: &Image) -> Result<Vec<PathBuf>, StoreError> {
        let none = || StoreError::NoSuchImage(image.id.to_string());
        let record = self.inner().record(&image.id).ok_or_else(none)?;
        self.inner().lower_folders(&record.chains)
    }

    /// Mounts an image at the folder `target`, in the calling process's mount namespace; without `writable` it is
    /// read-only. Lease the image before. It isn't idempotent: look in the mount table before it is repeated.
    pub async fn mount_rootfs(
        &self,
        image: &Image,
        target: &Path,
        writable: Option<Writable>,
    ) -> Result<(), MountError> {
        self.mount_for(image, target, writable, None).await
    }

    /// Mounts an image as [`Store::mount_rootfs`] does, with its files' owners mapped as `user_namespace` maps them. The
    /// folders of `writable` aren't mapped: they belong to whom they shall belong to.
    pub async fn mount_mapped_rootfs(
        &self,
        image: &Image,
        target: &Path,
        writable: Option<Writable>,
        user_namespace: OwnedFd,
    ) -> Result<(), MountError> {
        let mapped = Some(user_namespace);
        self.mount_for(image, target, writable, mapped).await
    }

    async fn mount_for(
        &self,
        image: &Image,
        target: &Path,
        writable: Option<Writable>,
        user_namespace: Option<OwnedFd>,
    ) -> Result<(), MountError> {
        let mut layers = self.rootfs(image)?;
        if layers.len() == 1 && writable.is_none() {
            layers.push(self.inner().folders.empty());
        }
        let target = target.to_owned();
        let mounted = self.work(move |inner| {
            let mounting = Mounting {
                layers: &layers,
                target: &target,
                writable: writable.as_ref(),
            };
            Ok(match &user_namespace {
                None => mounting.mount(inner),
                Some(namespace) => mounting.mount_mapped(namespace, inner),
            })
        });
        mounted.await?
    }

    /// Unmounts what is mounted at `target`, now or when its last file is closed; nothing mounted is right.
    pub async fn unmount_rootfs(&self, target: &Path) -> Result<(), StoreError> {
        let target = target.to_owned();
        self.work(move |_| {
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            match unmount(&target, flags) {
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
                Err(error) => Err(DiskError::new("unmount", &target, error).into()),
            }
        })
        .await
    }
}

impl Inner {
    /// Returns the folders of the layers, the topmost first, down to one that hides those below it.
    pub(crate) fn lower_folders(
        &self,
        chains: &[crate::digest::Digest],
    ) -> Result<Vec<PathBuf>, StoreError> {
        let mut folders = Vec::with_capacity(chains.len());
        for chain in chains.iter().rev() {
            let layer = self.layer(chain);
            let layer = layer.ok_or_else(|| StoreError::NoSuchImage(format!("layer {chain}")))?;
            folders.push(self.folders.files(chain));
            if layer.opaque {
                break;
            }
        }
        Ok(folders)
    }
}

struct Mounting<'a> {
    layers: &'a [PathBuf],
    target: &'a Path,
    writable: Option<&'a Writable>,
}

impl Mounting<'_> {
    fn mount(&self, inner: &Inner) -> Result<(), MountError> {
        match self.mount_by(MountMethod::Append, inner) {
            // A kernel without lowerdir+ calls it an invalid option, before 6.5 only when all options are there.
            Err(MountError::Refused {
                step: APPENDING | CREATING,
                source,
                ..
            }) if source.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.mount_by(MountMethod::ShortNames, inner)
            }
            result => result,
        }
    }

    /// Mounts in a mount namespace of its own, in which the layers are mapped, and takes the mount from there.
    fn mount_mapped(&self, user_namespace: &OwnedFd, inner: &Inner) -> Result<(), MountError> {
        let made = std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                self.map_layers(user_namespace)
                    .map_err(|error| self.refused("map the layers' ids", error))?;
                self.mount(inner)?;
                id_mapped_mounts::copy(self.target, Depth::Single)
                    .map_err(|error| self.refused("take the mount", error))
            });
            there.join().unwrap_or_else(|_| {
                let why = io::Error::other("the thread panicked");
                Err(self.refused("map the layers' ids", why))
            })
        });
        id_mapped_mounts::place(made?, self.target)
            .map_err(|error| self.refused("place the mount", error))
    }

    /// Covers every layer by its mapped self, for the calling thread alone.
    fn map_layers(&self, user_namespace: &OwnedFd) -> io::Result<()> {
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private)?;
        for layer in self.layers {
            let mapped = id_mapped_mounts::copy(layer, Depth::Single)?;
            id_mapped_mounts::map_ids(&mapped, user_namespace)?;
            id_mapped_mounts::place(&mapped, layer)?;
        }
        Ok(())
    }

    fn mount_by(&self, method: MountMethod, inner: &Inner) -> Result<(), MountError> {
        match method {
            MountMethod::Append => self.append(),
            MountMethod::ShortNames => {
                let names = inner.folders.fresh(&inner.folders.scratch());
                let mounted = self.short_names(&names);
                drop(files::remove_tree(&names));
                mounted
            }
        }
    }

    fn append(&self) -> Result<(), MountError> {
        let failed = |step| move |error: Errno| self.refused(step, error.into());
        let overlay =
            fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed("open overlay"))?;
        for layer in self.layers {
            fsconfig_set_string(&overlay, "lowerdir+", layer).map_err(failed(APPENDING))?;
        }
        if let Some(writable) = self.writable {
            fsconfig_set_string(&overlay, "upperdir", &writable.upper)
                .map_err(failed("set the upper folder"))?;
            fsconfig_set_string(&overlay, "workdir", &writable.work)
                .map_err(failed("set the work folder"))?;
        }
        for (key, value) in OPTIONS {
            fsconfig_set_string(&overlay, *key, *value).map_err(failed("set an option"))?;
        }
        fsconfig_create(&overlay).map_err(failed(CREATING))?;
        let attributes = match self.writable {
            Some(_) => MountAttrFlags::empty(),
            None => MountAttrFlags::MOUNT_ATTR_RDONLY,
        };
        let mounted = fsmount(&overlay, FsMountFlags::FSMOUNT_CLOEXEC, attributes);
        let mounted = mounted.map_err(failed("make the mount"))?;
        move_mount(
            mounted,
            "",
            CWD,
            self.target,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
        .map_err(failed("place the mount"))
    }

    /// Mounts with the layers as links `0`, `1` ... in the folder `names`.
    fn short_names(&self, names: &Path) -> Result<(), MountError> {
        let failed = |step| move |error: io::Error| self.refused(step, error);
        fs::create_dir(names).map_err(failed("make short names"))?;
        let mut lower = String::new();
        for (number, layer) in self.layers.iter().enumerate() {
            symlink(layer, names.join(number.to_string())).map_err(failed("make short names"))?;
            if number > 0 {
                lower.push(':');
            }
            lower.push_str(&number.to_string());
        }
        let mut options = format!("lowerdir={lower}");
        if let Some(writable) = self.writable {
            symlink(&writable.upper, names.join("u")).map_err(failed("make short names"))?;
            symlink(&writable.work, names.join("w")).map_err(failed("make short names"))?;
            options.push_str(",upperdir=u,workdir=w");
        }
        for (key, value) in OPTIONS {
            options.push_str(&format!(",{key}={value}"));
        }
        let flags = match self.writable {
            Some(_) => MountFlags::empty(),
            None => MountFlags::RDONLY,
        };
        let options = std::ffi::CString::new(options).expect("names of numbers have no NUL");
        // The working folder is the process's: this thread gets one of its own, and ends with it.
        let mounted = std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                unshare(CloneFlags::CLONE_FS)?;
                std::env::set_current_dir(names)?;
                let mounted = mount("overlay", self.target, "overlay", flags, options.as_c_str());
                mounted.map_err(io::Error::from)
            });
            there
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
        });
        mounted.map_err(failed("mount by short names"))
    }

    fn refused(&self, step: &'static str, source: io::Error) -> MountError {
        MountError::Refused {
            layers: self.layers.len(),
            target: self.target.to_owned(),
            step,
            source,
        }
    }
}

/// The steps that an older kernel may refuse.
const APPENDING: &str = "append a layer";
const CREATING: &str = "create the file system";

/// No option of the kernel's own configuration has a say: layers are shared by containers, which index would refuse,
/// and metadata in an image's files is never overlayfs's.
const OPTIONS: &[(&str, &str)] = &[("index", "off"), ("metacopy", "off")];

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
