//! What a registry says with a refusal, and how long it asks to wait.

use super::*;

const TOO_MANY: &str = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow\u001b[2J\ndown"}]}"#;

fn too_many(retry_after: &str) -> Answer {
    Answer {
        status: 429,
        ..Answer::ok(TOO_MANY.as_bytes())
    }
    .with("content-type", "application/json")
    .with("retry-after", retry_after)
}

#[tokio::test]
async fn a_refusal_has_the_registrys_own_words() {
    let rig = Rig::new().await;
    let reference = rig.registry.serve(&image(), "x:1");
    rig.registry.script(|_| Some(too_many("86400")));
    let failure = rig.failure(&reference).await.to_string();
    assert_eq!(
        failure,
        "status 429, expected 200: TOOMANYREQUESTS: slow[2J down; it asks to wait 86400s"
    );
    assert_eq!(
        rig.registry.requests().len(),
        1,
        "it asked for more than a pull waits"
    );
    // The next pull does not ask before it may.
    let failure = rig.failure(&reference).await;
    assert!(matches!(failure, Failure::Waiting { .. }), "{failure:?}");
    assert!(failure.to_string().contains("TOOMANYREQUESTS"), "{failure}");
    assert_eq!(rig.registry.requests().len(), 1);
    // Another user is counted apart.
    rig.registry.script(|_| None);
    let other = Pull {
        auth: basic(),
        ..pull(&reference)
    };
    rig.store.pull(other).await.unwrap();
}

#[tokio::test]
async fn a_pull_waits_as_long_as_a_registry_asks() {
    let rig = Rig::new().await;
    let reference = rig.registry.serve(&image(), "x:1");
    let mut first = None;
    let asked = Arc::new(std::sync::Mutex::new(None));
    let seen = asked.clone();
    rig.registry.script(move |_| {
        let began = *first.get_or_insert_with(Instant::now);
        if seen.lock().unwrap().is_none() && began.elapsed() < Duration::from_millis(500) {
            return Some(too_many("1"));
        }
        seen.lock().unwrap().get_or_insert(began.elapsed());
        None
    });
    rig.pull(&reference).await.unwrap();
    let waited = asked.lock().unwrap().unwrap();
    assert!(waited >= Duration::from_millis(990), "{waited:?}");
    assert!(waited < Duration::from_secs(10), "{waited:?}");
}

#[tokio::test]
async fn words_without_end_are_cut_and_not_waited_for() {
    let rig = Rig::with(Limits {
        attempts: 1,
        ..limits()
    })
    .await;
    let reference = rig.registry.serve(&image(), "x:1");
    rig.registry.script(|_| {
        let endless = Answer {
            status: 403,
            hangs: true,
            ..Answer::ok(&[b'x'; 200_000])
        };
        Some(endless.with("content-type", "text/plain"))
    });
    let failure = rig.failure(&reference).await.to_string();
    assert!(failure.len() < 600, "{} bytes", failure.len());
    assert!(failure.contains("status 403: xxx"), "{failure}");
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let rig = Rig::with(Limits {
        attempts: 1,
        ..limits()
    })
    .await;
    let reference = rig.registry.serve(&image(), "x:1");
    rig.registry
        .script(|_| Some(Answer::ok(b"{}").with("x-long", &"x".repeat(400_000))));
    assert!(matches!(
        rig.failure(&reference).await,
        Failure::Connection(_)
    ));
}
