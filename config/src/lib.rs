//! The agent's configuration: the kubelet's configuration file, drop-ins and flags, and our plugin file.
//!
//! Two stages. The first only parses the command line ([`flags`]); the second reads the files and merges everything
//! into one checked [`NodeConfig`] ([`load()`]). Nothing here is global, and nothing that is returned can be wrong in
//! a way that the kubelet would have refused.
//!
//! To read, in this order: `load` (the whole way), `kubelet_configuration` (the type), `defaults`, `validation`,
//! `flags`, `load::drop_in`, `document` (how text becomes settings, and how errors name their field), `feature_gates`,
//! `plugins`, `alone` (a node without a file), `unsupported_fields` (what this version does with each setting).

mod alone;
mod credential_providers;
mod defaults;
mod document;
mod error;
mod feature_gates;
mod flags;
mod kubelet_configuration;
mod load;
mod names;
mod plugins;
mod unsupported_fields;
mod validation;
mod version;

pub use alone::{
    AloneError, KeptRuntime, SHIPPED_NETWORK, Standalone, StandaloneFacts, StandaloneRuntime,
};
pub use credential_providers::{CredentialProvider, CredentialProviderError};
pub use document::DocumentError;
pub use document::source::FileError;
pub use error::ConfigError;
pub use feature_gates::{FeatureGates, GateError};
pub use flags::{FlagError, KubeletFlags};
pub use kubelet_configuration::*;
pub use load::{HostFacts, Invocation, NodeConfig, load, parse_configuration};
pub use plugins::{
    PluginConfig, PluginConfinement, PluginError, PluginFile, PluginKind, PluginRole, PluginStart,
    from_endpoint,
};
pub use unsupported_fields::{Compared, Honour, without_effect};
pub use validation::{CgroupVersion, Violation, Violations, validate};
pub use version::KUBERNETES as KUBERNETES_VERSION;
