//! What a pod sees of the network: name servers, its hosts file and host name, variables for services.

pub mod dns;
pub mod hosts;
pub mod services;
