//! The pod as the runtime has it: its observed state, events of changes, its handler, and
//! what follows a call that was broken off.

pub mod call_limit;
pub mod creation;
pub mod pleg;
pub mod runtime_class;
pub mod runtime_state;
