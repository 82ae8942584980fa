//! The node's time zone, in which klog stamps its lines.
//!
//! Upstream: Go's time/zoneinfo_unix.go.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

/// Returns the zone that `TZ` names, else that of `/etc/localtime`; UTC where neither can be read.
pub(super) fn local() -> TimeZone {
    named(std::env::var_os("TZ"), Path::new("/"))
}

/// Returns the zone by the value of `TZ`, with the files below `root`.
fn named(wanted: Option<OsString>, root: &Path) -> TimeZone {
    let Some(path) = path(wanted.as_deref(), root) else {
        return TimeZone::UTC;
    };
    let zone = fs::read(path).ok();
    let zone = zone.and_then(|rules| TimeZone::tzif("Local", &rules).ok());
    zone.unwrap_or(TimeZone::UTC)
}

/// The file with the zone's rules; none for UTC.
fn path(wanted: Option<&OsStr>, root: &Path) -> Option<PathBuf> {
    let Some(wanted) = wanted else {
        return Some(root.join("etc/localtime"));
    };
    let name = wanted.to_str()?;
    let name = name.strip_prefix(':').unwrap_or(name);
    match name.strip_prefix('/') {
        Some(absolute) => Some(root.join(absolute)),
        None if name.is_empty() => None,
        None => Some(root.join("usr/share/zoneinfo").join(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_comes_from_the_variable_else_from_the_machine() {
        let root = Path::new("/r");
        let rows = [
            (None, Some("/r/etc/localtime")),
            (Some(""), None),
            (Some(":"), None),
            (Some("Asia/Tokyo"), Some("/r/usr/share/zoneinfo/Asia/Tokyo")),
            (
                Some(":Asia/Tokyo"),
                Some("/r/usr/share/zoneinfo/Asia/Tokyo"),
            ),
            (Some("/opt/zone"), Some("/r/opt/zone")),
        ];
        for (wanted, expected) in rows {
            let found = path(wanted.map(OsStr::new), root);
            assert_eq!(found.as_deref(), expected.map(Path::new), "{wanted:?}");
        }
    }

    #[test]
    fn rules_that_cannot_be_read_are_those_of_utc() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(named(None, root.path()), TimeZone::UTC);
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/localtime"), "no rules").unwrap();
        assert_eq!(named(None, root.path()), TimeZone::UTC);
        assert_eq!(named(Some("".into()), root.path()), TimeZone::UTC);
    }
}
