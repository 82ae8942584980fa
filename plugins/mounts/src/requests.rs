//! Validation of requests, before anything is done: paths, names, deadlines.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use proto::storage::{Pod, Volume};
use tonic::Status;

/// The deadline of a call that names none.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);
/// The longest deadline of a call; a longer one is cut to this.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// The longest name that a file system takes.
const NAME_MAX: usize = 255;
const PATH_MAX: usize = 4095;

/// Returns the time that a call has.
pub fn within(ms: u32) -> Duration {
    match ms {
        0 => TIMEOUT_DEFAULT,
        ms => Duration::from_millis(ms.into()).min(TIMEOUT_MAX),
    }
}

/// Checks that a path is absolute and plain, and lies below `root`.
pub fn target(field: &str, root: &Path, path: &str) -> Result<PathBuf, Status> {
    let path = absolute(field, path)?;
    if path == root || !path.starts_with(root) {
        return Err(invalid(format!(
            "{field} {path:?} is not below {}",
            root.display()
        )));
    }
    Ok(path)
}

/// Checks that a path is absolute and plain: no "..", no ".", no empty parts, no NUL.
pub fn absolute(field: &str, path: &str) -> Result<PathBuf, Status> {
    let given = present(field, path)?;
    if !given.starts_with('/') {
        return Err(invalid(format!("{field} {path:?} is not an absolute path")));
    }
    // The lexical form of a plain path is the path itself.
    let plain: PathBuf = Path::new(given).components().collect();
    let dots = given.split('/').any(|part| part == "..");
    if dots || plain.as_os_str() != given || given.contains('\0') || given.len() > PATH_MAX {
        return Err(invalid(format!("{field} {path:?} is not a plain path")));
    }
    Ok(plain)
}

/// Checks that a path is relative and does not lead upwards; "" is the folder itself.
pub fn relative(field: &str, path: &str) -> Result<PathBuf, Status> {
    let given = Path::new(path);
    if given.is_absolute() {
        return Err(invalid(format!("{field} {path:?} must be a relative path")));
    }
    let upwards = given.components().any(|part| part == Component::ParentDir);
    if upwards {
        return Err(invalid(format!("{field} {path:?} must not contain '..'")));
    }
    if path.contains('\0') || path.len() > PATH_MAX {
        return Err(invalid(format!("{field} {path:?} is not a path")));
    }
    Ok(given
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect())
}

/// Checks that a word can be the name of one file.
pub fn name<'a>(field: &str, name: &'a str) -> Result<&'a str, Status> {
    let name = present(field, name)?;
    let plain = name != "." && name != ".." && !name.contains(['/', '\0']);
    if !plain || name.len() > NAME_MAX {
        return Err(invalid(format!("{field} {name:?} is not a plain name")));
    }
    Ok(name)
}

/// Checks that a field is set.
pub fn present<'a>(field: &str, value: &'a str) -> Result<&'a str, Status> {
    if value.is_empty() {
        return Err(missing(field));
    }
    Ok(value)
}

/// Checks that a request names its volume: id, kind and name.
pub fn volume(volume: Option<&Volume>) -> Result<&Volume, Status> {
    let volume = volume.ok_or_else(|| missing("volume"))?;
    present("volume.id", &volume.id)?;
    present("volume.kind", &volume.kind)?;
    name("volume.name", &volume.name)?;
    Ok(volume)
}

/// Checks that a request names its pod.
pub fn pod(pod: Option<&Pod>) -> Result<&Pod, Status> {
    let pod = pod.ok_or_else(|| missing("pod"))?;
    name("pod.uid", &pod.uid)?;
    Ok(pod)
}

/// Refuses a kind that the plugin does not serve.
pub fn unknown_kind(plugin: &str, kind: &str) -> Status {
    invalid(format!("{plugin} does not serve volumes of kind {kind:?}"))
}

