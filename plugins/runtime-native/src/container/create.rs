//! CreateContainer.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use monitor::{Create, Input, MonitorError, RefusalKind};
use proto::cri::security_profile::ProfileType;
use proto::cri::{
    ContainerConfig, ContainerEventType, CreateContainerRequest, NamespaceMode, PodSandboxState,
};
use rustix::fs::OFlags;

use super::sources::{self, Mountinfo};
use super::user::{self, UserFiles};
use super::volumes::VolumeMount;
use super::{devices, relabel, security};
use crate::cdi;
use crate::clock;
use crate::container::staging::{Owners, Stage};
use crate::error::CallError;
use crate::image::ContainerImage;
use crate::layout::{BUNDLE_FILE, private_dir};
use crate::node::{ContainerEntry, Node};
use crate::record::convert;
use crate::record::{ContainerPhase, ContainerRecord, SandboxRecord, Wire, new_id};
use crate::sandbox::{namespace_folder, own_namespaces, user_ids, users};
use crate::spec::{
    self, Gid, MountSource, NamespacePaths, PassedOn, ProcessUser, SandboxMounts, SpecInput,
    UserNamespacePath,
};

/// The images that a container mounts, by the mount's place in its configuration.
type MountedImages = BTreeMap<usize, MountSource>;

/// The name of a container's root among its staged mounts.
const ROOT: &str = "rootfs";
/// The longest seccomp profile of the node, in bytes.
const MAX_PROFILE_BYTES: u64 = 4 << 20;
const SIGTERM: i32 = 15;

impl Node {
    /// Makes a container and returns its id. What fails leaves nothing behind.
    pub(crate) async fn create_container(
        self: &Arc<Node>,
        request: CreateContainerRequest,
    ) -> Result<String, CallError> {
        let config = request
            .config
            .ok_or(CallError::Missing("the container's config"))?;
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let _alone = self.lock(&sandbox.id).await?;
        let sandbox = self.ready_sandbox(&sandbox.id)?;
        let named = config.image.as_ref().map(|image| image.image.as_str());
        let image = self.container_image(named.unwrap_or_default()).await?;
        let record = self.reserve_container(config, &sandbox, &image).await?;
        let id = record.id.clone();
        let made = async {
            self.note_container(record.clone()).await?;
            self.make_container(record, &sandbox, &image).await
        };
        let made = made.await;
        if let Some(entry) = self.state().container_mut(&id) {
            entry.in_making = false;
        }
        match made {
            Ok(()) => {
                self.tell(&sandbox.id, &id, ContainerEventType::ContainerCreatedEvent);
                Ok(id)
            }
            Err(error) => {
                self.undo_container(&id).await;
                Err(error)
            }
        }
    }

    fn ready_sandbox(&self, id: &str) -> Result<SandboxRecord, CallError> {
        let sandbox = self.sandbox(id)?;
        if sandbox.state() == Some(PodSandboxState::SandboxReady) {
            return Ok(sandbox);
        }
        Err(CallError::WrongState {
            what: "sandbox",
            id: id.to_owned(),
            state: "not ready",
            expected: "ready",
        })
    }

    /// Takes a name and an id for the container. What an earlier call of this name left unfinished is taken apart first.
    async fn reserve_container(
        self: &Arc<Node>,
        config: ContainerConfig,
        sandbox: &SandboxRecord,
        image: &ContainerImage,
    ) -> Result<ContainerRecord, CallError> {
        let record = self.new_container(config, sandbox, image)?;
        let left = {
            let state = self.state();
            let other = state.container_named(&record.name);
            let left = |entry: &&ContainerEntry| {
                entry.record.phase == ContainerPhase::Making && !entry.in_making
            };
            other.filter(left).map(|entry| entry.record.id.clone())
        };
        if let Some(left) = left {
            self.undo_container(&left).await;
        }
        let mut state = self.state();
        if let Some(other) = state.container_named(&record.name) {
            let by = other.record.id.clone();
            let name = record.name;
            return Err(CallError::NameTaken { name, by });
        }
        let mut entry = ContainerEntry::new(record.clone());
        entry.in_making = true;
        state.put_container(entry);
        Ok(record)
    }

