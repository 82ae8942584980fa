//! The user of a container's process: numbers, or names of the image's own files.
//!
//! The rules are containerd's (`WithUser`, `WithUserID` and `WithAdditionalGIDs` of `pkg/oci/spec_opts.go`,
//! `generateUserString` of its CRI): a number is never looked up as a name. The passwd line *of a number* is looked up,
//! for the primary group where none is named, and for the name that group lines list as their member.
//!
//! `/etc/passwd` and `/etc/group` are the image's, so hostile: they are opened beneath the root without leaving it by a
//! link, never a device or FIFO, and read within bounds. A line whose ids are not ids does not count; containerd takes
//! these ids for 0.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use proto::cri::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use crate::spec::{Gid, IdError, Named, ProcessUser, Uid};

/// The longest passwd or group file that is read, in bytes.
const MAX_USER_FILE_BYTES: u64 = 4 << 20;
/// The most lines of a passwd or group file.
const MAX_USER_FILE_LINES: usize = 65_536;
/// The most supplemental groups of a process: `NGROUPS_MAX` of Linux.
const MAX_GROUPS: usize = 65_536;

/// Why a container's user is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    #[error("cannot read {file} of the image")]
    Read {
        file: &'static str,
        source: io::Error,
    },
    #[error("image has no user {0:?}")]
    NoUser(String),
    #[error("image has no group {0:?}")]
    NoGroup(String),
    #[error("run_as_group is set without run_as_user")]
    GroupAlone,
    #[error("the image's user is {0:?}, expected USER or USER:GROUP")]
    Form(String),
    #[error("the process has {0} groups, expected at most {MAX_GROUPS}")]
    Groups(usize),
    #[error(transparent)]
    Id(#[from] IdError),
}

/// The user and group files of an image.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserFiles {
    passwd: String,
    group: String,
}

impl UserFiles {
    /// Reads them beneath a container's root; missing ones are empty.
    pub(crate) fn read(root: &Path) -> Result<UserFiles, UserError> {
        let read = |file: &'static str| {
            beneath(root, file).map_err(|source| UserError::Read { file, source })
        };
        Ok(UserFiles {
            passwd: read("etc/passwd")?,
            group: read("etc/group")?,
        })
    }

    fn users(&self) -> impl Iterator<Item = PasswdLine<'_>> {
        self.passwd.lines().filter_map(PasswdLine::read)
    }

    fn user_named(&self, name: &str) -> Option<PasswdLine<'_>> {
        self.users().find(|line| line.name == name)
    }

    fn user_numbered(&self, uid: Uid) -> Option<PasswdLine<'_>> {
        self.users().find(|line| line.uid == uid)
    }

    fn groups(&self) -> impl Iterator<Item = (&str, Gid, &str)> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.trim().split(':');
            let (name, id) = (fields.next()?, fields.nth(1)?.parse().ok()?);
            Some((name, id, fields.next().unwrap_or_default()))
        })
    }

    fn group_named(&self, wanted: &str) -> Option<Gid> {
        self.groups()
            .find(|(name, ..)| *name == wanted)
            .map(|(_, id, _)| id)
    }

    /// The groups that list a user as their member. The one of its own name is not among them, as with containerd.
    fn groups_of(&self, user: &str) -> Vec<Gid> {
        self.groups()
            .filter(|(name, _, members)| {
                *name != user && members.split(',').any(|member| member == user)
            })
            .map(|(_, id, _)| id)
            .collect()
    }
}

#[derive(Clone, Copy)]
struct PasswdLine<'a> {
    name: &'a str,
    uid: Uid,
    gid: Gid,
}

