//! What a simulated server has in place of the machine's clock and of chance: both belong to the thread that it is on.

use std::cell::Cell;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

thread_local! {
    static SIMULATION: Cell<Option<Simulation>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Simulation {
    start: Timestamp,
    began: Instant,
    /// The state of SplitMix64.
    state: u64,
}

/// From now on the time of day is `start`, and goes along with tokio's clock; what is drawn follows from `seed`.
pub(crate) fn begin(start: Timestamp, seed: u64) {
    let began = Instant::now();
    SIMULATION.set(Some(Simulation {
        start,
        began,
        state: seed,
    }));
}

/// Gives the thread the machine's clock and chance again.
pub(crate) fn end() {
    SIMULATION.set(None);
}

/// Tells whether this thread has a simulation: what is not its clock's then has no place in an answer.
pub(crate) fn is_on() -> bool {
    SIMULATION.get().is_some()
}

/// Returns the simulated time of day; none on a thread without a simulation.
pub(crate) fn now() -> Option<Timestamp> {
    let simulation = SIMULATION.get()?;
    let passed = SignedDuration::try_from(simulation.began.elapsed()).ok()?;
    simulation.start.checked_add(passed).ok()
}

/// Draws the next number; none on a thread without a simulation.
pub(crate) fn random() -> Option<u64> {
    let mut simulation = SIMULATION.get()?;
    simulation.state = simulation.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = simulation.state;
    SIMULATION.set(Some(simulation));
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some(mixed ^ (mixed >> 31))
}
