//! What a pod's network costs: by programs and built in, in the same run. Printed for `docs/network.md`.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::rig::{Doer, Node, add_with, programs};

const PODS: usize = 15;

/// The medians of ADD and DEL.
async fn medians(doer: Doer) -> [Duration; 2] {
    let node = Node::new();
    let bridge = node.bridge(json!({ "ipMasq": true }));
    node.network(json!([bridge, { "type": "portmap", "capabilities": { "portMappings": true } }]));
    let (_process, mut client) = node.start(doer).await;
    let (mut adds, mut deletes) = (Vec::new(), Vec::new());
    for number in 0..PODS {
        let sandbox = node.sandbox(&format!("p{number}"));
        let before = Instant::now();
        let request = add_with(&sandbox, &[(8078, 80, "TCP", "")]);
        client.add(request).await.unwrap();
        adds.push(before.elapsed());
        let before = Instant::now();
        client.delete(sandbox.delete()).await.unwrap();
        deletes.push(before.elapsed());
    }
    [adds, deletes].map(|mut all| {
        all.sort();
        all[PODS / 2]
    })
}

#[tokio::test]
async fn built_in_steps_take_less_time_than_their_programs() {
    if !programs(&["bridge", "host-local", "portmap"]) {
        return;
    }
    let by_programs = medians(Doer::Programs).await;
    let built_in = medians(Doer::BuiltIn).await;
    println!("ADD, DEL by programs: {by_programs:?}, built in: {built_in:?}");
    for (one, other) in built_in.iter().zip(by_programs) {
        assert!(*one < other, "{built_in:?} {by_programs:?}");
    }
}
