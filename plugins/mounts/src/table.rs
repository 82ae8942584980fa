//! The kernel's mount table, `/proc/self/mountinfo`. No path is ever accessed for this.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

const MOUNT_INFO: &str = "/proc/self/mountinfo";
/// Bytes; a node of a hundred pods has some more.
const USUAL_LENGTH: usize = 64 << 10;

/// Which word of a line the mount point is.
const MOUNT_POINT: usize = 4;

/// All mounts of this process's namespace, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    entries: Vec<MountInfo>,
}

/// One mount: a line of proc_pid_mountinfo(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountInfo {
    /// The mount's number, unique at any one time.
    pub id: u64,
    /// The number of the mount it lies on.
    pub parent: u64,
    /// The device's major and minor number, as "8:1".
    pub device: String,
    /// The root of the mount within its file system: "/" or a path.
    pub root: PathBuf,
    /// The path at which it is mounted.
    pub mount_point: PathBuf,
    /// Options of this mount: "rw", "nosuid", ...
    pub options: Vec<String>,
    /// Propagation: "shared:1", "master:2", ...
    pub propagation: Vec<String>,
    /// The file system's type: "ext4", "fuse.sshfs", ...
    pub fs_type: String,
    /// The device or server, as it was named.
    pub source: OsString,
    /// Options of the file system's superblock.
    pub super_options: Vec<String>,
}

impl MountInfo {
    /// Tells whether nothing can be written through this mount.
    pub fn read_only(&self) -> bool {
        let says = |options: &[String]| options.iter().any(|option| option == "ro");
        says(&self.options) || says(&self.super_options)
    }
}

impl MountTable {
    /// Reads the table from /proc.
    pub fn read() -> io::Result<Self> {
        Self::parse(&bytes()?)
    }

    /// Parses the kernel's text.
    pub fn parse(text: &[u8]) -> io::Result<Self> {
        let entries = lines(text).map(|line| entry(line).ok_or_else(|| unknown(line)));
        let entries = entries.collect::<io::Result<_>>()?;
        Ok(Self { entries })
    }

    /// Returns the topmost mount at exactly this path, which is absolute, without links and dots.
    pub fn at(&self, path: &Path) -> Option<&MountInfo> {
        self.layers(path).last().copied()
    }

    /// Returns all mounts at exactly this path, the topmost last.
    pub fn layers(&self, path: &Path) -> Vec<&MountInfo> {
        let here = self
            .entries
            .iter()
            .filter(|entry| entry.mount_point == path);
        let mut here: Vec<_> = here.collect();
        if here.len() < 2 {
            return here;
        }
        // A layer is the parent of the one above it; the order of the table alone is no promise.
        let mut depths = BTreeMap::new();
        for entry in &here {
            depths.insert(entry.id, self.depth(entry));
        }
        here.sort_by_key(|entry| depths[&entry.id]);
        here
    }

    /// Returns all mounts below this path, itself not among them, in the order in which they were made.
    pub fn below(&self, path: &Path) -> Vec<&MountInfo> {
        let entries = self.entries.iter();
        entries
            .filter(|entry| entry.mount_point != path && entry.mount_point.starts_with(path))
            .collect()
    }

    /// Returns the mount that a path lies on: the topmost at the path or at the nearest folder above it.
    pub fn holding(&self, path: &Path) -> Option<&MountInfo> {
        path.ancestors().find_map(|folder| self.at(folder))
    }

    /// Returns all mounts, in the order in which they were made.
    pub fn entries(&self) -> &[MountInfo] {
        &self.entries
    }

    /// Tells whether something is mounted at exactly this path.
    pub fn is_mount_point(&self, path: &Path) -> bool {
        self.entries.iter().any(|entry| entry.mount_point == path)
    }