impl<'a> PasswdLine<'a> {
    fn read(line: &'a str) -> Option<PasswdLine<'a>> {
        let mut fields = line.trim().split(':');
        Some(PasswdLine {
            name: fields.next()?,
            uid: fields.nth(1)?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
        })
    }
}

/// Opens a file of the image. A device or FIFO is never opened: an open alone can act or hang.
fn beneath(root: &Path, file: &str) -> io::Result<String> {
    let root = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(
        &root,
        file,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    );
    let found = match found {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(String::new()),
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is no regular file"));
    }
    // The file just looked at, by its descriptor: not by its name again.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&found));
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_USER_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_USER_FILE_BYTES {
        let why = format!("it is longer than {MAX_USER_FILE_BYTES} bytes");
        return Err(io::Error::other(why));
    }
    if bytes.iter().filter(|byte| **byte == b'\n').count() > MAX_USER_FILE_LINES {
        let why = format!("it has more than {MAX_USER_FILE_LINES} lines");
        return Err(io::Error::other(why));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Who a process is to be, before the image's files are looked at. No group is the user's own one.
struct Asked<'a> {
    user: Named<'a, Uid>,
    group: Option<Named<'a, Gid>>,
}

/// Resolves a user: the security context's numbers, its name, else the image's `USER`.
pub(crate) fn resolve(
    context: &LinuxContainerSecurityContext,
    image_user: &str,
    files: &UserFiles,
) -> Result<ProcessUser, UserError> {
    let Asked { user, group } = asked(context, image_user)?;
    let (uid, line) = match user {
        Named::Number(uid) => (uid, files.user_numbered(uid)),
        Named::Name("") => (Uid::default(), None),
        Named::Name(name) => {
            let line = files.user_named(name);
            let line = line.ok_or_else(|| UserError::NoUser(name.to_owned()))?;
            (line.uid, Some(line))
        }
    };
    let gid = match group {
        Some(Named::Number(gid)) => gid,
        // `USER:` has no group, not its user's own one.
        Some(Named::Name("")) => Gid::default(),
        Some(Named::Name(name)) => files
            .group_named(name)
            .ok_or_else(|| UserError::NoGroup(name.to_owned()))?,
        None => line.map_or(Gid::default(), |line| line.gid),
    };
    let mut groups = vec![gid];
    if context.supplemental_groups_policy() == SupplementalGroupsPolicy::Merge
        && let Some(line) = line
    {
        groups.extend(files.groups_of(line.name));
    }
    for group in &context.supplemental_groups {
        groups.push(Gid::try_from(*group)?);
    }
    let groups = unique(groups);
    if groups.len() > MAX_GROUPS {
        return Err(UserError::Groups(groups.len()));
    }
    Ok(ProcessUser { uid, gid, groups })
}

fn asked<'a>(
    context: &'a LinuxContainerSecurityContext,
    image_user: &'a str,
) -> Result<Asked<'a>, UserError> {
    let uid = context.run_as_user.as_ref().map(|id| id.value);
    let gid = context.run_as_group.as_ref().map(|id| id.value);
    let (user, group) = match (uid, context.run_as_username.as_str()) {
        (Some(uid), _) => (Named::Number(Uid::try_from(uid)?), None),
        // CRI: the runtime must refuse a group without a user, whatever the image says.
        (None, "") if gid.is_some() => return Err(UserError::GroupAlone),
        // Nobody is named: root, with the groups that list it.
        (None, "") if image_user.is_empty() => (
            Named::Number(Uid::default()),
            Some(Named::Number(Gid::default())),
        ),
        (None, "") => match image_user.split(':').collect::<Vec<_>>()[..] {
            [user] => (Named::read(user)?, None),
            [user, group] => (Named::read(user)?, Some(Named::read(group)?)),
            _ => return Err(UserError::Form(image_user.to_owned())),
        },
        (None, name) => (Named::read(name)?, None),
    };
    let group = match gid {
        Some(gid) => Some(Named::Number(Gid::try_from(gid)?)),
        None => group,
    };
    Ok(Asked { user, group })
}

fn unique(groups: Vec<Gid>) -> Vec<Gid> {
    let mut seen = std::collections::BTreeSet::new();
    groups
        .into_iter()
        .filter(|group| seen.insert(*group))
        .collect()
}

#[cfg(test)]
mod tests {
    use proto::cri::Int64Value;

    use super::*;

    fn files() -> UserFiles {
        UserFiles {
            passwd: "root:x:0:0::/:/bin/sh\nweb:x:33:34::/:\n\nbroken\n1000:x:0:0::/:/bin/sh\n\
                     odd:x:4294967295:0::/:\nnot:x::0::/:\n"
                .to_owned(),
            group:
                "root:x:0:\nweb:x:34:web\nextra:x:50:web,other\nwheel:x:10:root\n2000:x:0:1000\n"
                    .to_owned(),
        }
    }

    fn context(uid: Option<i64>, gid: Option<i64>, name: &str) -> LinuxContainerSecurityContext {
        LinuxContainerSecurityContext {
            run_as_user: uid.map(|value| Int64Value { value }),
            run_as_group: gid.map(|value| Int64Value { value }),
            run_as_username: name.to_owned(),
            ..Default::default()
        }
    }

    /// The user, its group and all its groups, or the refusal.
    fn resolved(context: &LinuxContainerSecurityContext, image: &str) -> Result<String, String> {
        let user = resolve(context, image, &files()).map_err(|error| error.to_string())?;
        let groups: Vec<_> = user.groups.iter().map(Gid::to_string).collect();
        Ok(format!("{}:{} {}", user.uid, user.gid, groups.join(",")))
    }

    #[test]
    fn numbers_of_the_request_win_over_names_and_over_the_image() {
        for (uid, gid, name, image, expected) in [
            (Some(5), Some(6), "web", "web", "5:6 6"),
            (Some(33), None, "", "root", "33:34 34,50"),
            (None, None, "web", "root", "33:34 34,50"),
            // A passwd line of this name, and a group line, mean somebody else.
            (Some(1000), None, "", "", "1000:0 0"),
            (Some(1000), Some(2000), "", "", "1000:2000 2000"),
            (None, None, "1000", "", "1000:0 0"),
        ] {
            let context = context(uid, gid, name);
            assert_eq!(
                resolved(&context, image).as_deref(),
                Ok(expected),
                "{image}"
            );
        }
    }

