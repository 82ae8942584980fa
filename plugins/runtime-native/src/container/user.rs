//! The user of a container's process: numbers, or names of the image's own files.
//!
//! `/etc/passwd` and `/etc/group` are the image's, so hostile: they are opened beneath the root without leaving it by a
//! link, never a device or FIFO, and read within a bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use proto::cri::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use crate::spec::ProcessUser;

/// The longest passwd or group file that is read.
const MAX_BYTES: u64 = 4 << 20;
/// The most supplemental groups of a process: Linux's own limit.
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
    #[error("{0} is no user or group id, expected 0 to 4294967294")]
    Range(i64),
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

    fn user(&self, wanted: &str) -> Option<PasswdLine<'_>> {
        let lines = self.passwd.lines().filter_map(PasswdLine::read);
        let number = wanted.parse::<u32>().ok();
        let by_name = lines.clone().find(|line| line.name == wanted);
        by_name.or_else(|| lines.clone().find(|line| Some(line.uid) == number))
    }

    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, id) = (fields.next()?, fields.nth(1)?.parse().ok()?);
            Some((name, id, fields.next().unwrap_or_default()))
        })
    }

    fn group(&self, wanted: &str) -> Option<u32> {
        let named = self.groups().find(|(name, ..)| *name == wanted);
        named
            .map(|(_, id, _)| id)
            .or_else(|| wanted.parse::<u32>().ok())
    }

    fn groups_of(&self, user: &str) -> Vec<u32> {
        let member = |members: &str| members.split(',').any(|name| name == user);
        let own = self.groups().filter(|(.., members)| member(members));
        own.map(|(_, id, _)| id).collect()
    }
}

#[derive(Clone, Copy)]
struct PasswdLine<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

impl<'a> PasswdLine<'a> {
    fn read(line: &'a str) -> Option<PasswdLine<'a>> {
        let mut fields = line.split(':');
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
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!(
            "it is longer than {MAX_BYTES} bytes"
        )));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Resolves a user: the security context's numbers, its name, else the image's `USER`.
pub(crate) fn resolve(
    context: &LinuxContainerSecurityContext,
    image_user: &str,
    files: &UserFiles,
) -> Result<ProcessUser, UserError> {
    let asked_uid = context.run_as_user.as_ref().map(|id| id.value);
    let asked_gid = context.run_as_group.as_ref().map(|id| id.value);
    let (user, group) = match (asked_uid, context.run_as_username.as_str()) {
        (Some(uid), _) => (id(uid)?.to_string(), None),
        (None, "") if asked_gid.is_some() && image_user.is_empty() => {
            return Err(UserError::GroupAlone);
        }
        (None, "") => match image_user.split_once(':') {
            Some((user, group)) => (user.to_owned(), Some(group)),
            None => (image_user.to_owned(), None),
        },
        (None, name) => (name.to_owned(), None),
    };
    let found = files.user(&user);
    let (uid, known_gid) = match (found, user.as_str()) {
        (_, "") => (0, 0),
        (Some(line), _) => (line.uid, line.gid),
        (None, number) => {
            let uid = number
                .parse()
                .map_err(|_| UserError::NoUser(user.clone()))?;
            (uid, 0)
        }
    };
    let gid = match (asked_gid, group) {
        (Some(gid), _) => id(gid)?,
        (None, Some(group)) if !group.is_empty() => files
            .group(group)
            .ok_or_else(|| UserError::NoGroup(group.to_owned()))?,
        (None, _) => known_gid,
    };
    let mut groups = vec![gid];
    if context.supplemental_groups_policy() == SupplementalGroupsPolicy::Merge {
        let name = match user.as_str() {
            "" => files.user("0").map(|line| line.name),
            _ => found.map(|line| line.name),
        };
        groups.extend(name.map(|name| files.groups_of(name)).unwrap_or_default());
    }
    for group in &context.supplemental_groups {
        groups.push(id(*group)?);
    }
    Ok(ProcessUser {
        uid,
        gid,
        groups: unique(groups),
    })
}

fn id(number: i64) -> Result<u32, UserError> {
    let id = u32::try_from(number).ok().filter(|id| *id != u32::MAX);
    id.ok_or(UserError::Range(number))
}

fn unique(groups: Vec<u32>) -> Vec<u32> {
    let mut seen = std::collections::BTreeSet::new();
    let mut kept: Vec<_> = groups
        .into_iter()
        .filter(|group| seen.insert(*group))
        .collect();
    kept.truncate(MAX_GROUPS);
    kept
}

#[cfg(test)]
mod tests {
    use proto::cri::Int64Value;

    use super::*;

    fn files() -> UserFiles {
        UserFiles {
            passwd: "root:x:0:0::/:/bin/sh\nweb:x:33:34::/:\n\nbroken\n".to_owned(),
            group: "root:x:0:\nweb:x:34:\nextra:x:50:web,other\nwheel:x:10:root\n".to_owned(),
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

    fn resolved(context: &LinuxContainerSecurityContext, image: &str) -> (u32, u32, Vec<u32>) {
        let user = resolve(context, image, &files()).unwrap();
        (user.uid, user.gid, user.groups)
    }

    #[test]
    fn numbers_of_the_request_win_over_names_and_over_the_image() {
        assert_eq!(
            resolved(&context(Some(5), Some(6), "web"), "web"),
            (5, 6, vec![6])
        );
        assert_eq!(
            resolved(&context(Some(33), None, ""), "root"),
            (33, 34, vec![34, 50])
        );
        assert_eq!(
            resolved(&context(None, None, "web"), "root"),
            (33, 34, vec![34, 50])
        );
        assert_eq!(
            resolved(&context(None, None, ""), "web"),
            (33, 34, vec![34, 50])
        );
        assert_eq!(
            resolved(&context(None, None, ""), "7:extra"),
            (7, 50, vec![50])
        );
        assert_eq!(resolved(&context(None, None, ""), ""), (0, 0, vec![0, 10]));
    }

    #[test]
    fn strict_groups_leave_those_of_the_image_out() {
        let mut strict = context(Some(33), None, "");
        strict.set_supplemental_groups_policy(SupplementalGroupsPolicy::Strict);
        strict.supplemental_groups = vec![7, 34];
        assert_eq!(resolved(&strict, ""), (33, 34, vec![34, 7]));
    }

    #[test]
    fn what_the_image_does_not_know_is_refused_by_name() {
        let named = |name: &str| resolve(&context(None, None, name), "", &files()).unwrap_err();
        assert_eq!(named("nobody").to_string(), "image has no user \"nobody\"");
        let group = resolve(&context(None, None, ""), "web:nogroup", &files()).unwrap_err();
        assert_eq!(group.to_string(), "image has no group \"nogroup\"");
        assert!(resolve(&context(Some(-1), None, ""), "", &files()).is_err());
        assert!(resolve(&context(None, Some(3), ""), "", &files()).is_err());
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
    }
}
