//! Entries below links of the layers below: `lib/x` where a lower layer has `lib -> usr/lib` belongs to `usr/lib/x`.
//!
//! Package managers write such layers. A layer is unpacked while the ones below may still be coming, so `lib` is made as
//! a folder first; here, with all layers at hand, what is in it moves to where the link leads. Links are followed inside
//! the image as a process in it would follow them, never outside. containerd, which unpacks upon the mounted layers below,
//! comes to the same.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, RawDir, Stat, openat2, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::LayerError;
use super::entry::{Inside, MAX_LINKS, refused, steps};
use super::lower::{Finishing, Found, Seen, is_opaque, look_in};
use super::tree::{BENEATH, FOLDER, HANDLE, Made, is_whiteout, last};
use super::unpack::{Moved, Unpacked, make_node};

/// Bytes of paths of folders that were moved: they are part of the layer's record.
const MAX_MOVED_BYTES: usize = 64 << 10;
/// Why a layer that says two things of a place is refused.
const FOLDER_AND_NONE: &str = "it is a folder and something else, by two paths of the layer";
/// Bytes that the kernel tells of a folder's entries at a time.
const LIST_BYTES: usize = 32 << 10;

impl Finishing<'_> {
    /// Moves what lies in folders without an entry that the layers below have as links.
    pub(super) fn settle(&mut self, unpacked: &mut Unpacked) -> Result<(), LayerError> {
        let mut pending = unpacked.implied.clone();
        let mut moved_bytes = 0;
        // A folder comes before those in it: where a path ends up is known before what is below it is looked at.
        while let Some(path) = pending.pop_first() {
            self.context.check_time()?;
            if !unpacked.implied.contains(&path) {
                continue;
            }
            let Some(found) = self.below(unpacked, &path)? else {
                continue;
            };
            if found.kind() != FileType::Symlink {
                continue;
            }
            let target = self.text(&path, &found)?;
            let to = self.resolve(unpacked, path.parent(), &target)?;
            moved_bytes += path.bytes().len() + to.bytes().len();
            if moved_bytes > MAX_MOVED_BYTES {
                return Err(LayerError::TooLarge {
                    what: "bytes of paths below links of other layers",
                    limit: u64::try_from(MAX_MOVED_BYTES).expect("it is small"),
                });
            }
            self.move_folder(unpacked, &mut pending, Moved { from: path, to })?;
        }
        Ok(())
    }

    /// Returns the path with the links of its folder followed.
    pub(super) fn resolve_parent(
        &self,
        unpacked: &Unpacked,
        path: &Inside,
    ) -> Result<Inside, LayerError> {
        let Some((parent, name)) = path.split() else {
            return Ok(path.clone());
        };
        self.resolve(unpacked, Inside::default(), parent.bytes())?
            .child(name)
            .map_err(|reason| refused(path.bytes(), reason))
    }

    /// Follows `target`, a link's text or a path, from the folder `base` of the image. What is not there is a folder that
    /// is still to be made.
    fn resolve(
        &self,
        unpacked: &Unpacked,
        base: Inside,
        target: &[u8],
    ) -> Result<Inside, LayerError> {
        let wrong = |reason| refused(target, reason);
        let mut at = if target.starts_with(b"/") {
            Inside::default()
        } else {
            base
        };
        let (mut rest, mut links) = (steps(target), 0);
        while let Some(name) = rest.pop() {
            if name == b".." {
                at = at.parent();
                continue;
            }
            let next = at.child(&name).map_err(wrong)?;
            let Some(found) = self.see(unpacked, &next)? else {
                at = next;
                continue;
            };
            match found.kind() {
                FileType::Directory => at = next,
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(wrong("links of the layers below lead in a circle"));
                    }
                    let target = self.text(&next, &found)?;
                    if target.starts_with(b"/") {
                        at = Inside::default();
                    }
                    rest.extend(steps(&target));
                }
                FileType::RegularFile
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => {
                    return Err(wrong("it leads through what is no folder"));
                }
            }
        }
        Ok(at)
    }

    fn text(&self, path: &Inside, link: &Found) -> Result<Vec<u8>, LayerError> {
        let text = readlinkat(&link.handle, "", Vec::new());
        let text = text.map_err(|error| self.tree.failed("read", path, error))?;
        Ok(text.into_bytes())
    }

    /// Returns what the image has at `path`, links not followed. A folder of this layer without an entry is the link that
    /// the layers below have there.
    fn see(&self, unpacked: &Unpacked, path: &Inside) -> Result<Option<Found>, LayerError> {
        let own = look_in(&self.stack[0], path);
        match own.map_err(|error| self.tree.failed("look for", path, error))? {
            Seen::Hidden => Ok(None),
            Seen::Below => self.below(unpacked, path),
            Seen::Here(own) if unpacked.implied.contains(path) => {
                let below = self.below(unpacked, path)?;
                let link = below.filter(|found| found.kind() == FileType::Symlink);
                Ok(Some(link.unwrap_or(own)))
            }
            Seen::Here(own) => Ok(Some(own)),
        }
    }

    /// Returns what the layers below have at `path` and this one does not hide.
    fn below(&self, unpacked: &Unpacked, path: &Inside) -> Result<Option<Found>, LayerError> {
        let mut folder = path.parent();
        while !folder.bytes().is_empty() {
            if unpacked.opaque_folders.contains_key(&folder) {
                return Ok(None);
            }
            folder = folder.parent();
        }
        self.find_in(&self.stack[1..], path)
    }

    fn move_folder(
        &mut self,
        unpacked: &mut Unpacked,
        pending: &mut BTreeSet<Inside>,
        moved: Moved,
    ) -> Result<(), LayerError> {
        // Out of the tree first: the link may lead to a folder above.
        let away = self.tree.take_out(&moved.from)?;
        let mut made = Vec::new();
        self.tree
            .folder(&moved.to, &mut |path, how| made.push((path.clone(), how)))?;
        for (path, how) in made {
            unpacked.inodes += 1;
            match how {
                Made::Implied => {
                    unpacked.implied.insert(path);
                }
                Made::Replaced { is_marked } => {
                    unpacked.opaque_folders.insert(path, is_marked);
                }
            }
        }
        self.merge(unpacked, &away, &moved)?;
        let is_opaque = unpacked.opaque_folders.remove(&moved.from).is_some();
        if is_opaque && moved.to.bytes().is_empty() {
            // overlayfs does not look for the mark on the roots of layers.
            unpacked.opaque = true;
            self.stack.truncate(1);
        } else if is_opaque {
            let folder = self.tree.open_folder(&moved.to)?;
            let is_marked = self
                .tree
                .make_opaque(&folder, b".")
                .map_err(|error| self.tree.failed("mark", &moved.to, error))?;
            unpacked.opaque_folders.insert(moved.to.clone(), is_marked);
        }
        unpacked.implied.remove(&moved.from);
        let opaque: Vec<_> = unpacked
            .opaque_folders
            .range(moved.from.below())
            .map(|(path, _)| path.clone())
            .collect();
        unpacked.rename(&moved)?;
        for path in opaque {
            // One that was merged with another folder has lost its mark.
            let path = renamed(&path, &moved)?;
            let (parent, _) = path.split().unwrap_or_default();
            let folder = self.tree.open_folder(&parent)?;
            self.mark(unpacked, &folder, &path)?;
        }
        let below: Vec<_> = pending.range(moved.from.below()).cloned().collect();
        for path in below {
            pending.remove(&path);
            pending.insert(renamed(&path, &moved)?);
        }
        unpacked.moved.push(moved);
        Ok(())
    }

    /// Moves all that is in the folder `away`, beside the root, into the folder `moved.to`, and removes it.
    fn merge(
        &mut self,
        unpacked: &mut Unpacked,
        away: &str,
        moved: &Moved,
    ) -> Result<(), LayerError> {
        // Folders that both have, by their path from here; those in it are done before it is left.
        let mut folders = vec![Inside::default()];
        while let Some(below) = folders.last().cloned() {
            let from = Inside::new(away.as_bytes())
                .and_then(|away| away.child_path(&below))
                .map_err(|reason| refused(moved.from.bytes(), reason))?;
            let to = moved
                .to
                .child_path(&below)
                .map_err(|reason| refused(moved.from.bytes(), reason))?;
            let source = openat2(
                self.tree.replaced(),
                from.bytes(),
                FOLDER,
                Mode::empty(),
                BENEATH,
            )
            .map_err(|error| self.tree.failed("open", &moved.from, error))?;
            match self.merge_one(unpacked, &source, &to)? {
                Some(name) => {
                    let next = below
                        .child(&name)
                        .map_err(|reason| refused(moved.from.bytes(), reason))?;
                    folders.push(next);
                }
                None => {
                    unlinkat(self.tree.replaced(), from.bytes(), AtFlags::REMOVEDIR)
                        .map_err(|error| self.tree.failed("move", &moved.from, error))?;
                    folders.pop();
                }
            }
        }
        Ok(())
    }

    /// Moves what is in `source` to the folder at `to`, up to a folder that is there as well; returns its name.
    fn merge_one(
        &mut self,
        unpacked: &mut Unpacked,
        source: &OwnedFd,
        to: &Inside,
    ) -> Result<Option<Vec<u8>>, LayerError> {
        let target = self.tree.open_folder(to)?;
        loop {
            let mut found = false;
            let entries = Dir::read_from(source);
            for entry in entries.map_err(|error| self.tree.failed("list", to, error))? {
                let entry = entry.map_err(|error| self.tree.failed("list", to, error))?;
                let name = entry.file_name();
                if is_own(name) {
                    continue;
                }
                found = true;
                let path = to
                    .child(name.to_bytes())
                    .map_err(|reason| refused(to.bytes(), reason))?;
                let failed = |error: Errno| self.tree.failed("move", &path, error);
                if let Some(there) = self.tree.look(&target, &path)? {
                    let moving = statat(source, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
                    let is_folder =
                        |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                    match (is_folder(&moving), is_folder(&there)) {
                        (true, true) => return Ok(Some(name.to_bytes().to_vec())),
                        // What the layer itself has of a name stays, as where it has it by one path.
                        (false, hides) if is_whiteout(&moving) => {
                            unlinkat(source, name, AtFlags::empty())
                                .map_err(|error| self.tree.failed("move", &path, error))?;
                            if hides {
                                self.mark(unpacked, &target, &path)?;
                                // What the layers below have there is removed: no link of theirs is followed.
                                unpacked.implied.remove(&path);
                            }
                            continue;
                        }
                        (hides, false) if is_whiteout(&there) => {
                            self.tree.clear(&target, &path, &there)?;
                            renameat(source, name, &target, name)
                                .map_err(|error| self.tree.failed("move", &path, error))?;
                            if hides {
                                self.mark(unpacked, &target, &path)?;
                            }
                            continue;
                        }
                        (false, false) => self.tree.clear(&target, &path, &there)?,
                        // Which of both holds would depend on their order, which is no longer known.
                        (true, false) | (false, true) => {
                            return Err(refused(path.bytes(), FOLDER_AND_NONE));
                        }
                    }
                }
                renameat(source, name, &target, name)
                    .map_err(|error| self.tree.failed("move", &path, error))?;
            }
            // What was moved while the folder was read may have hidden an entry.
            if !found {
                return Ok(None);
            }
        }
    }

    /// Hides what the layers below have in the folder at `path`, the last name of which is in `folder`.
    fn mark(
        &self,
        unpacked: &mut Unpacked,
        folder: &OwnedFd,
        path: &Inside,
    ) -> Result<(), LayerError> {
        let is_marked = self
            .tree
            .make_opaque(folder, last(path))
            .map_err(|error| self.tree.failed("mark", path, error))?;
        unpacked.opaque_folders.insert(path.clone(), is_marked);
        Ok(())
    }

    /// Hides by whiteouts what opaque folders hide by a mark, where the file system keeps no marks. Returns how many.
    pub(super) fn hide_unmarked(&mut self, unpacked: &mut Unpacked) -> Result<u64, LayerError> {
        let mut pending: BTreeSet<Inside> = unpacked
            .opaque_folders
            .iter()
            .filter(|(_, is_marked)| !**is_marked)
            .map(|(path, _)| path.clone())
            .collect();
        let mut count = 0;
        while let Some(path) = pending.pop_first() {
            let own = self.tree.open_folder(&path)?;
            for layer in 1..self.stack.len() {
                let Some((lower, hides)) = self.open_below(layer, &path)? else {
                    break;
                };
                if let Some(lower) = lower {
                    self.hide_each(&lower, (&own, &path), &mut pending, &mut count)?;
                }
                if hides {
                    break;
                }
            }
        }
        Ok(count)
    }

    /// Opens the folder at `path` of a layer below, and tells whether it hides the ones below it; nothing at all where
    /// the layer has something else there.
    fn open_below(
        &self,
        layer: usize,
        path: &Inside,
    ) -> Result<Option<(Option<OwnedFd>, bool)>, LayerError> {
        let failed = |error: Errno| self.tree.failed("look for", path, error);
        let layer = &self.stack[layer];
        match look_in(layer, path).map_err(failed)? {
            Seen::Hidden => Ok(None),
            Seen::Below => Ok(Some((None, false))),
            Seen::Here(found) if found.kind() == FileType::Directory => {
                let folder = openat2(layer, path.bytes(), HANDLE, Mode::empty(), BENEATH);
                let folder = folder.map_err(failed)?;
                let hides = is_opaque(&folder).map_err(failed)?;
                let folder = openat2(&folder, ".", FOLDER, Mode::empty(), BENEATH);
                Ok(Some((Some(folder.map_err(failed)?), hides)))
            }
            Seen::Here(_) => Ok(None),
        }
    }

    fn hide_each(
        &self,
        lower: &OwnedFd,
        (own, path): (&OwnedFd, &Inside),
        pending: &mut BTreeSet<Inside>,
        count: &mut u64,
    ) -> Result<(), LayerError> {
        let failed = |error: Errno| self.tree.failed("hide", path, error);
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        let mut entries = RawDir::new(lower, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if is_own(name) {
                continue;
            }
            match statat(own, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {
                    *count += 1;
                    let limit = self.context.limits.entries;
                    if *count > limit {
                        let what = "entries of the layers below that it hides";
                        return Err(LayerError::TooLarge { what, limit });
                    }
                    make_node(own, name.to_bytes(), FileType::CharacterDevice, 0)
                        .map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    let child = path.child(name.to_bytes());
                    pending.insert(child.map_err(|reason| refused(path.bytes(), reason))?);
                }
                Ok(stat) => debug_assert!(is_whiteout(&stat) || stat.st_nlink > 0),
            }
        }
        Ok(())
    }
}

