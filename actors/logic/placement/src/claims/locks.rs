//! Whose turn it is at a claim: what is done to one is done by one job after the other, in the order of asking.

use std::collections::{BTreeMap, BTreeSet};

use super::names::ClaimKey;

/// Jobs by number, and the claims that each needs to itself.
#[derive(Clone, Debug, Default)]
pub struct ClaimLocks {
    /// Jobs run in the order of their numbers where they need the same claim.
    waiting: BTreeMap<u64, BTreeSet<ClaimKey>>,
    running: BTreeMap<u64, BTreeSet<ClaimKey>>,
}

impl ClaimLocks {
    /// Puts a job behind all that need one of its claims. Its number is higher than those before.
    pub fn request(&mut self, job: u64, claims: BTreeSet<ClaimKey>) {
        self.waiting.insert(job, claims);
    }

    /// Takes a job out, running or waiting.
    pub fn release(&mut self, job: u64) {
        self.waiting.remove(&job);
        self.running.remove(&job);
    }

    /// Starts the jobs whose turn it is now, and returns them.
    pub fn start(&mut self) -> Vec<u64> {
        let mut taken: BTreeSet<&ClaimKey> = self.running.values().flatten().collect();
        let mut ready = Vec::new();
        for (job, claims) in &self.waiting {
            if claims.iter().all(|claim| !taken.contains(claim)) {
                ready.push(*job);
            }
            taken.extend(claims);
        }
        for job in &ready {
            if let Some(claims) = self.waiting.remove(job) {
                self.running.insert(*job, claims);
            }
        }
        ready
    }

    /// The number of jobs that wait for others.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
