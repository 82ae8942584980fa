//! The laws of the bench, with threads that really hang.

use std::io::{PipeReader, PipeWriter, Read, pipe};
use std::sync::atomic::AtomicUsize;
use std::thread;

use futures_util::future::join_all;

use super::*;
use crate::ground::health;

const SOON: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(20);

async fn bench(places: usize) -> Bench {
    Bench::new(health().await, places)
}

/// Hangs in the kernel until the other end is closed.
fn hang(mut reader: PipeReader) -> Result<usize, Status> {
    reader
        .read(&mut [0])
        .map_err(|error| Status::internal(error.to_string()))
}

fn hangs() -> (PipeReader, PipeWriter) {
    pipe().unwrap()
}

async fn until(what: &str, fact: impl Fn() -> bool) {
    let looked = async {
        while !fact() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LATE, looked).await.expect(what);
}

#[tokio::test]
async fn work_is_done_on_another_thread_and_answered() {
    let bench = bench(2).await;
    let here = thread::current().id();
    let there = bench.run("a look", LATE, move || Ok(thread::current().id()));
    assert_ne!(there.await.unwrap(), here);
    assert_eq!(
        bench.run("endless", Duration::MAX, || Ok(7)).await.unwrap(),
        7
    );
    let refused: Result<(), _> = bench
        .run("a look", LATE, || Err(Status::not_found("nobody")))
        .await;
    assert_eq!(refused.unwrap_err().message(), "nobody");
}

#[tokio::test]
async fn work_that_hangs_is_answered_at_its_deadline_and_counted_until_it_ends() {
    let bench = bench(2).await;
    let (reader, writer) = hangs();
    let answer = bench
        .run("reading /volume", SOON, move || hang(reader))
        .await
        .unwrap_err();
    assert_eq!(answer.code(), Code::DeadlineExceeded);
    assert_eq!(answer.message(), "reading /volume did not end within 200ms");
    assert_eq!(answer.metadata().get(GIVEN_UP).unwrap(), "1");
    assert_eq!(bench.abandoned(), 1);
    drop(writer);
    until("the thread is counted off", || bench.abandoned() == 0).await;
}

