//! Paths of CSI volumes: upstream's folders (pkg/volume/csi, pkg/kubelet/kubelet_getters.go, 1.36).

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// What a volume's driver and handle are written down in, beside every path that the driver is given.
pub(crate) const DATA_FILE: &str = "vol_data.json";
/// The last part of a target and of a staging path: the folder above is ours, this one is the driver's.
pub(crate) const GLOBAL_MOUNT: &str = "globalmount";
pub(crate) const MOUNT: &str = "mount";
/// The plugin's folder below a pod's `volumes` and `volumeDevices`.
pub(crate) const ESCAPED_PLUGIN: &str = "kubernetes.io~csi";

const VOLUME_DEVICES: &str = "volumeDevices";
const STAGING: &str = "staging";
const PUBLISH: &str = "publish";

/// The folders below one root.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// `ROOT/plugins/kubernetes.io/csi`
    pub(crate) fn plugin(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi")
    }

    /// `.../csi/DRIVER/SHA256/globalmount`
    pub(crate) fn global_mount(&self, driver: &str, handle: &str) -> PathBuf {
        let folder = self.plugin().join(driver).join(sha256(&[handle]));
        folder.join(GLOBAL_MOUNT)
    }

    /// `ROOT/pods`
    pub(crate) fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// `ROOT/pods/UID/volumeDevices/kubernetes.io~csi/NAME`
    pub(crate) fn device_link(&self, pod: &str, name: &str) -> PathBuf {
        self.pods()
            .join(pod)
            .join(VOLUME_DEVICES)
            .join(ESCAPED_PLUGIN)
            .join(escaped(name))
    }

    /// `.../csi/volumeDevices`
    pub(crate) fn volume_devices(&self) -> PathBuf {
        self.plugin().join(VOLUME_DEVICES)
    }

    /// The folders of the raw block volume of this name.
    pub(crate) fn block(&self, name: &str) -> Block {
        let devices = self.volume_devices();
        let own = devices.join(escaped(name));
        Block {
            staging: devices.join(STAGING).join(name),
            publish: devices.join(PUBLISH).join(name),
            data: own.join("data"),
            map: own.join("dev"),
            own,
        }
    }

    /// Tells whether a folder of `volumeDevices` is not that of a volume.
    pub(crate) fn is_block_volume(name: &str) -> bool {
        name != STAGING && name != PUBLISH
    }
}

/// The folders of a raw block volume.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// `volumeDevices/NAME`
    pub(crate) own: PathBuf,
    /// `volumeDevices/NAME/data`
    pub(crate) data: PathBuf,
    /// `volumeDevices/NAME/dev`: the device bound once for each pod.
    pub(crate) map: PathBuf,
    /// `volumeDevices/staging/NAME`
    pub(crate) staging: PathBuf,
    /// `volumeDevices/publish/NAME`: where the driver puts the device for each pod.
    pub(crate) publish: PathBuf,
}

/// A name with slashes as a folder.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('/', "~")
}

/// The name of the VolumeAttachment of a volume to a node.
pub(crate) fn attachment(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(&[handle, driver, node]))
}

fn sha256(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part.as_bytes()));
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new(Path::new("/r"))
    }

    /// Upstream's TestAttacherGetDeviceMountPath.
    #[test]
    fn a_volume_is_staged_below_its_driver_by_the_hash_of_its_handle() {
        let path = layout().global_mount("ebs.csi.example.com", "vol-1");
        let hash = "d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49";
        let expected =
            format!("/r/plugins/kubernetes.io/csi/ebs.csi.example.com/{hash}/globalmount");
        assert_eq!(path, PathBuf::from(expected));
        // The example of the hash's own standard, in one piece and in two.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&["abc"]), known);
        assert_eq!(sha256(&["a", "bc"]), known);
    }

    /// Upstream's TestBlockMapperGetGlobalMapPath, ...GetStagingPath, ...GetPublishPath, ...GetDeviceMapPath.
    #[test]
    fn a_block_volume_has_upstream_s_five_folders() {
        let block = layout().block("pv-1");
        let csi = "/r/plugins/kubernetes.io/csi/volumeDevices";
        assert_eq!(block.map, PathBuf::from(format!("{csi}/pv-1/dev")));
        assert_eq!(block.data, PathBuf::from(format!("{csi}/pv-1/data")));
        assert_eq!(block.staging, PathBuf::from(format!("{csi}/staging/pv-1")));
        assert_eq!(block.publish, PathBuf::from(format!("{csi}/publish/pv-1")));
        assert_eq!(
            layout().device_link("uid", "pv-1"),
            PathBuf::from("/r/pods/uid/volumeDevices/kubernetes.io~csi/pv-1")
        );
        assert!(!Layout::is_block_volume("staging"));
        assert!(!Layout::is_block_volume("publish"));
        assert!(Layout::is_block_volume("pv-1"));
    }
}
