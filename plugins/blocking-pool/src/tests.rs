//! The laws of the pool, with threads that really hang.

use std::io::{PipeReader, PipeWriter, Read, pipe};
use std::sync::atomic::AtomicUsize;
use std::thread;

use futures_util::future::join_all;

use super::*;

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);

async fn pool(places: usize) -> BlockingPool {
    BlockingPool::new(
        sdk::testing::health(tempfile::tempdir().unwrap().path()).await,
        places,
    )
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
    tokio::time::timeout(LONG, looked).await.expect(what);
}

#[tokio::test]
async fn work_is_done_on_another_thread_and_answered() {
    let pool = pool(2).await;
    let here = thread::current().id();
    let there = pool.run("a look", LONG, move || Ok(thread::current().id()));
    assert_ne!(there.await.unwrap(), here);
    assert_eq!(
        pool.run("endless", Duration::MAX, || Ok(7)).await.unwrap(),
        7
    );
    let refused: Result<(), _> = pool
        .run("a look", LONG, || Err(Status::not_found("nobody")))
        .await;
    assert_eq!(refused.unwrap_err().message(), "nobody");
}

#[tokio::test]
async fn work_that_hangs_is_answered_at_its_deadline_and_counted_until_it_ends() {
    let pool = pool(2).await;
    let (reader, writer) = hangs();
    let answer = pool
        .run("reading /volume", SHORT, move || hang(reader))
        .await
        .unwrap_err();
    assert_eq!(answer.code(), Code::DeadlineExceeded);
    assert_eq!(answer.message(), "reading /volume did not end within 200ms");
    assert_eq!(answer.metadata().get(ABANDONED_HEADER).unwrap(), "1");
    assert_eq!(pool.abandoned(), 1);
    drop(writer);
    until("the thread is counted off", || pool.abandoned() == 0).await;
}

#[tokio::test]
async fn work_that_hangs_delays_nobody_else() {
    let pool = pool(1).await;
    let mut writers = Vec::new();
    for count in 1..=5 {
        let (reader, writer) = hangs();
        writers.push(writer);
        let hung = pool.run("hanging", SHORT / 10, move || hang(reader)).await;
        assert_eq!(hung.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(pool.abandoned(), count);
        assert_eq!(pool.run("other work", LONG, || Ok(7)).await.unwrap(), 7);
    }
    drop(writers);
    until("all are counted off", || pool.abandoned() == 0).await;
}

#[tokio::test]
async fn work_beyond_the_places_waits_and_its_waiting_counts() {
    let pool = pool(1).await;
    let (reader, writer) = hangs();
    let first = tokio::spawn({
        let pool = pool.clone();
        async move { pool.run("first", LONG, move || hang(reader)).await }
    });
    until("the place is taken", || {
        pool.places.available_permits() == 0
    })
    .await;
    let second = pool.run("second", SHORT, || Ok(())).await.unwrap_err();
    assert_eq!(
        second.message(),
        "second did not end within 200ms: all threads are busy"
    );
    assert_eq!(pool.abandoned(), 0, "it never began");
    assert!(second.metadata().is_empty());
    let third = pool.run("third", LONG, || Ok(3));
    drop(writer);
    assert_eq!(third.await.unwrap(), 3);
    assert_eq!(first.await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn no_more_than_the_places_run_at_once() {
    let pool = pool(3).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = || {
        let (now, most) = (now.clone(), most.clone());
        pool.run("counting", LONG, move || {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            Cancel::current().sleep(Duration::from_millis(1))?;
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
    let pool = pool(1).await;
    for _ in 0..3 {
        let answer: Result<(), _> = pool
            .run("counting", LONG, || {
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
        assert_eq!(pool.run("other work", LONG, || Ok(7)).await.unwrap(), 7);
    }
}

#[tokio::test]
async fn work_that_listens_ends_before_it_is_given_up() {
    let pool = pool(1).await;
    // Half a second to listen, however busy the machine is.
    let within = Duration::from_secs(2);
    let answer = pool.run("walking", within, || {
        loop {
            Cancel::current().sleep(Duration::from_millis(1))?;
        }
        #[expect(unreachable_code, reason = "tells the type")]
        Ok(())
    });
    let answer = answer.await.unwrap_err();
    assert_eq!(answer.message(), "walking did not end within 2s");
    assert!(answer.metadata().is_empty(), "nothing was given up");
    assert_eq!(pool.abandoned(), 0);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_work_that_is_watched_on() {
    let pool = pool(1).await;
    let (reader, writer) = hangs();
    let call = pool.run("hanging", SHORT, move || hang(reader));
    let waited = tokio::time::timeout(SHORT / 20, call).await;
    assert!(waited.is_err());
    assert_eq!(pool.abandoned(), 0, "its time is not over");
    // The one place is free again when the deadline is over, and not before.
    let next = pool.run("next", LONG, || Ok(())).await;
    next.unwrap();
    assert_eq!(pool.abandoned(), 1);
    drop(writer);
    until("it is counted off", || pool.abandoned() == 0).await;
}

#[tokio::test]
async fn threads_are_used_again_and_few_are_kept() {
    let pool = pool(16).await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        seen.insert(
            pool.run("a look", LONG, || Ok(thread::current().id()))
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
    let pool = pool(ABANDONED_MAX).await;
    let (readers, writers): (Vec<_>, Vec<_>) = (0..ABANDONED_MAX).map(|_| hangs()).unzip();
    let hung = readers.into_iter().map(|reader| {
        let work = move || hang(reader);
        pool.run("hanging", SHORT, work)
    });
    join_all(hung).await;
    assert_eq!(pool.abandoned(), ABANDONED_MAX);
    let refusal = pool.run("one more", LONG, || Ok(())).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unavailable);
    assert_eq!(
        refusal.message(),
        "one more was not begun: 64 threads are stuck"
    );
    drop(writers);
    until("all are counted off", || pool.abandoned() == 0).await;
    pool.run("one more", LONG, || Ok(())).await.unwrap();
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
        sender.send(BlockingPool::new(setup.health, 1)).unwrap();
        async { Ok(sdk::Routes::default()) }
    })
    .await
    .unwrap();
    let pool = receiver.recv().unwrap();
    let mut reports = plugin
        .base()
        .health(proto::plugin::HealthRequest {
            interval_ms: 60_000,
        })
        .await
        .unwrap()
        .into_inner();
    let (reader, writer) = hangs();
    pool.run("hanging", SHORT, move || hang(reader))
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
        assert_eq!(format_duration(Duration::from_millis(millis)), words);
    }
}