    fn new_container(
        &self,
        config: ContainerConfig,
        sandbox: &SandboxRecord,
        image: &ContainerImage,
    ) -> Result<ContainerRecord, CallError> {
        let meta = config
            .metadata
            .clone()
            .ok_or(CallError::Missing("the container's metadata"))?;
        let pod = sandbox.config.0.metadata.clone().unwrap_or_default();
        let log = match (
            sandbox.config.0.log_directory.as_str(),
            config.log_path.as_str(),
        ) {
            ("", _) | (_, "") => String::new(),
            (folder, path) => format!("{}/{path}", folder.trim_end_matches('/')),
        };
        let stop_signal = convert::signal_number(config.stop_signal())
            .or_else(|| kernel_filters::signal_number(&image.stop_signal))
            .unwrap_or(SIGTERM);
        let name = [
            meta.name.as_str(),
            &pod.name,
            &pod.namespace,
            &pod.uid,
            &meta.attempt.to_string(),
        ]
        .join("_");
        Ok(ContainerRecord {
            id: new_id().map_err(CallError::Random)?,
            sandbox: sandbox.id.clone(),
            name,
            phase: ContainerPhase::Making,
            config: Wire(config),
            image: image.id.clone(),
            image_ref: image.reference.clone(),
            log,
            created: clock::now(),
            started: 0,
            boot: self.parts.boot.clone(),
            user: ProcessUser::default(),
            stop_signal,
            not_made: None,
        })
    }

    async fn make_container(
        self: &Arc<Node>,
        mut record: ContainerRecord,
        sandbox: &SandboxRecord,
        image: &ContainerImage,
    ) -> Result<(), CallError> {
        let namespaces = self.namespaces_of(&record.config.0, sandbox).await?;
        let users = users(&self.parts.layout, sandbox)?;
        let rootfs = self.mount_root(&record.id, image, users.as_ref()).await?;
        let images = self.mount_images(&mut record, users.as_ref()).await?;
        // As the OCI runtime's own refusals: the container's start reports it.
        record.not_made = self.refused_volume(&record, image)?;
        let volumes = self
            .make_volumes(&record, image, &rootfs, users.as_ref())
            .await?;
        let mounts = (images, volumes);
        record.user = self
            .write_bundle(&record, sandbox, image, (namespaces, mounts, &rootfs))
            .await?;
        let config = &record.config.0;
        let create = Create {
            container: record.id.clone(),
            handler: self.handler(&sandbox.handler)?,
            bundle: self.parts.layout.bundle(&record.id),
            log: Some(record.log.clone().into()).filter(|_| !record.log.is_empty()),
            log_folder: Path::new(&sandbox.config.0.log_directory)
                .parent()
                .map(Path::to_owned),
            stdin: match (config.stdin, config.stdin_once) {
                (false, _) => Input::Closed,
                (true, false) => Input::Open,
                (true, true) => Input::Once,
            },
            terminal: config.tty,
        };
        if record.not_made.is_none() {
            record.not_made = self.create_at_monitor(sandbox, create).await?;
        }
        self.leave_root_staged(&record.id).await?;
        record.phase = ContainerPhase::Made;
        record.created = clock::now();
        self.note_container(record.clone()).await?;
        if let Some(entry) = self.state().container_mut(&record.id) {
            entry.record = record;
        }
        self.follow(&sandbox.id);
        Ok(())
    }

