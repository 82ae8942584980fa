//! A step of a chain, and who does it: the plugin's program, or this process where the plugin is built in.

use std::fmt::Debug;

use serde_json::{Map, Value};

use super::{CniError, Verb, stdin};
use crate::conflist::PluginConf;
use crate::result::CniResult;

/// One call of a plugin: what its program reads from its environment and its standard input.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The verb: ADD, DEL, CHECK, STATUS or GC.
    pub verb: &'static str,
    /// The plugin's type.
    pub plugin: String,
    /// The network's name.
    pub network: String,
    /// `CNI_CONTAINERID`; empty where the verb is about no attachment.
    pub container_id: String,
    /// `CNI_NETNS`; empty where it is gone.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub interface: String,
    /// `CNI_ARGS`.
    pub arguments: Vec<(String, String)>,
    /// The configuration as a program reads it: with `name`, `cniVersion`, `runtimeConfig` and `prevResult`.
    pub configuration: Map<String, Value>,
    /// `prevResult`, in the form of 1.1.0.
    pub previous: Option<CniResult>,
}

/// Work that may block: it is done on a thread for such work, and asks `blocking_pool::Cancel` where it waits.
pub type Work = Box<dyn FnOnce() -> Result<CniResult, CniError> + Send>;

/// Work before a program starts.
pub type Preparation = Box<dyn FnOnce() -> Result<(), CniError> + Send>;

/// Work after a program's DEL, which takes away what this process made. Tells whether there was anything: then the
/// attachment was never the program's, and what it says of it does not count.
pub type Sweep = Box<dyn FnOnce() -> Result<bool, CniError> + Send>;

/// Who does a call.
#[expect(missing_debug_implementations, reason = "work is a closure")]
pub enum Step {
    /// This process.
    BuiltIn(Work),
    /// The plugin's program.
    Program {
        /// Why it is not built in; empty where nothing is.
        why: String,
        /// What is done before the program starts.
        first: Option<Preparation>,
        /// What is done after the program has ended.
        then: Option<Sweep>,
    },
}

/// Decides who does the steps of chains.
pub trait Steps: Debug + Send + Sync {
    /// Returns who does a call: the same for all verbs of an attachment.
    fn step(&self, call: Call) -> Step;
}

/// Has every step done by its program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Programs;

impl Steps for Programs {
    fn step(&self, _: Call) -> Step {
        Step::Program {
            why: String::new(),
            first: None,
            then: None,
        }
    }
}

impl Call {
    pub(super) fn new(verb: Verb<'_>, plugin: &PluginConf, result: Option<&CniResult>) -> Self {
        let mut call = Self {
            verb: verb.name,
            plugin: plugin.plugin_type.clone(),
            network: verb.network.name.clone(),
            configuration: stdin::configuration(verb, plugin, result),
            previous: result.cloned(),
            ..Self::default()
        };
        if let Some(of) = verb.attachment {
            call.container_id.clone_from(&of.id.sandbox);
            call.netns.clone_from(&of.netns);
            call.interface.clone_from(&of.id.interface);
            call.arguments.clone_from(&of.arguments);
        }
        call
    }
}