    #[test]
    fn an_images_user_is_a_number_where_it_has_digits_alone() {
        for (image, expected) in [
            ("", "0:0 0,10"),
            ("0", "0:0 0,10"),
            ("root", "0:0 0,10"),
            ("web", "33:34 34,50"),
            ("33", "33:34 34,50"),
            ("1000", "1000:0 0"),
            ("0001000", "1000:0 0"),
            ("1000:2000", "1000:2000 2000"),
            ("7:extra", "7:50 50"),
            ("web:123", "33:123 123,50"),
            ("web:", "33:0 0,50"),
            ("33:", "33:0 0,50"),
            (":extra", "0:50 50"),
            ("4294967294:4294967294", "4294967294:4294967294 4294967294"),
        ] {
            let found = resolved(&context(None, None, ""), image);
            assert_eq!(found.as_deref(), Ok(expected), "{image:?}");
        }
    }

    #[test]
    fn strict_groups_leave_those_of_the_image_out() {
        let mut strict = context(Some(33), None, "");
        strict.set_supplemental_groups_policy(SupplementalGroupsPolicy::Strict);
        strict.supplemental_groups = vec![7, 34];
        assert_eq!(resolved(&strict, "").as_deref(), Ok("33:34 34,7"));
    }

    #[test]
    fn what_is_no_user_is_refused_by_name() {
        let last = "expected 0 to 4294967294";
        let not_id = |text: &str| format!("{text} is not a user or group id, {last}");
        for (uid, gid, name, image, expected) in [
            (
                None,
                None,
                "nobody",
                "",
                "image has no user \"nobody\"".to_owned(),
            ),
            (
                None,
                None,
                "",
                "web:nogroup",
                "image has no group \"nogroup\"".to_owned(),
            ),
            (
                None,
                None,
                "",
                "odd",
                "image has no user \"odd\"".to_owned(),
            ),
            (
                None,
                None,
                "",
                "not",
                "image has no user \"not\"".to_owned(),
            ),
            (
                None,
                None,
                "",
                "a:b:c",
                "the image's user is \"a:b:c\", expected USER or USER:GROUP".to_owned(),
            ),
            (
                None,
                Some(3),
                "",
                "",
                "run_as_group is set without run_as_user".to_owned(),
            ),
            (
                None,
                Some(3),
                "",
                "web",
                "run_as_group is set without run_as_user".to_owned(),
            ),
            (Some(-1), None, "", "", not_id("-1")),
            (Some(4_294_967_295), None, "", "", not_id("4294967295")),
            (Some(5), Some(4_294_967_295), "", "", not_id("4294967295")),
            (None, None, "4294967295", "", not_id("4294967295")),
            (None, None, "", "4294967295", not_id("4294967295")),
            (None, None, "", "web:4294967295", not_id("4294967295")),
            (
                None,
                None,
                "",
                "99999999999999999999",
                not_id("99999999999999999999"),
            ),
        ] {
            let context = context(uid, gid, name);
            assert_eq!(resolved(&context, image), Err(expected), "{image}");
        }
        let mut grouped = context(Some(5), None, "");
        grouped.supplemental_groups = vec![4_294_967_295];
        assert_eq!(resolved(&grouped, ""), Err(not_id("4294967295")));
        grouped.supplemental_groups = (0..=MAX_GROUPS as i64).collect();
        let refusal = "the process has 65537 groups, expected at most 65536";
        assert_eq!(resolved(&grouped, ""), Err(refusal.to_owned()));
    }

    #[test]
    fn the_files_of_an_image_cannot_lead_out_of_it_or_hang() {
        let root = tempfile::tempdir().unwrap();
        let secret = root.path().join("secret");
        std::fs::write(&secret, "out:x:1:1::/:\n").unwrap();
        let image = root.path().join("image");
        std::fs::create_dir_all(image.join("etc")).unwrap();
        std::os::unix::fs::symlink("../../secret", image.join("etc/passwd")).unwrap();
        assert_eq!(UserFiles::read(&image).unwrap().passwd, "");
        std::fs::remove_file(image.join("etc/passwd")).unwrap();
        nix::unistd::mkfifo(&image.join("etc/passwd"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(UserFiles::read(&image).is_err());
        std::fs::remove_file(image.join("etc/passwd")).unwrap();
        for (text, expected) in [
            (
                "\n".repeat(MAX_USER_FILE_LINES + 1),
                "it has more than 65536 lines",
            ),
            ("x".repeat((4 << 20) + 1), "it is longer than 4194304 bytes"),
        ] {
            std::fs::write(image.join("etc/passwd"), text).unwrap();
            let UserError::Read { source, .. } = UserFiles::read(&image).unwrap_err() else {
                panic!("expected a failed read")
            };
            assert_eq!(source.to_string(), expected);
        }
    }
}
