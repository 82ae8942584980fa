//! Which runtime of which version needs what. Pure: a new quirk is a field and a row of the test's table.

use crate::Flavour;

/// Where container events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// The runtime's own `GetContainerEvents`.
    Native,
    /// containerd's event stream, translated.
    FromContainerd,
    /// No events: the agent relists.
    Absent,
}

impl EventSource {
    /// Returns the word of the health attribute `container-events`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::FromContainerd => "from containerd's events",
            Self::Absent => "none",
        }
    }
}

/// Deviations of a runtime that the adapter handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Where container events come from.
    pub events: EventSource,
    /// Whether an event stream that ends at once without an error means "switched off".
    pub empty_stream_means_off: bool,
    /// Whether stopping a sandbox that is gone is refused as NotFound, where CRI wants success.
    pub refuses_to_stop_the_absent: bool,
    /// Whether a container that has exited may have a task that CRI cannot end, and then cannot be removed.
    pub leaves_tasks: bool,
}

impl Quirks {
    /// A runtime of which nothing else is known.
    const NONE: Self = Self {
        events: EventSource::Native,
        empty_stream_means_off: false,
        refuses_to_stop_the_absent: false,
        leaves_tasks: false,
    };
}

/// Returns the quirks of a runtime by what its `Version` says of it.
///
/// containerd 1.6 has no `GetContainerEvents`; 1.7 deals its events out among all subscribers instead of giving
/// each to all, so that an old connection steals from a new one. CRI-O has it since 1.26, when its
/// `enable_pod_events` is on; when it is off the stream ends at once, as if all were well. Every containerd may leave
/// the task of a container whose start was broken off.
pub fn quirks(flavour: Flavour, runtime_name: &str, runtime_version: &str) -> Quirks {
    let version = parse(runtime_version);
    match (flavour, runtime_name) {
        (Flavour::Containerd, "containerd") if version.is_some_and(|version| version < (2, 0)) => {
            Quirks {
                events: EventSource::FromContainerd,
                refuses_to_stop_the_absent: true,
                leaves_tasks: true,
                ..Quirks::NONE
            }
        }
        (Flavour::Containerd, "containerd") => Quirks {
            leaves_tasks: true,
            ..Quirks::NONE
        },
        (Flavour::Crio, "cri-o") => Quirks {
            events: if version.is_some_and(|version| version < (1, 26)) {
                EventSource::Absent
            } else {
                EventSource::Native
            },
            empty_stream_means_off: true,
            ..Quirks::NONE
        },
        (Flavour::Containerd | Flavour::Crio, _) => Quirks::NONE,
    }
}

/// Reads major and minor; what follows (patch, pre-release, a distribution's suffix) decides nothing.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim().trim_start_matches('v').splitn(3, '.');
    let (major, minor) = (parts.next()?, parts.next()?);
    let digits = minor
        .find(|c: char| !c.is_ascii_digit())
        .map_or(minor, |end| &minor[..end]);
    Some((major.parse().ok()?, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_version_decide() {
        use Flavour::{Containerd, Crio};
        let old_containerd = Quirks {
            events: EventSource::FromContainerd,
            empty_stream_means_off: false,
            refuses_to_stop_the_absent: true,
            leaves_tasks: true,
        };
        let new_containerd = Quirks {
            leaves_tasks: true,
            ..Quirks::NONE
        };
        let crio = Quirks {
            events: EventSource::Native,
            empty_stream_means_off: true,
            refuses_to_stop_the_absent: false,
            leaves_tasks: false,
        };
        let old_crio = Quirks {
            events: EventSource::Absent,
            ..crio
        };
        for (flavour, name, version, expected) in [
            (Containerd, "containerd", "1.6.20~ds1", old_containerd),
            (Containerd, "containerd", "v1.6.33", old_containerd),
            (Containerd, "containerd", "1.7.0-beta.1", old_containerd),
            (Containerd, "containerd", "v1.7.27", old_containerd),
            (Containerd, "containerd", "v2.0.0", new_containerd),
            (Containerd, "containerd", "v2.1-dev", new_containerd),
            (Containerd, "containerd", "", new_containerd),
            (Containerd, "containerd", "unknown", new_containerd),
            (Containerd, "containerd", "1", new_containerd),
            (Containerd, "containerd", "99999999999.1", new_containerd),
            (Containerd, "somethingelse", "1.6.0", Quirks::NONE),
            (Crio, "cri-o", "1.24.6", old_crio),
            (Crio, "cri-o", "1.26.0", crio),
            (Crio, "cri-o", "1.33.1", crio),
            (Crio, "cri-o", "", crio),
        ] {
            assert_eq!(
                quirks(flavour, name, version),
                expected,
                "{name} {version:?}"
            );
        }
    }
}
