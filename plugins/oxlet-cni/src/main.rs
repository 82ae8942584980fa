//! The CNI program by which a container runtime with a CNI configuration of its own, such as containerd or CRI-O, calls
//! the node's network plugin: ADD, DEL, CHECK, STATUS and GC are handed over as `oxlet.network.v1`.
//!
//! Its configuration in the runtime's folder:
//! `{"type": "oxlet-cni", "socket": "/var/lib/kubelet/oxlet/plugins/NAME.sock"}`, with `network` (the name of the
//! network, else the default one), `owner` (the runtime's name, else `oxlet-cni`) and `timeoutSeconds` (80) as wanted. It is
//! a chain of one: what else is to be done belongs into the network plugin's own chain.
//!
//! It keeps nothing, so that it shares no cache with the runtime, and never answers with a success that it was not
//! given.

mod answer;
mod call;
mod input;

use std::io::Write;
use std::process::ExitCode;

use crate::answer::Failure;
use crate::input::{Input, Verb};

fn main() -> ExitCode {
    let (text, code) = match run() {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(failure) => (failure.to_json(), ExitCode::FAILURE),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> Result<String, Failure> {
    let environment = |name: &str| std::env::var(name).unwrap_or_default();
    let verb = Verb::read(&environment)?;
    if verb == Verb::Version {
        return Ok(answer::versions());
    }
    let input = Input::read(verb, &environment, std::io::stdin())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(answer::IO, format!("cannot start: {error}")))?;
    runtime.block_on(call::carry_out(input))
}
