//! The words of mount(8), as flags of the kernel and the file system's own data.

use std::ffi::CString;

use rustix::mount::{MountFlags, MountPropagationFlags};
use tonic::Status;

/// The flags and data of mount(2).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountOptions {
    pub(super) flags: MountFlags,
    pub(super) propagation: Option<MountPropagationFlags>,
    pub(super) data: CString,
}

/// Options that say what is to be done with a whole mount: not for a volume's author to ask for.
const REFUSED: &[&str] = &["bind", "rbind", "move", "remount"];

/// Options that only mount(8) and fstab know.
const IGNORED: &[&str] = &[
    "", "defaults", "auto", "noauto", "nofail", "nouser", "nogroup", "noowner", "_netdev",
];

/// Reads options, each a word or several with commas between them. The last one wins, as with mount(8).
pub(super) fn read<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<MountOptions, Status> {
    let mut flags = MountFlags::empty();
    let mut propagation = None;
    let mut data = Vec::new();
    for word in words.into_iter().flat_map(split) {
        if REFUSED.contains(&word) {
            return Err(refused(word, "is not for volumes"));
        }
        let users = matches!(word, "user" | "users" | "owner" | "group");
        if users {
            flags |= MountFlags::NOSUID | MountFlags::NODEV;
        }
        if matches!(word, "user" | "users") {
            flags |= MountFlags::NOEXEC;
        }
        if let Some((flag, set)) = flag(word) {
            flags.set(flag, set);
        } else if let Some(how) = propagated(word) {
            propagation = Some(how);
        } else if !users && !ignored(word) {
            data.push(word);
        }
    }
    let data = CString::new(data.join(",")).map_err(|_| refused("with NUL", "makes no sense"))?;
    Ok(MountOptions {
        flags,
        propagation,
        data,
    })
}

/// Commas within quotes do not separate: a SELinux label is quoted for its own commas.
fn split(words: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    words.split(move |letter| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    })
}

fn ignored(word: &str) -> bool {
    let ignored = word.starts_with("x-") || word.starts_with("X-") || word.starts_with("comment=");
    ignored || IGNORED.contains(&word)
}

/// The flag that a word is about, and whether it sets or clears it.
pub(super) fn flag(word: &str) -> Option<(MountFlags, bool)> {
    Some(match word {
        "ro" => (MountFlags::RDONLY, true),
        "rw" => (MountFlags::RDONLY, false),
        "nosuid" => (MountFlags::NOSUID, true),
        "suid" => (MountFlags::NOSUID, false),
        "nodev" => (MountFlags::NODEV, true),
        "dev" => (MountFlags::NODEV, false),
        "noexec" => (MountFlags::NOEXEC, true),
        "exec" => (MountFlags::NOEXEC, false),
        "sync" => (MountFlags::SYNCHRONOUS, true),
        "async" => (MountFlags::SYNCHRONOUS, false),
        "dirsync" => (MountFlags::DIRSYNC, true),
        "noatime" => (MountFlags::NOATIME, true),
        "atime" => (MountFlags::NOATIME, false),
        "nodiratime" => (MountFlags::NODIRATIME, true),
        "diratime" => (MountFlags::NODIRATIME, false),
        "relatime" => (MountFlags::RELATIME, true),
        "norelatime" => (MountFlags::RELATIME, false),
        "strictatime" => (MountFlags::STRICTATIME, true),
        "nostrictatime" => (MountFlags::STRICTATIME, false),
        "lazytime" => (MountFlags::LAZYTIME, true),
        "nolazytime" => (MountFlags::LAZYTIME, false),
        "mand" => (MountFlags::PERMIT_MANDATORY_FILE_LOCKING, true),
        "nomand" => (MountFlags::PERMIT_MANDATORY_FILE_LOCKING, false),
        "silent" => (MountFlags::SILENT, true),
        "loud" => (MountFlags::SILENT, false),
        "nosymfollow" => (MountFlags::NOSYMFOLLOW, true),
        "symfollow" => (MountFlags::NOSYMFOLLOW, false),
        _ => return None,
    })
}

fn propagated(word: &str) -> Option<MountPropagationFlags> {
    let (plain, recursive) = match word.strip_prefix('r') {
        Some(plain) => (plain, MountPropagationFlags::REC),
        None => (word, MountPropagationFlags::empty()),
    };
    let how = match plain {
        "shared" => MountPropagationFlags::SHARED,
        "slave" => MountPropagationFlags::DOWNSTREAM,
        "private" => MountPropagationFlags::PRIVATE,
        "unbindable" => MountPropagationFlags::UNBINDABLE,
        _ => return None,
    };
    Some(how | recursive)
}

fn refused(word: &str, why: &str) -> Status {
    Status::invalid_argument(format!("mount option {word} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(words: &[&str]) -> (MountFlags, String) {
        let options = read(words.iter().copied()).unwrap();
        (options.flags, options.data.into_string().unwrap())
    }

    #[test]
    fn words_of_the_kernel_become_flags_and_the_rest_is_data() {
        let cases: &[(&[&str], MountFlags, &str)] = &[
            (&[], MountFlags::empty(), ""),
            (&["defaults"], MountFlags::empty(), ""),
            (
                &["ro", "nosuid,nodev"],
                MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
                "",
            ),
            (&["ro", "rw"], MountFlags::empty(), ""),
            (
                &["noexec", "exec", "size=1m"],
                MountFlags::empty(),
                "size=1m",
            ),
            (
                &["noatime,data=ordered", "sync"],
                MountFlags::NOATIME | MountFlags::SYNCHRONOUS,
                "data=ordered",
            ),
            (
                &["user"],
                MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
                "",
            ),
            (
                &["user", "exec"],
                MountFlags::NOSUID | MountFlags::NODEV,
                "",
            ),
            (
                &["x-systemd.automount,_netdev,nofail,comment=x,barrier=0"],
                MountFlags::empty(),
                "barrier=0",
            ),
            (&["relatime", "", ",,"], MountFlags::RELATIME, ""),
        ];
        for (words, flags, data) in cases {
            assert_eq!(read_all(words), (*flags, (*data).to_owned()), "{words:?}");
        }
    }

    #[test]
    fn a_label_keeps_its_commas() {
        let word = "context=\"system_u:object_r:container_file_t:s0:c1,c2\",ro";
        let (flags, data) = read_all(&[word]);
        assert_eq!(flags, MountFlags::RDONLY);
        assert_eq!(
            data,
            "context=\"system_u:object_r:container_file_t:s0:c1,c2\""
        );
    }

    #[test]
    fn propagation_is_told_apart() {
        let options = read(["rslave"]).unwrap();
        let expected = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        assert_eq!(options.propagation, Some(expected));
        assert_eq!(read(["ro"]).unwrap().propagation, None);
    }

    #[test]
    fn what_is_not_for_volumes_is_refused_by_name() {
        for word in ["bind", "rbind", "remount", "move", "a\0b"] {
            let refusal = read(["ro", word]).unwrap_err();
            assert_eq!(refusal.code(), tonic::Code::InvalidArgument, "{word}");
        }
        let refusal = read(["ro,remount"]).unwrap_err();
        assert_eq!(refusal.message(), "mount option remount is not for volumes");
    }
}
