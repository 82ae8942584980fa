//! What the node does with the image store: the root of a container, images that it mounts, pulls and removals.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use images::{
    Auth, Image, Platform, Progress, ProxyEnvironment, Pull, Reference, StoreError, Writable,
};
use proto::cri::{AuthConfig, Mount};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use tokio::time::Instant;

use crate::container::staging::Stage;
use crate::error::CallError;
use crate::layout::private_dir;
use crate::node::Node;
use crate::sandbox::namespaces::unmount_all;
use crate::spec::{HostPropagation, ImageSettings, MountSource, UserNamespacePath};

/// The longest pull. The caller's own deadline ends its wait, not the pull: the next call finds what has come.
const PULL_TIMEOUT: Duration = Duration::from_secs(3600);
/// Images that one container mounts.
const MAX_IMAGE_MOUNTS: usize = 64;

/// What a container is made of.
#[derive(Clone, Debug)]
pub(crate) struct ContainerImage {
    pub(crate) id: String,
    /// A digest reference, where the image has one; else its id.
    pub(crate) reference: String,
    pub(crate) user: String,
    pub(crate) stop_signal: String,
    pub(crate) settings: ImageSettings,
    /// The paths of its volumes.
    pub(crate) volumes: Vec<String>,
    image: Image,
}

