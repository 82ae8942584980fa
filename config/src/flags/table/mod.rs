//! Every flag that the agent knows: what it takes, what it sets, and whether it has a future.

mod configuration;
mod own;

use super::value::FlagType;

/// One command-line flag.
#[derive(Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) kind: FlagType,
    pub(crate) sets: Sets,
    pub(crate) status: FlagStatus,
    pub(crate) help: &'static str,
}

/// Where a flag's value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sets {
    /// Into the KubeletConfiguration, at this path.
    Configuration(&'static str),
    /// Into the field of the same name of `KubeletFlags`.
    Own,
    /// Nowhere: it is accepted so that a command line of the kubelet's works.
    Nothing,
    /// It asks for an answer instead of a running agent.
    Answer,
}

/// Whether a flag has a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagStatus {
    Stable,
    /// Upstream wants it in the configuration file, or gone.
    Deprecated,
    /// Upstream has removed it; the last version that took it is named.
    Removed(&'static str),
    /// A flag that the kubelet does not have.
    Ours,
}

const fn flag(
    name: &'static str,
    kind: FlagType,
    sets: Sets,
    status: FlagStatus,
    help: &'static str,
) -> Flag {
    Flag {
        name,
        short: None,
        kind,
        sets,
        status,
        help,
    }
}

const fn config(
    name: &'static str,
    kind: FlagType,
    path: &'static str,
    help: &'static str,
) -> Flag {
    flag(
        name,
        kind,
        Sets::Configuration(path),
        FlagStatus::Deprecated,
        help,
    )
}

impl Flag {
    const fn stable(mut self) -> Flag {
        self.status = FlagStatus::Stable;
        self
    }

    const fn short(mut self, short: char) -> Flag {
        self.short = Some(short);
        self
    }
}

/// Returns every flag, in no particular order.
pub(crate) fn all() -> impl Iterator<Item = &'static Flag> {
    static CONFIGURATION: &[Flag] = &configuration::CONFIGURATION;
    static OWN: &[Flag] = &own::OWN;
    CONFIGURATION.iter().chain(OWN)
}

/// Returns the flag of this name, in which `_` counts as `-`.
pub(crate) fn by_name(name: &str) -> Option<&'static Flag> {
    let name = name.replace('_', "-");
    all().find(|flag| flag.name == name)
}

/// Returns the flag with this one-letter name.
pub(crate) fn by_short(short: char) -> Option<&'static Flag> {
    all().find(|flag| flag.short == Some(short))
}

/// Returns the flag that sets a field of the KubeletConfiguration.
pub(crate) fn by_path(path: &str) -> Option<&'static Flag> {
    all().find(|flag| matches!(flag.sets, Sets::Configuration(found) if found == path))
}
