//! Whatever a manifest says, a volume's directory is one directory.

use proptest::prelude::*;

use super::*;

fn is_plain(folder: &str) -> bool {
    !folder.contains('/') && !["", ".", ".."].contains(&folder)
}

fn check(result: Result<ResolvedVolume, UnresolvedVolume>) -> Result<(), TestCaseError> {
    if let Ok(resolved) = result {
        prop_assert!(is_plain(&resolved.volume.folder));
        prop_assert!(resolved.volume.id.0.starts_with("kubernetes.io/"));
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_name_leads_out_of_its_folder(name in "[a./~\\\\]{0,4}", word in ".{0,12}") {
        let mut node = ResolveRig::of("").driver("disk.csi.azure.com", &[]);
        let sources = ["emptyDir: {}", "hostPath: {path: /p}", "azureDisk: {diskName: d, diskURI: u}", CLAIMING];
        for source in sources {
            let mut pod = mounting(source);
            let volumes = pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
            volumes[0].name.clone_from(&name);
            if let Some(path) = &mut volumes[0].host_path {
                path.path.clone_from(&word);
            }
            if let Some(disk) = &mut volumes[0].azure_disk {
                disk.disk_uri.clone_from(&name);
            }
            check(node.resolve(&pod))?;
        }
        node = ResolveRig::of(&bound("csi: {driver: csi.example.com, volumeHandle: v}")).driver(&word, &[]);
        for volume in node.objects.persistent_volumes.values_mut() {
            let volume = std::sync::Arc::make_mut(volume);
            volume.metadata.name = Some(name.clone());
            let csi = volume.spec.as_mut().unwrap().csi.as_mut().unwrap();
            csi.driver.clone_from(&word);
            csi.volume_handle.clone_from(&name);
        }
        check(node.resolve(&mounting(CLAIMING)))?;
    }
}