impl Node {
    /// Looks an image up by name or id; none if it is not there.
    pub(crate) fn find_image(&self, name: &str) -> Result<Option<Image>, CallError> {
        match self.parts.images.image(name) {
            Ok(image) => Ok(Some(image)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(unusable(name, &error)),
        }
    }

    /// Returns what a container of this image is made of.
    pub(crate) async fn container_image(&self, name: &str) -> Result<ContainerImage, CallError> {
        let found = self.find_image(name)?;
        let image = found.ok_or_else(|| CallError::NoImage(name.to_owned()))?;
        let config = self.parts.images.config(&image).await;
        let defaults = config.map_err(|error| unusable(name, &error))?.defaults;
        let id = image.id.to_string();
        Ok(ContainerImage {
            reference: image.digests.first().unwrap_or(&id).clone(),
            id,
            user: defaults.user,
            stop_signal: defaults.stop_signal,
            settings: ImageSettings {
                entrypoint: defaults.entrypoint,
                command: defaults.cmd,
                env: defaults.env,
                working_dir: defaults.working_dir,
            },
            volumes: defaults.volumes.into_keys().collect(),
            image,
        })
    }

    /// Mounts the root of a container, whose image is leased before; returns its path. What is written to it belongs to
    /// the root of its user namespace, as the image's own files do.
    pub(crate) async fn mount_root(
        &self,
        container: &str,
        image: &ContainerImage,
        users: Option<&UserNamespacePath>,
    ) -> Result<PathBuf, CallError> {
        let folder = self.parts.layout.container(container);
        let (root, upper, work) = (
            folder.join("rootfs"),
            folder.join("upper"),
            folder.join("work"),
        );
        let made = [root.clone(), upper.clone(), work.clone()];
        let owner = users.map(|users| users.ids.root());
        self.blocking("making a container's folders", move || {
            for folder in made {
                fs::create_dir_all(&folder)
                    .and_then(|()| match owner {
                        Some((user, group)) => chown(&folder, Some(user), Some(group)),
                        None => Ok(()),
                    })
                    .map_err(CallError::file("make", folder))?;
            }
            Ok(())
        })
        .await?;
        let writable = Some(Writable { upper, work });
        let target = (root.as_path(), users);
        self.mount_leased(container, &image.image, target, writable)
            .await?;
        Ok(root)
    }

    async fn mount_leased(
        &self,
        owner: &str,
        image: &Image,
        (target, users): (&Path, Option<&UserNamespacePath>),
        writable: Option<Writable>,
    ) -> Result<(), CallError> {
        let store = &self.parts.images;
        let id = image.id.to_string();
        let leased = store.lease(owner, &image.id).await;
        leased.map_err(|error| unusable(&id, &error))?;
        let mounted = match users {
            None => store.mount_rootfs(image, target, writable).await,
            Some(users) => {
                let namespace = File::open(&users.path)
                    .map_err(CallError::file("open user namespace", &users.path))?;
                let namespace = namespace.into();
                store
                    .mount_mapped_rootfs(image, target, writable, namespace)
                    .await
            }
        };
        mounted.map_err(|error| unusable(&id, &error))
    }

    /// Mounts an image that a container mounts, read-only; `number` is the mount's place in the configuration.
    pub(crate) async fn mount_image(
        &self,
        container: &str,
        (number, mount): (usize, &Mount),
        users: Option<&UserNamespacePath>,
    ) -> Result<(String, MountSource), CallError> {
        let name = mount.image.clone().unwrap_or_default().image;
        if !mount.readonly {
            return Err(CallError::Invalid {
                field: "mount.readonly",
                found: "false".to_owned(),
                expected: "true: an image that is mounted is never written to",
            });
        }
        if number >= MAX_IMAGE_MOUNTS {
            return Err(CallError::Invalid {
                field: "mounts",
                found: format!("an image at place {number}"),
                expected: "images among the first 64 mounts",
            });
        }
        let found = self.find_image(&name)?;
        let image = found.ok_or(CallError::NoImage(name))?;
        let target = image_target(&self.parts.layout.container(container), number);
        let made = target.clone();
        self.blocking("making a folder for an image", move || {
            private_dir(&made).map_err(CallError::file("make", made))
        })
        .await?;
        let place = (target.as_path(), users);
        self.mount_leased(&lease_of_mount(container, number), &image, place, None)
            .await?;
        let below = mount.image_sub_path.clone();
        let source = self
            .blocking("looking into an image", move || sub_path(&target, &below))
            .await?;
        Ok((image.id.to_string(), source))
    }

    /// Unmounts what a container has of images and gives its leases back; all of it may be gone already.
    pub(crate) async fn release_image(&self, container: &str) -> Result<(), CallError> {
        let store = &self.parts.images;
        let folder = self.parts.layout.container(container);
        let stage = self.parts.layout.stage(container);
        let unmounted = self.blocking("unmounting a container's root", move || {
            Stage::remove(&stage)?;
            unmount_all(&folder.join("rootfs"))?;
            let mut images = Vec::new();
            for number in 0..MAX_IMAGE_MOUNTS {
                let target = image_target(&folder, number);
                if target.exists() {
                    unmount_all(&target)?;
                    images.push(number);
                }
            }
            Ok(images)
        });
        let images = unmounted.await?.into_iter();
        let mounts = images.map(|number| lease_of_mount(container, number));
        for owner in [container.to_owned()].into_iter().chain(mounts) {
            let released = store.unlease(&owner).await;
            released.map_err(|error| unusable(&owner, &error))?;
        }
        Ok(())
    }

    /// Pulls an image and returns its id, as containerd does. The registry is asked each time: it says whether these
    /// credentials may have the image.
    pub(crate) async fn pull_image(
        &self,
        name: &str,
        auth: Option<AuthConfig>,
    ) -> Result<String, CallError> {
        let reference: Reference = name.parse().map_err(|error| unusable(name, &error))?;
        let pull = Pull {
            reference,
            auth: credentials(auth.unwrap_or_default())?,
            certs: self.parts.registries.clone(),
            proxies: Arc::new(ProxyEnvironment::read()),
            platform: Platform::host(),
            progress: Arc::new(Progress::default()),
            deadline: Instant::now() + PULL_TIMEOUT,
        };
        let pulled = self.parts.images.pull(pull).await;
        let image = pulled.map_err(|error| unusable(name, &error))?;
        Ok(image.id.to_string())
    }

    /// Takes an image's names away and frees its space, as far as no container needs it; one that is absent is done.
    pub(crate) async fn remove_image(&self, name: &str) -> Result<(), CallError> {
        let store = &self.parts.images;
        match store.remove(name).await {
            Err(error) if is_absent(&error) => return Ok(()),
            removed => removed.map_err(|error| unusable(name, &error))?,
        }
        let collected = store.collect().await;
        collected.map(drop).map_err(|error| unusable(name, &error))
    }
}

fn is_absent(error: &StoreError) -> bool {
    matches!(error, StoreError::NoSuchImage(_))
}

fn unusable(image: &str, error: &dyn std::error::Error) -> CallError {
    CallError::Image {
        image: image.to_owned(),
        why: sdk::error_chain(error),
    }
}

fn image_target(container: &Path, number: usize) -> PathBuf {
    container.join("images").join(number.to_string())
}

fn lease_of_mount(container: &str, number: usize) -> String {
    format!("{container}-{number}")
}

/// Returns a folder or file of a mounted image, reached without any link: nothing of it can change, and none leads out.
fn sub_path(root: &Path, below: &str) -> Result<MountSource, CallError> {
    let invalid = || CallError::Invalid {
        field: "mount.image_sub_path",
        found: below.to_owned(),
        expected: "a relative path within the image, without links",
    };
    let mut path = root.to_owned();
    if !below.is_empty() {
        let opened = openat2(
            CWD,
            root,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::empty(),
        );
        let opened = opened.map_err(|error| CallError::file("open", root)(error.into()))?;
        let flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(
            &opened,
            below,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            flags,
        )
        .map_err(|_| invalid())?;
        path.push(below);
    }
    Ok(MountSource {
        path: path.to_str().ok_or_else(invalid)?.to_owned(),
        propagation: HostPropagation::Private,
        kept: Vec::new(),
    })
}

/// The credentials of a pull, in CRI's forms.
fn credentials(auth: AuthConfig) -> Result<Auth, CallError> {
    if !auth.username.is_empty() {
        let (username, password) = (auth.username, auth.password);
        return Ok(Auth::Basic { username, password });
    }
    if !auth.identity_token.is_empty() {
        return Ok(Auth::IdentityToken(auth.identity_token));
    }
    if !auth.registry_token.is_empty() {
        return Ok(Auth::RegistryToken(auth.registry_token));
    }
    if auth.auth.is_empty() {
        return Ok(Auth::Anonymous);
    }
    let decoded = BASE64_STANDARD.decode(&auth.auth).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
    let (username, password) = pair.ok_or(CallError::Invalid {
        field: "auth",
        // It is a secret: no word of it.
        found: "something else".to_owned(),
        expected: "user:password in base64",
    })?;
    Ok(Auth::Basic {
        username: username.to_owned(),
        password: password.trim_end_matches('\0').to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_come_in_each_form_and_are_never_shown() {
        let basic = |auth: AuthConfig| {
            let Auth::Basic { username, password } = credentials(auth).unwrap() else {
                panic!("expected a name and a password")
            };
            (username, password)
        };
        let pair = ("user".to_owned(), "pass:word".to_owned());
        let encoded = AuthConfig {
            auth: BASE64_STANDARD.encode("user:pass:word"),
            ..Default::default()
        };
        let named = AuthConfig {
            username: pair.0.clone(),
            password: pair.1.clone(),
            ..Default::default()
        };
        assert_eq!((basic(encoded), basic(named)), (pair.clone(), pair));
        assert!(matches!(
            credentials(AuthConfig::default()),
            Ok(Auth::Anonymous)
        ));
        let secret = AuthConfig {
            auth: "secret!".to_owned(),
            ..Default::default()
        };
        let refusal = credentials(secret).unwrap_err().to_string();
        assert!(!refusal.contains("secret"), "{refusal}");
    }

    #[test]
    fn a_path_within_an_image_cannot_lead_out_of_it() {
        let image = tempfile::tempdir().unwrap();
        fs::create_dir_all(image.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("/etc", image.path().join("out")).unwrap();
        let found = sub_path(image.path(), "a/b").unwrap();
        assert_eq!(Path::new(&found.path), image.path().join("a/b"));
        for bad in ["out", "out/passwd", "../x", "/etc", "a/missing"] {
            assert!(sub_path(image.path(), bad).is_err(), "{bad}");
        }
    }
}