    fn depth(&self, entry: &MountInfo) -> usize {
        let mut seen = HashSet::new();
        let mut at = entry;
        while seen.insert(at.id) {
            match self.entries.iter().find(|other| other.id == at.parent) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        seen.len()
    }
}

/// Returns the paths of the mounts at or below this one, which is absolute, without links and dots: of a table of
/// hundreds nothing else is kept.
pub fn at_or_below(path: &Path) -> io::Result<BTreeSet<PathBuf>> {
    at_or_below_of(&bytes()?, path)
}

fn at_or_below_of(text: &[u8], path: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for line in lines(text) {
        let word = line.split(|&byte| byte == b' ').nth(MOUNT_POINT);
        let mount_point = self::path(word.ok_or_else(|| unknown(line))?);
        if mount_point.starts_with(path) {
            found.insert(mount_point);
        }
    }
    Ok(found)
}

fn bytes() -> io::Result<Vec<u8>> {
    // The kernel tells no length, and a small buffer has it make the first lines again and again.
    let mut bytes = Vec::with_capacity(USUAL_LENGTH);
    File::open(MOUNT_INFO)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|&byte| byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

fn unknown(line: &[u8]) -> io::Error {
    let line = String::from_utf8_lossy(line);
    let why = format!("{MOUNT_INFO} has a line of an unknown form: {line}");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Tells whether something is mounted at this path, whose folders are looked at, but not itself.
pub fn is_mount_point(path: &Path) -> io::Result<bool> {
    Ok(MountTable::read()?.is_mount_point(&real(path)?))
}

/// Tells the same of a path that is looked at itself, and so must not hang: however many mounts there are, it is one call.
pub fn is_mount_root(path: &Path) -> io::Result<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, path, flags, StatxFlags::TYPE)?;
    match found
        .stx_attributes_mask
        .contains(StatxAttributes::MOUNT_ROOT)
    {
        true => Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        // Linux before 5.8 does not say.
        false => is_mount_point(path),
    }
}

/// Returns the path as the table has it: links in the folders above it are followed, its last name is not looked at.
///
/// So a volume that hangs does not hang this.
pub fn real(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => Ok(fs::canonicalize(folder)?.join(name)),
        (Some(_) | None, _) => Ok(path.to_owned()),
    }
}

// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
fn entry(line: &[u8]) -> Option<MountInfo> {
    let mut words = line.split(|&byte| byte == b' ');
    let mut next = || words.next();
    let (id, parent, device) = (number(next()?)?, number(next()?)?, text(next()?));
    let (root, mount_point) = (path(next()?), path(next()?));
    let options = list(next()?);
    let mut propagation = Vec::new();
    loop {
        match next()? {
            b"-" => break,
            word => propagation.push(text(word)),
        }
    }
    let fs_type = text(next()?);
    // A source may be empty: then two spaces follow each other, and nothing needs to be done.
    let source = OsString::from_vec(unescaped(next()?));
    let super_options = next().map(list).unwrap_or_default();
    Some(MountInfo {
        id,
        parent,
        device,
        root,
        mount_point,
        options,
        propagation,
        fs_type,
        source,
        super_options,
    })
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(&unescaped(word)).into_owned()
}

fn path(word: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescaped(word)))
}

fn list(word: &[u8]) -> Vec<String> {
    word.split(|&byte| byte == b',').map(text).collect()
}

/// `\040` is a space; the kernel escapes space, tab, newline, backslash and sometimes `#` so.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| octal(after)).flatten();
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

