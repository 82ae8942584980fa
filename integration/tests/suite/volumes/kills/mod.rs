//! Five hundred runs in which a storage plugin or a CSI driver is killed at its work, at every step of stage, publish,
//! unpublish and unstage, and at random moments. The caller goes on as the agent does. Nothing may
//! leak, be lost, or be there twice.
//!
//! A run that fails names its number; `OXLET_KILLS=FIRST-LAST` repeats those runs alone, and tells
//! of each what happened.

mod agent;
mod cycles;
mod plugin;
mod rig;

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::rc::Rc;

use integration::chaos::Chaos;
use integration::doubles::csi_driver::{DriverFault, DriverFaultAction, FaultPoint};
use proto::storage::Medium;

use self::rig::{KillRig, Victim};

const RUNS: u64 = 500;
const RUNS_WANTED: &str = "OXLET_KILLS";
const LANES: u64 = 4;
/// Block volumes take loop devices, of which a node has few.
const BLOCK_EVERY: u64 = 5;
const CALLS: [&str; 4] = [
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
];
const STEPS: [FaultPoint; 3] = [FaultPoint::Before, FaultPoint::Between, FaultPoint::After];

#[tokio::test]
async fn five_hundred_kills_leak_lose_and_double_nothing() {
    let runs = wanted(RUNS);
    let began = tokio::time::Instant::now();
    let local = tokio::task::LocalSet::new();
    let lanes = (0..LANES).map(|number| {
        let runs = runs.clone();
        local.spawn_local(async move {
            let lane = Rc::new(KillRig::start().await);
            for run in runs.filter(|run| run % LANES == number) {
                watched(&lane, run).await;
            }
        })
    });
    let lanes: Vec<_> = lanes.collect();
    local.await;
    for lane in lanes {
        if let Err(error) = lane.await {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    println!("runs {runs:?} in {:?}", began.elapsed());
}

fn wanted(runs: u64) -> RangeInclusive<u64> {
    let Ok(text) = std::env::var(RUNS_WANTED) else {
        return 0..=runs - 1;
    };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    first.parse().unwrap()..=last.parse().unwrap()
}

/// One run; if it fails, everything that was seen is shown.
async fn watched(lane: &Rc<KillRig>, run: u64) {
    lane.begin();
    let ended = tokio::task::spawn_local(once(lane.clone(), run)).await;
    if std::env::var_os(RUNS_WANTED).is_some() {
        println!("run {run}\n  {}", lane.told());
    }
    if let Err(error) = ended {
        eprintln!("run {run}\n{}", lane.describe().await);
        std::panic::resume_unwind(error.into_panic());
    }
}

async fn once(lane: Rc<KillRig>, run: u64) {
    let mut chaos = Chaos::new(run.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut next = || Chaos::new(chaos.below(u64::MAX));
    let (victims, kills) = ordered(&lane, run).await;
    // Boxed: together they are too large for the stack of a test.
    let mut lives: Vec<Pin<Box<dyn Future<Output = ()>>>> = vec![
        Box::pin(cycles::claimed(lane.clone(), run, 0, next())),
        Box::pin(cycles::claimed(lane.clone(), run, 1, next())),
        Box::pin(cycles::inline(lane.clone(), run, next())),
        Box::pin(cycles::empty_dir(
            lane.clone(),
            run,
            Medium::Default,
            next(),
        )),
        Box::pin(cycles::empty_dir(lane.clone(), run, Medium::Memory, next())),
        Box::pin(cycles::files(lane.clone(), run, "configmap", next())),
        Box::pin(cycles::files(lane.clone(), run, "secret", next())),
        Box::pin(cycles::local(lane.clone(), run, next())),
    ];
    if run.is_multiple_of(BLOCK_EVERY) {
        lives.push(Box::pin(cycles::block(lane.clone(), run, next())));
    }
    let lived = async {
        let mut living = tokio::task::JoinSet::new();
        for life in lives {
            living.spawn_local(life);
        }
        living.join_all().await;
        lane.end();
    };
    let kills = lane.kill(victims, kills, next());
    let killed = async { tokio::join!(lived, kills) };
    tokio::select! {
        _ = killed => {}
        never = lane.revive() => never,
    }
    lane.with_driver(|driver| driver.set_faults(&[]).unwrap())
        .await;
    lane.assert_clean().await;
}

/// Orders what is to happen in this run: a crash at a step of a call, or kills at random moments, or both.
async fn ordered(lane: &KillRig, run: u64) -> (&'static [Victim], u64) {
    let steps = CALLS.len() * STEPS.len();
    let step = usize::try_from(run).unwrap() % (steps * 2);
    let fault = (step < steps).then(|| {
        let call = CALLS[step % CALLS.len()];
        DriverFault::at(call, STEPS[step / CALLS.len()], DriverFaultAction::Crash).times(2)
    });
    let faults: Vec<DriverFault> = fault.into_iter().collect();
    lane.with_driver(|driver| driver.set_faults(&faults).unwrap())
        .await;
    match (faults.is_empty(), run % 5) {
        (false, 0) => (&[Victim::Csi, Victim::Local], 1),
        (false, _) => (&[Victim::Local], 1),
        (true, 0) => (&[Victim::Driver], 2),
        (true, 1) => (&[Victim::Csi], 2),
        (true, 2) => (&[Victim::Csi, Victim::Driver], 3),
        (true, _) => (&[Victim::Csi, Victim::Driver, Victim::Local], 3),
    }
}