    /// Has the monitor make a container; returns why its OCI runtime did not.
    ///
    /// As with containerd, whose OCI runtime is called at the start: what it refuses is a container that ended without
    /// having run, by which a pod that is not started again has failed, and not one that is tried for ever.
    async fn create_at_monitor(
        &self,
        sandbox: &SandboxRecord,
        create: Create,
    ) -> Result<Option<String>, CallError> {
        let monitor = self.launch(sandbox).await?;
        match monitor.create(create).await {
            Ok(_) => Ok(None),
            Err(MonitorError::Refused(refusal)) if refusal.kind == RefusalKind::Runtime => {
                Ok(Some(refusal.message))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The container has its mounts: of those that it was made from only the root is still looked for, by `exec`.
    async fn leave_root_staged(&self, container: &str) -> Result<(), CallError> {
        let stage = self.parts.layout.stage(container);
        self.blocking("unmounting what a container was made from", move || {
            Stage::remove_but(&stage, Some(ROOT))
        })
        .await
    }

    /// Mounts the images that a container mounts, and notes which they are: its status tells it.
    async fn mount_images(
        &self,
        record: &mut ContainerRecord,
        users: Option<&UserNamespacePath>,
    ) -> Result<MountedImages, CallError> {
        let mut images = MountedImages::new();
        for (number, mount) in record.config.0.mounts.iter_mut().enumerate() {
            if mount.image.is_some() {
                let place = (number, &*mount);
                let (id, source) = self.mount_image(&record.id, place, users).await?;
                if let Some(image) = &mut mount.image {
                    image.image_ref = id;
                }
                images.insert(number, source);
            }
        }
        Ok(images)
    }

    /// Writes `config.json`; returns the user that the container's process will be.
    async fn write_bundle(
        &self,
        record: &ContainerRecord,
        sandbox: &SandboxRecord,
        image: &ContainerImage,
        (namespaces, (images, volumes), rootfs): (
            NamespacePaths,
            (MountedImages, Vec<VolumeMount>),
            &Path,
        ),
    ) -> Result<ProcessUser, CallError> {
        let work = BundleWork {
            record: record.clone(),
            sandbox: sandbox.clone(),
            image: image.clone(),
            namespaces,
            images,
            volumes,
            rootfs: rootfs.to_owned(),
            files: self.sandbox_mounts(sandbox),
            host: self.parts.host.clone(),
            driver: self.parts.driver,
            passed_on: self.parts.programs.passed_on(&sandbox.handler),
            recursive_read_only: self.parts.features(&sandbox.handler).recursive_read_only,
            cdi_folders: self.parts.cdi_folders.clone(),
            users: users(&self.parts.layout, sandbox)?,
            stage: self.parts.layout.stage(&record.id),
            bundle: self.parts.layout.bundle(&record.id),
        };
        self.blocking("writing a container's bundle", move || work.write())
            .await
    }

    fn sandbox_mounts(&self, sandbox: &SandboxRecord) -> SandboxMounts {
        let folder = self.parts.layout.sandbox(&sandbox.id);
        let file = |name: &str| folder.join(name).display().to_string();
        SandboxMounts {
            hosts: file("hosts"),
            hostname: file("hostname"),
            resolv_conf: file("resolv.conf"),
            shm: match own_namespaces(&sandbox.config.0).ipc {
                true => file("shm"),
                false => "/dev/shm".to_owned(),
            },
            shm_kept: Vec::new(),
        }
    }

    async fn namespaces_of(
        &self,
        config: &ContainerConfig,
        sandbox: &SandboxRecord,
    ) -> Result<NamespacePaths, CallError> {
        let own = own_namespaces(&sandbox.config.0);
        let pins = namespace_folder(&self.parts.layout, sandbox);
        let pin = |own: bool, name: &str| own.then(|| pins.join(name).display().to_string());
        // A configuration without a word of namespaces has PIDs of its own.
        let options = security(config).namespace_options;
        let (mode, target) = match &options {
            Some(options) => (options.pid(), options.target_id.as_str()),
            None => (NamespaceMode::Container, ""),
        };
        let pid = match mode {
            NamespaceMode::Target => Some(self.target(target, sandbox)?),
            NamespaceMode::Pod => Some(self.shared_pids(sandbox).await?),
            NamespaceMode::Container | NamespaceMode::Node => None,
        };
        let ids = user_ids(&sandbox.config.0)?;
        Ok(NamespacePaths {
            user: ids.map(|ids| UserNamespacePath {
                path: pins.join("user").display().to_string(),
                ids,
            }),
            network: pin(own.network, "net"),
            ipc: pin(own.ipc, "ipc"),
            uts: pin(own.uts, "uts"),
            pid,
            own_pid: mode != NamespaceMode::Node,
        })
    }

    /// Returns the PID namespace of another container of the pod.
    fn target(&self, id: &str, sandbox: &SandboxRecord) -> Result<String, CallError> {
        let state = self.state();
        let entry = state
            .container(id)
            .filter(|entry| entry.record.sandbox == sandbox.id);
        let pid = entry.and_then(|entry| entry.pid);
        let pid = pid.ok_or_else(|| CallError::Invalid {
            field: "namespace_options.target_id",
            found: id.to_owned(),
            expected: "a running container of the same sandbox",
        })?;
        Ok(format!("/proc/{pid}/ns/pid"))
    }
}

/// Everything that a bundle is written from; all of it may block.
struct BundleWork {
    record: ContainerRecord,
    sandbox: SandboxRecord,
    image: ContainerImage,
    namespaces: NamespacePaths,
    images: MountedImages,
    volumes: Vec<VolumeMount>,
    rootfs: PathBuf,
    files: SandboxMounts,
    host: spec::HostFacts,
    driver: spec::CgroupDriver,
    passed_on: PassedOn,
    recursive_read_only: bool,
    cdi_folders: Vec<PathBuf>,
    users: Option<UserNamespacePath>,
    stage: PathBuf,
    bundle: PathBuf,
}

impl BundleWork {
    /// The sources of the mounts that the configuration names, in its order.
    fn sources(&self) -> Result<Vec<MountSource>, CallError> {
        let mountinfo = Mountinfo::default();
        let mounts = self.record.config.0.mounts.iter().enumerate();
        let sources = mounts.map(|(number, mount)| match self.images.get(&number) {
            Some(image) => Ok(image.clone()),
            None => sources::of_node(mount, &mountinfo),
        });
        sources.collect()
    }

    fn write(mut self) -> Result<ProcessUser, CallError> {
        let config = &self.record.config.0;
        let context = security(config);
        let mut user = user::resolve(&context, &self.image.user, &UserFiles::read(&self.rootfs)?)?;
        let mut mounted = self.sources()?;
        self.relabel(&mounted)?;
        // As containerd has them: mounts that the configuration doesn't name.
        let mut config = config.clone();
        for (mount, source) in std::mem::take(&mut self.volumes) {
            config.mounts.push(mount);
            mounted.push(source);
        }
        let config = &config;
        if let Some(users) = &self.users {
            devices::check_names(&config.devices)?;
            let stage = Stage::make(self.stage.clone(), &users.ids)?;
            self.rootfs = stage.put(ROOT, &self.rootfs, Owners::Disk)?.path.into();
            stage_files(&stage, &mut self.files)?;
            stage_mounts(&stage, config, &mut mounted, users)?;
        }
        let mut nodes = devices::asked(&config.devices)?;
        if context.privileged {
            nodes.extend(devices::all()?);
        }
        let profile = localhost_profile(config)?;
        let rootfs = self.rootfs.display().to_string();
        let input = SpecInput {
            id: &self.record.id,
            sandbox_id: &self.sandbox.id,
            sandbox: &self.sandbox.config.0,
            config,
            image: &self.image.settings,
            user: &user,
            namespaces: &self.namespaces,
            sandbox_mounts: &self.files,
            sources: &mounted,
            devices: &nodes,
            seccomp_profile: profile.as_deref(),
            rootfs: &rootfs,
            driver: self.driver,
            passed_on: &self.passed_on,
            recursive_read_only: self.recursive_read_only,
            host: &self.host,
        };
        let mut document = spec::container_spec(input)?;
        warn_of_adjustment(input);
        cdi::inject(&mut document, &cdi::asked(config)?, &self.cdi_folders)?;
        user.groups = groups(&document);
        private_dir(&self.bundle).map_err(CallError::file("make", &self.bundle))?;
        let path = self.bundle.join(BUNDLE_FILE);
        fs::write(&path, document.to_string()).map_err(CallError::file("write", path))?;
        Ok(user)
    }

    /// Labels the mounts that ask for it, where containers have labels.
    fn relabel(&self, sources: &[MountSource]) -> Result<(), CallError> {
        let config = &self.record.config.0;
        let Some(label) = spec::mount_label(config, &self.host) else {
            return Ok(());
        };
        let mounts = config.mounts.iter().zip(sources);
        for (_, source) in mounts.filter(|(mount, _)| mount.selinux_relabel) {
            relabel::relabel(Path::new(&source.path), relabel::ATTRIBUTE, &label)
                .map_err(CallError::file("relabel", &source.path))?;
        }
        Ok(())
    }
}

/// Returns the groups of a document's user: those of its devices are among them.
fn groups(document: &serde_json::Value) -> Vec<Gid> {
    let all = document["process"]["user"]["additionalGids"].as_array();
    let ids = all
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_i64);
    ids.filter_map(|id| Gid::try_from(id).ok()).collect()
}

/// The sandbox's files are mounted from where the namespace's root can reach them.
fn stage_files(stage: &Stage, files: &mut SandboxMounts) -> Result<(), CallError> {
    let put = |name: &str, path: &mut String| {
        let staged = stage.put(name, Path::new(path.as_str()), Owners::Disk)?;
        *path = staged.path;
        Ok::<_, CallError>(staged.kept)
    };
    put("hosts", &mut files.hosts)?;
    put("hostname", &mut files.hostname)?;
    put("resolv.conf", &mut files.resolv_conf)?;
    files.shm_kept = put("shm", &mut files.shm)?;
    Ok(())
}

/// The same for what the configuration mounts, with its ids mapped where it asks for them.
fn stage_mounts(
    stage: &Stage,
    config: &ContainerConfig,
    sources: &mut [MountSource],
    users: &UserNamespacePath,
) -> Result<(), CallError> {
    for (number, (mount, source)) in config.mounts.iter().zip(sources).enumerate() {
        // An image is mounted with the namespace's ids already.
        let owners = match spec::asks_for_ids(mount) && mount.image.is_none() {
            true => Owners::Mapped(Path::new(&users.path)),
            false => Owners::Disk,
        };
        let staged = stage.put(&number.to_string(), Path::new(&source.path), owners)?;
        source.path = staged.path;
        source.kept = staged.kept;
    }
    Ok(())
}

fn warn_of_adjustment(input: SpecInput<'_>) {
    let resources = input
        .config
        .linux
        .as_ref()
        .and_then(|linux| linux.resources.as_ref());
    let asked = resources.map_or(0, |resources| resources.oom_score_adj);
    let set = spec::oom_score_adj(input);
    if asked != set {
        let container = input.id;
        tracing::warn!(
            container,
            asked,
            set,
            "this machine refuses a lower oom_score_adj"
        );
    }
}

/// Reads the profile of the node that the container names, if it names one.
fn localhost_profile(config: &ContainerConfig) -> Result<Option<String>, CallError> {
    let security = security(config);
    // As with containerd, a privileged container has no filter, whatever it names.
    let asked = security.seccomp.filter(|_| !security.privileged);
    let Some(profile) = asked.filter(|asked| asked.profile_type() == ProfileType::Localhost) else {
        return Ok(None);
    };
    let path = profile.localhost_ref;
    let read = read_profile(Path::new(&path));
    read.map(Some)
        .map_err(CallError::file("read seccomp profile", &path))
}

/// The node's administrator may link to profiles elsewhere. A FIFO is not waited for.
fn read_profile(path: &Path) -> io::Result<String> {
    let mut options = fs::OpenOptions::new();
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.read(true).custom_flags(nonblocking).open(path)?;
    if !file.metadata()?.is_file() {
        let why = "it is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut text = String::new();
    let length = file.take(MAX_PROFILE_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_PROFILE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_profile_that_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in [fifo, folder.path().to_owned(), "/dev/zero".into()] {
            let error = read_profile(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("profile", &link).unwrap();
        fs::write(folder.path().join("profile"), "{}").unwrap();
        assert_eq!(read_profile(&link).unwrap(), "{}");
    }
}