/// Refuses a request for want of a field.
pub fn missing(field: &str) -> Status {
    invalid(format!("{field} is missing"))
}

/// Returns INVALID_ARGUMENT with this reason.
pub fn invalid(why: impl Into<String>) -> Status {
    Status::invalid_argument(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_absolute_and_plain_and_below_the_root() {
        let root = Path::new("/var/lib/kubelet");
        let at = |path: &str| target("target", root, path);
        assert!(at("/var/lib/kubelet/pods/u/volumes/k/n").is_ok());
        for (path, why) in [
            ("", "target is missing"),
            ("pods/u", "target \"pods/u\" is not an absolute path"),
            (
                "/var/lib/kubelet",
                "target \"/var/lib/kubelet\" is not below /var/lib/kubelet",
            ),
            (
                "/var/lib/kubelets/x",
                "target \"/var/lib/kubelets/x\" is not below /var/lib/kubelet",
            ),
            ("/etc", "target \"/etc\" is not below /var/lib/kubelet"),
        ] {
            let refusal = at(path).unwrap_err();
            assert_eq!(refusal.code(), tonic::Code::InvalidArgument);
            assert_eq!(refusal.message(), why);
        }
        for path in [
            "/var/lib/kubelet/../x",
            "/var/lib/kubelet/pods/..",
            "/var/lib/kubelet/./x",
            "/var/lib/kubelet//x",
            "/var/lib/kubelet/x/",
            "/var/lib/kubelet/x\0y",
            &format!("/var/lib/kubelet/{}", "x".repeat(5000)),
        ] {
            let refusal = at(path).unwrap_err();
            assert!(
                refusal.message().ends_with("is not a plain path"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn a_relative_path_does_not_lead_upwards() {
        for (path, expected) in [
            ("", ""),
            ("a/b", "a/b"),
            ("./a//b/", "a/b"),
            ("..a/b..", "..a/b.."),
        ] {
            assert_eq!(relative("subpath", path).unwrap(), Path::new(expected));
        }
        for (path, why) in [
            ("/a", "subpath \"/a\" must be a relative path"),
            ("..", "subpath \"..\" must not contain '..'"),
            ("a/../b", "subpath \"a/../b\" must not contain '..'"),
            ("a/..", "subpath \"a/..\" must not contain '..'"),
            ("a\0", "subpath \"a\\0\" is not a path"),
        ] {
            assert_eq!(relative("subpath", path).unwrap_err().message(), why);
        }
    }

    #[test]
    fn a_name_is_the_name_of_one_file() {
        for good in ["a", "kubernetes.io~csi", "..a", "a b", "pvc-1"] {
            assert_eq!(name("name", good).unwrap(), good);
        }
        for bad in [".", "..", "a/b", "/", "a\0b", &"x".repeat(256)] {
            let refusal = name("volume.name", bad).unwrap_err();
            let why = format!("volume.name {bad:?} is not a plain name");
            assert_eq!(refusal.message(), why);
        }
        assert_eq!(
            name("volume.name", "").unwrap_err().message(),
            "volume.name is missing"
        );
    }

    #[test]
    fn a_deadline_is_never_endless() {
        assert_eq!(within(0), Duration::from_secs(120));
        assert_eq!(within(1), Duration::from_millis(1));
        assert_eq!(within(u32::MAX), Duration::from_secs(600));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(volume(None).unwrap_err().message(), "volume is missing");
        assert_eq!(pod(None).unwrap_err().message(), "pod is missing");
        let mut half = Volume {
            id: "kubernetes.io/nfs/x".to_owned(),
            ..Volume::default()
        };
        assert_eq!(
            volume(Some(&half)).unwrap_err().message(),
            "volume.kind is missing"
        );
        half.kind = "nfs".to_owned();
        assert_eq!(
            volume(Some(&half)).unwrap_err().message(),
            "volume.name is missing"
        );
        half.name = "x".to_owned();
        assert!(volume(Some(&half)).is_ok());
    }
}