#[tokio::test]
async fn work_that_hangs_delays_nobody_else() {
    let bench = bench(1).await;
    let mut writers = Vec::new();
    for count in 1..=5 {
        let (reader, writer) = hangs();
        writers.push(writer);
        let hung = bench.run("hanging", SOON / 10, move || hang(reader)).await;
        assert_eq!(hung.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(bench.abandoned(), count);
        assert_eq!(bench.run("other work", LATE, || Ok(7)).await.unwrap(), 7);
    }
    drop(writers);
    until("all are counted off", || bench.abandoned() == 0).await;
}

#[tokio::test]
async fn work_beyond_the_places_waits_and_its_waiting_counts() {
    let bench = bench(1).await;
    let (reader, writer) = hangs();
    let first = tokio::spawn({
        let bench = bench.clone();
        async move { bench.run("first", LATE, move || hang(reader)).await }
    });
    until("the place is taken", || {
        bench.places.available_permits() == 0
    })
    .await;
    let second = bench.run("second", SOON, || Ok(())).await.unwrap_err();
    assert_eq!(
        second.message(),
        "second did not end within 200ms: all threads are busy"
    );
    assert_eq!(bench.abandoned(), 0, "it never began");
    assert!(second.metadata().is_empty());
    let third = bench.run("third", LATE, || Ok(3));
    drop(writer);
    assert_eq!(third.await.unwrap(), 3);
    assert_eq!(first.await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn no_more_than_the_places_run_at_once() {
    let bench = bench(3).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = || {
        let (now, most) = (now.clone(), most.clone());
        bench.run("counting", LATE, move || {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            Cancel::here().rest(Duration::from_millis(1))?;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })
    };
    for done in join_all((0..100).map(|_| work())).await {
        done.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_panic_is_an_answer_and_the_thread_works_on() {
    let bench = bench(1).await;
    for _ in 0..3 {
        let answer: Result<(), _> = bench
            .run("counting", LATE, || {
                assert_eq!(thread::current().name(), None, "it has a name");
                Ok(())
            })
            .await;
        let answer = answer.unwrap_err();
        assert_eq!(answer.code(), Code::Internal);
        assert!(
            answer.message().starts_with("counting panicked: assertion"),
            "{answer}"
        );
        assert_eq!(bench.run("other work", LATE, || Ok(7)).await.unwrap(), 7);
    }
}

#[tokio::test]
async fn work_that_listens_ends_before_it_is_given_up() {
    let bench = bench(1).await;
    // Half a second to listen, however busy the machine is.
    let within = Duration::from_secs(2);
    let answer = bench.run("walking", within, || {
        loop {
            Cancel::here().rest(Duration::from_millis(1))?;
        }
        #[expect(unreachable_code, reason = "tells the type")]
        Ok(())
    });
    let answer = answer.await.unwrap_err();
    assert_eq!(answer.message(), "walking did not end within 2s");
    assert!(answer.metadata().is_empty(), "nothing was given up");
    assert_eq!(bench.abandoned(), 0);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_work_that_is_watched_on() {
    let bench = bench(1).await;
    let (reader, writer) = hangs();
    let call = bench.run("hanging", SOON, move || hang(reader));
    let waited = tokio::time::timeout(SOON / 20, call).await;
    assert!(waited.is_err());
    assert_eq!(bench.abandoned(), 0, "its time is not over");
    // The one place is free again when the deadline is over, and not before.
    let next = bench.run("next", LATE, || Ok(())).await;
    next.unwrap();
    assert_eq!(bench.abandoned(), 1);
    drop(writer);
    until("it is counted off", || bench.abandoned() == 0).await;
}

#[tokio::test]
async fn threads_are_used_again_and_few_are_kept() {
    let bench = bench(16).await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        seen.insert(
            bench
                .run("a look", LATE, || Ok(thread::current().id()))
                .await
                .unwrap(),
        );
    }
    assert!(
        seen.len() < 10,
        "{} threads for 50 pieces of work",
        seen.len()
    );
}

#[tokio::test]
async fn too_many_stuck_threads_end_in_a_refusal() {
    let bench = bench(ABANDONED_MOST).await;
    let (readers, writers): (Vec<_>, Vec<_>) = (0..ABANDONED_MOST).map(|_| hangs()).unzip();
    let hung = readers.into_iter().map(|reader| {
        let work = move || hang(reader);
        bench.run("hanging", SOON, work)
    });
    join_all(hung).await;
    assert_eq!(bench.abandoned(), ABANDONED_MOST);
    let refusal = bench.run("one more", LATE, || Ok(())).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unavailable);
    assert_eq!(
        refusal.message(),
        "one more was not begun: 64 threads are stuck"
    );
    drop(writers);
    until("all are counted off", || bench.abandoned() == 0).await;
    bench.run("one more", LATE, || Ok(())).await.unwrap();
}

#[tokio::test]
async fn the_number_of_abandoned_threads_is_told_with_the_health() {
    let home = tempfile::tempdir().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let info = sdk::Info {
        name: "bench",
        version: "1",
        kind: sdk::Kind::Storage,
        capabilities: vec![],
    };
    let plugin = sdk::testing::start(home.path(), info, serde_json::Value::Null, move |setup| {
        sender.send(Bench::new(setup.health, 1)).unwrap();
        async { Ok(sdk::Routes::default()) }
    })
    .await
    .unwrap();
    let bench = receiver.recv().unwrap();
    let mut reports = plugin
        .base()
        .health(proto::plugin::HealthRequest {
            interval_ms: 60_000,
        })
        .await
        .unwrap()
        .into_inner();
    let (reader, writer) = hangs();
    bench
        .run("hanging", SOON, move || hang(reader))
        .await
        .unwrap_err();
    let mut told = Vec::new();
    let mut writer = Some(writer);
    while told.last().map(String::as_str) != Some("0") || told.len() < 2 {
        let report = reports.message().await.unwrap().unwrap();
        told.push(report.attributes["abandoned"].clone());
        told.dedup();
        if told.last().map(String::as_str) == Some("1") {
            writer.take();
        }
    }
    assert_eq!(told.last().unwrap(), "0");
    assert!(told.contains(&"1".to_owned()), "{told:?}");
}

#[test]
fn spans_are_written_as_upstream_does() {
    for (millis, words) in [
        (0, "0s"),
        (250, "250ms"),
        (1500, "1.5s"),
        (29_999, "30s"),
        (30_000, "30s"),
        (120_000, "2m0s"),
        (90_000, "1m30s"),
        (600_000, "10m0s"),
    ] {
        assert_eq!(in_words(Duration::from_millis(millis)), words);
    }
}
