//! The network plugin that does the standard CNI plugins' work itself: by netlink and nf_tables, without a program.
//!
//! Its engine is network-cni's: the folder of networks, what is kept of attachments, their locks. Of each step of a
//! chain [`BuiltIn`] decides whether it is built in, by its type and a strict reading of its configuration ([`conf`]);
//! every other step is its program's. A module a plugin, in [`main_plugins`] and [`meta_plugins`]; [`host_local`] keeps the
//! addresses, [`links`] and [`nftables`] are the kernel's side, on [`netlink`].

mod address;
mod conf;
mod failure;
mod host_local;
mod inside;
mod interface;
mod links;
mod main_plugins;
mod masquerade;
mod meta_plugins;
mod names;
mod netlink;
mod nftables;
mod sysctl;

use std::sync::Arc;

use network_cni::{Call, Preparation, Step, Steps, Sweep, Work};

use crate::conf::NotBuiltIn;
use crate::main_plugins::{bridge, loopback, ptp};
use crate::meta_plugins::{bandwidth, firewall, portmap, tuning};

const NAME: &str = "network-native";

/// Returns the plugin's answer to `Info`.
pub fn info(version: &'static str) -> sdk::Info {
    sdk::Info {
        name: NAME,
        ..network_cni::info(version)
    }
}

/// Makes network-cni's service such that its DEL takes away as well what this plugin made of the same attachment.
pub async fn build_programs(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
    network_cni::build_with(setup, Arc::new(Swept)).await
}

/// Makes the service; its configuration is network-cni's.
pub async fn build(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
    network_cni::build_with(setup, Arc::new(BuiltIn)).await
}

/// Does the standard plugins' steps in this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltIn;

impl Steps for BuiltIn {
    fn step(&self, call: Call) -> Step {
        match plan(&call) {
            Ok(work) => Step::BuiltIn(work),
            Err(NotBuiltIn(why)) => Step::Program {
                why,
                first: prepare(&call),
                then: sweep(call),
            },
        }
    }
}

/// Runs the program of every step. A program's DEL knows nothing of nf_tables' rules in old versions, and in newer ones only
/// of those of its own backend: they are taken away after it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swept;

impl Steps for Swept {
    fn step(&self, call: Call) -> Step {
        Step::Program {
            why: String::new(),
            first: prepare(&call),
            then: sweep(call),
        }
    }
}

fn plan(call: &Call) -> Result<Work, NotBuiltIn> {
    match call.plugin.as_str() {
        "bridge" => bridge::plan(call),
        "ptp" => ptp::plan(call),
        "loopback" => loopback::plan(call),
        "portmap" => portmap::plan(call),
        "bandwidth" => bandwidth::plan(call),
        "tuning" => tuning::plan(call),
        "firewall" => firewall::plan(call),
        _ => Err(NotBuiltIn("a plugin of another type".to_owned())),
    }
}

/// What is done before a program's ADD: `portmap` sets `route_localnet` as well.
fn prepare(call: &Call) -> Option<Preparation> {
    let opens = call.verb == "ADD" && call.plugin == "portmap";
    opens.then(|| Box::new(portmap::guard) as Preparation)
}

/// What is left to do after a program's DEL.
fn sweep(call: Call) -> Option<Sweep> {
    if call.verb != "DEL" {
        return None;
    }
    match call.plugin.as_str() {
        "bridge" | "ptp" => Some(Box::new(move || {
            let was_there = bridge::masquerade(&call).clear()?;
            if was_there && let Ok(work) = plan(&call) {
                // The program may have given up before it was through.
                work()?;
            }
            Ok(was_there)
        })),
        "portmap" => Some(Box::new(move || portmap::sweep(&call))),
        // The same as the program's, who may have looked for them in the other variant of iptables.
        "firewall" => Some(Box::new(move || firewall::delete(&call).map(|()| false))),
        _ => None,
    }
}
