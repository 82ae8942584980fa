//! The pod as the runtime has it: its observed state, events of changes, its handler.

pub mod pleg;
pub mod runtime_class;
pub mod runtime_state;
pub mod start_limit;
