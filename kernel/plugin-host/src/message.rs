//! The messages of a plugin's host, and its answers.

use kernel::Reply;

use crate::declaration::{Declaration, DeclarationError};
use crate::generation::update::GenerationUpdate;

/// The messages of a plugin's host.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Takes note of what became of a generation; sent by the host's own tasks.
    Generation(GenerationUpdate),
    /// Starts the plugin again: its back-off is over.
    Due,
    /// Drains and ends the plugin, and starts it again at once; answers with the new generation when
    /// that is ready.
    Restart {
        /// The new generation, or why there is none.
        reply: GenerationReply,
    },
    /// Replaces the plugin by another one of the same name; answers with the new generation when it
    /// serves and the old one is dead. If the new one does not get ready, the old one stays.
    Swap {
        /// The new plugin's declaration.
        declaration: Box<Declaration>,
        /// The new generation, or why there is none.
        reply: GenerationReply,
    },
    /// Starts a plugin of the same name beside the one that serves, and ends it again; answers whether it got ready and its
    /// backend is well. A plugin that needs its directory for itself is not tried.
    Try {
        /// The declaration to be tried.
        declaration: Box<Declaration>,
        /// Why a swap to it would be of no use now.
        reply: Reply<Result<(), HostError>>,
    },
    /// Takes note that a generation has a thread that is stuck in the kernel. If it is the one that callers reach,
    /// starts another one of the same declaration beside it, which takes over when it is ready; then the old one is
    /// drained and ended, or abandoned. Repeating it changes nothing.
    Replace {
        /// The generation's number.
        generation: u64,
    },
    /// Drains and ends the plugin for good; answers when it is dead.
    Stop {
        /// Sent at the end.
        reply: Reply<()>,
    },
}

/// Waits for the new generation, or for why there is none.
pub type GenerationReply = Reply<Result<u64, HostError>>;

/// Why a restart or a swap came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// One at a time.
    #[error("another restart, swap, trial or stop of plugin {plugin} is under way")]
    Busy {
        /// The plugin's name.
        plugin: String,
    },
    /// The new generation was of no use.
    #[error("the new generation of plugin {plugin} did not get ready: {why}")]
    NotReady {
        /// The plugin's name.
        plugin: String,
        /// The reason, in words.
        why: String,
    },
    /// A plugin cannot become another one's.
    #[error("plugin {plugin} cannot be swapped for {other}, which has another name or kind")]
    Other {
        /// The plugin's name.
        plugin: String,
        /// The name that was declared.
        other: String,
    },
    /// The declaration is of no use.
    #[error("the declaration is refused")]
    Declaration(#[from] DeclarationError),
}
