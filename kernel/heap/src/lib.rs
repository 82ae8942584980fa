//! The process's memory: one arena for all threads, free pages go back to the node, and so do those of code that is
//! not in use.
//!
//! Left alone, glibc gives every thread an arena of its own and keeps what a burst once took, between the blocks that
//! outlive it. On a node with 110 pods that is a third of the agent's heap. With another C library both calls do
//! nothing.

#[cfg(target_os = "linux")]
mod code;

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

/// Between two times that free pages go back: after a burst, soon enough; at rest, nothing that can be measured.
const EVERY: Duration = Duration::from_secs(10);
/// Of so many times one takes the pages of code as well: what is in use is mapped again by a few hundred faults.
const CODE_EVERY: u32 = 6;

/// All threads allocate from one arena from now on, and large blocks are pages of their own, so that they go back when
/// they are freed. To be called before there is a second thread.
pub fn set_up() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    gnu::set_up();
}

/// Gives the pages back on which nothing lies, and those of code that has not run for a while, again and again: what a
/// start or a burst took goes back when it is over.
pub async fn keep_small() -> Infallible {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut times: u32 = 0;
    #[cfg(target_os = "linux")]
    let mut code = None;
    loop {
        ticks.tick().await;
        give_back();
        // The first time is the start itself.
        if times % CODE_EVERY == 1 {
            #[cfg(target_os = "linux")]
            code.get_or_insert_with(code::Code::find).unmap();
        }
        times = times.wrapping_add(1);
    }
}

fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    gnu::give_back();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod gnu {
    /// From this size on a block is mapped by itself, bytes. glibc's default, which a program's large blocks would
    /// raise.
    const LARGE: libc::c_int = 128 * 1024;

    pub(super) fn set_up() {
        // SAFETY: mallopt takes two numbers, by value, and locks what it changes. A refusal leaves the default.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        }
    }

    pub(super) fn give_back() {
        // SAFETY: malloc_trim takes a number, by value, and locks each arena that it walks through.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of this process that no file backs and that are in memory.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let number = line.unwrap().split_whitespace().nth(1).unwrap();
        number.parse::<usize>().unwrap() * 1024
    }

    #[test]
    fn what_lay_between_blocks_that_stay_goes_back() {
        set_up();
        // One of a hundred stays, as a pod's objects stay after the burst of its start.
        let mut blocks: Vec<_> = (0..32_000).map(|_| Some(vec![1_u8; 1024])).collect();
        for (nth, block) in blocks.iter_mut().enumerate() {
            if nth % 100 != 0 {
                *block = None;
            }
        }
        let before = resident();
        give_back();
        let after = resident();
        assert!(
            after + 16 * 1024 * 1024 < before,
            "{before} bytes before, {after} after"
        );
        assert!(blocks.iter().flatten().all(|block| block[1023] == 1));
    }
}
