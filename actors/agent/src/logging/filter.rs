//! Which records are shown: by verbosity, by module, or by `OXLET_LOG`.
//!
//! Errors and warnings always are. The verbosities are those that Kubernetes' contributors agreed upon: 0 for what an
//! operator always wants to know, 4 to find errors, 5 to follow single steps. What libraries say beside errors and warnings
//! is shown by `OXLET_LOG` alone: it may hold what goes over a connection, and that may be secret.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use config::VModule;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};

use super::module_pattern::ModulePattern;
use super::record::Caller;

const INFO: u32 = 0;
const DEBUG: u32 = 4;
const TRACE: u32 = 5;

/// Decides which records are shown.
#[derive(Debug)]
pub(super) struct LogFilter {
    verbosity: AtomicU32,
    modules: Vec<ModulePattern>,
    directives: Option<Directives>,
}

impl LogFilter {
    /// Shows records up to a verbosity, those of some modules up to another one; by directives alone where there are any.
    pub(super) fn new(
        verbosity: u32,
        modules: &[VModule],
        directives: Option<Directives>,
    ) -> LogFilter {
        LogFilter {
            verbosity: AtomicU32::new(verbosity),
            modules: modules.iter().map(ModulePattern::new).collect(),
            directives,
        }
    }

    /// Changes the verbosity, with effect on the next record.
    pub(super) fn set_verbosity(&self, verbosity: u32) {
        self.verbosity.store(verbosity, Ordering::Relaxed);
        tracing_core::callsite::rebuild_interest_cache();
    }

    /// Whether a record is shown.
    pub(super) fn shows(&self, metadata: &Metadata<'_>) -> bool {
        let level = *metadata.level();
        // kube_client logs answers that it cannot decode, and a Secret may be one.
        if level > Level::ERROR && is_of("kube_client", metadata.target()) {
            return false;
        }
        if let Some(directives) = &self.directives {
            return level <= directives.level(metadata.target());
        }
        if level <= Level::WARN {
            return true;
        }
        let needed = verbosity(metadata);
        !is_library(metadata)
            && (self.verbosity.load(Ordering::Relaxed) >= needed
                || self.of_module(metadata) >= needed)
    }

    /// The level beyond which no record is shown, whatever its module.
    pub(super) fn most(&self) -> LevelFilter {
        let of_modules = self.modules.iter().map(ModulePattern::own_verbosity);
        let verbosity = self.verbosity.load(Ordering::Relaxed);
        match (&self.directives, of_modules.fold(verbosity, u32::max)) {
            (Some(directives), _) => directives.most(),
            (None, TRACE..) => LevelFilter::TRACE,
            (None, DEBUG..) => LevelFilter::DEBUG,
            (None, _) => LevelFilter::INFO,
        }
    }

    fn of_module(&self, metadata: &Metadata<'_>) -> u32 {
        if self.modules.is_empty() {
            return 0;
        }
        let caller = Caller {
            path: metadata.file().unwrap_or_default(),
            line: 0,
        };
        ModulePattern::verbosity(&self.modules, caller.module())
    }
}

/// Returns the verbosity from which a record is shown, klog's V; 0 for errors and warnings.
pub(super) fn verbosity(metadata: &Metadata<'_>) -> u32 {
    match *metadata.level() {
        Level::TRACE => TRACE,
        Level::DEBUG => DEBUG,
        _ => INFO,
    }
}

/// Whether a library logs: the compiler sees its sources by absolute paths, and the agent's own by relative ones.
fn is_library(metadata: &Metadata<'_>) -> bool {
    let file = metadata.file().unwrap_or("/");
    Path::new(file).is_absolute()
}

/// Whether a target is this module or one beneath it.
fn is_of(module: &str, target: &str) -> bool {
    let rest = target.strip_prefix(module);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Levels by module, as `OXLET_LOG` has them: `pods::worker=debug,info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directives {
    /// Of the modules that no other directive names.
    rest: LevelFilter,
    modules: Vec<(String, LevelFilter)>,
}

impl Directives {
    /// Reads them; none if the text is empty or malformed.
    pub(super) fn parse(text: &str) -> Option<Directives> {
        let mut directives = Directives {
            rest: LevelFilter::ERROR,
            modules: Vec::new(),
        };
        for directive in text.split(',').map(str::trim) {
            match directive.split_once('=') {
                Some((module, level)) => directives
                    .modules
                    .push((module.to_owned(), level.parse().ok()?)),
                None => {
                    directives.rest = directive.parse().ok().filter(|_| !directive.is_empty())?
                }
            }
        }
        Some(directives)
    }

    /// The level of the longest module that the target is beneath.
    fn level(&self, target: &str) -> LevelFilter {
        let named = self
            .modules
            .iter()
            .filter(|(module, _)| is_of(module, target));
        let longest = named.max_by_key(|(module, _)| module.len());
        longest.map_or(self.rest, |(_, level)| *level)
    }

    fn most(&self) -> LevelFilter {
        let levels = self.modules.iter().map(|(_, level)| *level);
        levels.fold(self.rest, LevelFilter::max)
    }
}
