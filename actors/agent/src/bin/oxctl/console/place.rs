//! What the console can show.

use strum::{EnumIter, IntoEnumIterator, IntoStaticStr};

/// A view that is always at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumIter, IntoStaticStr)]
pub(super) enum Tab {
    Pods,
    Plugins,
    Tree,
    Volumes,
    Images,
    Pressure,
    Events,
}

/// Something to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Tab(Tab),
    /// What was done about a pod, and why.
    Pod {
        namespace: String,
        name: String,
    },
    Log {
        namespace: String,
        name: String,
        container: String,
    },
}

impl Tab {
    /// From 1.
    pub(super) fn numbered(number: u32) -> Option<Tab> {
        Tab::iter().find(|tab| tab.number() == number)
    }

    /// From 1.
    pub(super) fn number(self) -> u32 {
        self as u32 + 1
    }

    pub(super) fn next(self) -> Tab {
        Tab::numbered(self.number() + 1).unwrap_or(Tab::Pods)
    }

    pub(super) fn previous(self) -> Tab {
        Tab::numbered(self.number() - 1).unwrap_or(Tab::Events)
    }
}

impl Place {
    pub(super) fn title(&self) -> String {
        match self {
            Place::Tab(tab) => <&str>::from(tab).to_owned(),
            Place::Pod { namespace, name } => format!("{namespace}/{name}"),
            Place::Log {
                namespace,
                name,
                container,
            } => format!("{namespace}/{name} {container}: the end of its log"),
        }
    }
}