fn octal(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..3)?;
    digits.iter().try_fold(0_u8, |value, &digit| {
        let digit = digit.checked_sub(b'0').filter(|&digit| digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = "\
        21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        30 21 0:25 / /run rw,nosuid shared:2 master:7 propagate_from:3 - tmpfs tmpfs rw,size=10k\n\
        40 21 0:30 /sub/folder /var/with\\040space ro,noatime - nfs4 host:/a\\040b rw,addr=1.2.3.4\n\
        41 40 0:31 / /var/with\\040space rw - tmpfs none rw\n\
        50 41 0:32 / /var/with\\040space/in rw unbindable - fuse.sshfs  rw\n\
        60 21 0:33 / /var/with\\040spaces rw - tmpfs none\n";

    fn usual() -> MountTable {
        MountTable::parse(USUAL.as_bytes()).unwrap()
    }

    #[test]
    fn each_field_is_read_whatever_optional_fields_there_are() {
        let table = usual();
        let nfs = &table.entries()[2];
        assert_eq!((nfs.id, nfs.parent, nfs.device.as_str()), (40, 21, "0:30"));
        assert_eq!(nfs.root, Path::new("/sub/folder"));
        assert_eq!(nfs.mount_point, Path::new("/var/with space"));
        assert_eq!(nfs.options, ["ro", "noatime"]);
        assert_eq!(
            (nfs.fs_type.as_str(), nfs.source.to_str()),
            ("nfs4", Some("host:/a b"))
        );
        assert_eq!(nfs.super_options, ["rw", "addr=1.2.3.4"]);
        assert!(nfs.read_only() && !table.entries()[1].read_only());
        assert_eq!(
            table.entries()[1].propagation,
            ["shared:2", "master:7", "propagate_from:3"]
        );
        assert_eq!(table.entries()[4].source, "");
        assert_eq!(table.entries()[4].super_options, ["rw"]);
        assert!(table.entries()[5].super_options.is_empty());
    }

    #[test]
    fn the_topmost_of_a_stack_is_the_one_that_is_seen() {
        let table = usual();
        let at = |path: &str| table.at(Path::new(path)).map(|entry| entry.id);
        assert_eq!(at("/var/with space"), Some(41));
        assert_eq!(at("/var/with"), None);
        let layers = table.layers(Path::new("/var/with space"));
        assert_eq!(
            layers.iter().map(|entry| entry.id).collect::<Vec<_>>(),
            [40, 41]
        );
        // The order of lines is no promise.
        let backwards = USUAL.lines().rev().collect::<Vec<_>>().join("\n");
        let backwards = MountTable::parse(backwards.as_bytes()).unwrap();
        assert_eq!(backwards.at(Path::new("/var/with space")).unwrap().id, 41);
    }

    #[test]
    fn below_means_by_whole_names() {
        let table = usual();
        let below = table.below(Path::new("/var/with space"));
        assert_eq!(below.iter().map(|entry| entry.id).collect::<Vec<_>>(), [50]);
        assert_eq!(table.below(Path::new("/")).len(), 5);
        let paths = at_or_below_of(USUAL.as_bytes(), Path::new("/var/with space")).unwrap();
        let expected = ["/var/with space", "/var/with space/in"].map(PathBuf::from);
        assert_eq!(paths, BTreeSet::from(expected));
        assert!(at_or_below_of(b"21 1 8:1 /\n", Path::new("/")).is_err());
        let holding = |path: &str| table.holding(Path::new(path)).map(|entry| entry.id);
        assert_eq!(holding("/var/with space/in/a/b"), Some(50));
        assert_eq!(holding("/var/with space/other"), Some(41));
        assert_eq!(holding("/var/withal"), Some(21));
    }

    #[test]
    fn a_ring_of_parents_ends() {
        let text = "1 2 0:1 / /a rw - x y\n2 1 0:1 / /a rw - x y\n3 3 0:1 / /a rw - x y";
        assert_eq!(
            MountTable::parse(text.as_bytes())
                .unwrap()
                .layers(Path::new("/a"))
                .len(),
            3
        );
    }

    #[test]
    fn a_line_of_another_form_is_named() {
        for line in [
            "21 1 8:1 / / rw,relatime shared:1 ext4 /dev/sda1 rw",
            "x 1 8:1 / / rw - ext4 /dev/sda1 rw",
            "21",
            " ",
            "21 1 8:1 / / rw -",
        ] {
            let error = MountTable::parse(format!("{line}\n").as_bytes()).unwrap_err();
            assert!(error.to_string().ends_with(line), "{error}");
        }
    }

    #[test]
    fn only_three_octal_digits_are_an_escape() {
        for (word, expected) in [
            ("a\\040b", &b"a b"[..]),
            ("\\134\\012\\011", b"\\\n\t"),
            ("\\04", b"\\04"),
            ("\\0", b"\\0"),
            ("\\", b"\\"),
            ("\\089", b"\\089"),
            ("\\777", b"\\777"),
            ("\\377", b"\xff"),
        ] {
            assert_eq!(unescaped(word.as_bytes()), expected, "{word}");
        }
    }

    #[test]
    fn the_kernel_s_own_table_is_read() {
        let table = MountTable::read().unwrap();
        assert!(table.is_mount_point(Path::new("/")));
        assert_eq!(table.at(Path::new("/proc")).unwrap().fs_type, "proc");
        assert!(is_mount_point(Path::new("/proc")).unwrap());
    }

    #[test]
    fn one_path_is_answered_for_without_the_table_as_by_it() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        let table = MountTable::read().unwrap();
        for path in [Path::new("/"), Path::new("/proc"), folder.path(), &link] {
            let expected = table.is_mount_point(path);
            assert_eq!(is_mount_root(path).unwrap(), expected, "{}", path.display());
        }
        let error = is_mount_root(&folder.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            drop(MountTable::parse(&bytes));
        }

        #[test]
        fn any_path_survives_the_kernel_s_escapes(path in "/[ -~\n\t\\\\#]{0,40}") {
            let escaped: String = path.chars().map(|letter| match letter {
                ' ' | '\t' | '\n' | '\\' | '#' => format!("\\{:03o}", u32::from(letter)),
                letter => letter.to_string(),
            }).collect();
            let line = format!("1 1 0:1 / {escaped} rw - x y rw\n");
            let table = MountTable::parse(line.as_bytes()).unwrap();
            proptest::prop_assert_eq!(&table.entries()[0].mount_point, Path::new(&path));
        }
    }
}