impl Unpacked {
    /// Calls everything below a folder that was moved by where it is now.
    fn rename(&mut self, moved: &Moved) -> Result<(), LayerError> {
        let below = || moved.from.below();
        let implied: Vec<_> = self.implied.range(below()).cloned().collect();
        for path in implied {
            self.implied.remove(&path);
            self.implied.insert(renamed(&path, moved)?);
        }
        let times: Vec<_> = self
            .times
            .range(below())
            .map(|(path, _)| path.clone())
            .collect();
        for path in times {
            if let Some(time) = self.times.remove(&path) {
                self.times.insert(renamed(&path, moved)?, time);
            }
        }
        let links: Vec<_> = self
            .links
            .range(below())
            .map(|(path, _)| path.clone())
            .collect();
        for path in links {
            if let Some(link) = self.links.remove(&path) {
                self.links.insert(renamed(&path, moved)?, link);
            }
        }
        let opaque = self.opaque_folders.range(below());
        let opaque: Vec<_> = opaque.map(|(path, _)| path.clone()).collect();
        for path in opaque {
            if let Some(is_marked) = self.opaque_folders.remove(&path) {
                self.opaque_folders
                    .insert(renamed(&path, moved)?, is_marked);
            }
        }
        Ok(())
    }
}

fn renamed(path: &Inside, moved: &Moved) -> Result<Inside, LayerError> {
    path.moved(&moved.from, &moved.to)
        .unwrap_or_else(|| Ok(path.clone()))
        .map_err(|reason| refused(path.bytes(), reason))
}

fn is_own(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
