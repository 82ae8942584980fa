//! Whose turn it is at a claim.

use super::*;

#[test]
fn jobs_at_one_claim_run_in_the_order_of_asking() {
    let mut locks = ClaimLocks::default();
    let claims = |names: &[&str]| names.iter().map(|name| key(name)).collect();
    locks.request(1, claims(&["a"]));
    locks.request(2, claims(&["a", "b"]));
    locks.request(3, claims(&["b"]));
    locks.request(4, claims(&["c"]));
    locks.request(5, claims(&[]));
    // Job 3 came after 2, which waits for its claim: it does not overtake.
    assert_eq!(locks.start(), [1, 4, 5]);
    assert_eq!(locks.start(), [0; 0]);
    assert_eq!(locks.waiting(), 2);
    locks.release(1);
    assert_eq!(locks.start(), [2]);
    locks.release(2);
    assert_eq!(locks.start(), [3]);
}

#[test]
fn a_job_that_is_given_up_makes_room() {
    let mut locks = ClaimLocks::default();
    for job in 1..=3 {
        locks.request(job, [key("a")].into());
    }
    assert_eq!(locks.start(), [1]);
    locks.release(2);
    locks.release(1);
    assert_eq!(locks.start(), [3]);
}
