//! How a process is confined before it becomes a plugin: by itself, in a program of one thread that is then replaced.
//!
//! The plugin host starts `oxlet-confine ORDER PROGRAM [ARGUMENT...]`. It carries the [`Order`] out, and executes the
//! program in its own place: the process id, the inherited socket and the environment stay as they are. So what is
//! ordered holds from the plugin's first instruction, whoever wrote it, and needs no `unsafe` between fork and exec.
//!
//! What the machine refuses is told on standard output, a [`Word`] a line, and the plugin starts nevertheless. The output's end
//! says that the plugin's own program runs: it gets `/dev/null` there.

mod apply;
mod capabilities;
mod order;
mod system_calls;
mod tmp;

pub use apply::run;
pub use capabilities::Capabilities;
pub use order::{Order, Word};
pub use system_calls::SystemCalls;
