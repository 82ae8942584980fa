//! Drivers that register wrongly: refused, notified of it, and no hindrance to other drivers.

use super::*;

on_each_runtime! {
    a_driver_that_introduces_itself_wrongly_is_refused_and_in_nobodys_way,
    a_driver_that_introduces_itself_twice_is_one_driver,
}

async fn a_driver_that_introduces_itself_wrongly_is_refused_and_in_nobodys_way(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    let mut wrong = Vec::new();
    for how in ["other-name", "wrong-version", "silent", "plain-file"] {
        let name = format!("{how}.example.com");
        let flag = format!("--registration={how}");
        wrong.push(driver(&rig.node_rig, &rig.dir, &name, &[&flag]).await);
    }
    rig.until_shown("the refused are shown", |shown| {
        let refused = shown["refused"].to_string();
        let all = ["other-name.example.com", "wrong-version.example.com"];
        all.iter().all(|name| refused.contains(name))
    })
    .await;
    let told = |driver: &CsiDriver| {
        let told = driver.done("NotifyRegistrationStatus").unwrap();
        told.last().cloned().unwrap_or_default()
    };
    wait_until(
        CONVERGENCE_TIMEOUT,
        "the wrong version is told why",
        async || {
            let told = told(&wrong[1]);
            told["plugin_registered"] == false
                && told["error"].as_str().is_some_and(|why| !why.is_empty())
        },
    )
    .await
    .unwrap();
    rig.claim("web", json!({}));
    rig.run("web", "web").await;
    let shown = rig.shown().await;
    assert_eq!(registered(&shown).collect::<Vec<_>>(), [DRIVER]);
    println!("{:#}", shown["refused"]);
    rig.remove_pod("web").await;
    rig.until_unused().await;
}

async fn a_driver_that_introduces_itself_twice_is_one_driver(on: TestRuntime) {
    let flags = ["--registration=twice"];
    let Some(mut rig) = CsiRig::start(on, &flags, json!({})).await else {
        return;
    };
    rig.claim("web", json!({}));
    rig.run("web", "web").await;
    let shown = rig.shown().await;
    assert_eq!(registered(&shown).collect::<Vec<_>>(), [DRIVER]);
    // One of its two sockets goes: it is still there.
    fs::remove_file(rig.driver.registration_socket()).unwrap();
    rig.claim("more", json!({}));
    rig.run("more", "more").await;
    rig.remove_pod("web").await;
    rig.remove_pod("more").await;
    rig.until_unused().await;
    rig.driver.terminate().await.unwrap();
    rig.until_shown("the driver is gone", |shown| registered(shown).count() == 0)
        .await;
}
