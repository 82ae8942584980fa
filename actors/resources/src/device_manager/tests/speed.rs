//! How long it takes from a plugin's list to the node's numbers.

use std::time::Instant;

use super::*;

/// On the real clock, the median of one list of each plugin. A test build takes a tenth of this.
const AT_MOST: Duration = Duration::from_millis(100);

#[test]
#[allow(clippy::disallowed_methods, reason = "what is measured is real time")]
fn a_list_of_a_thousand_devices_beside_nine_others_is_told_within_a_tenth_of_a_second() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let names: Vec<String> = (0..1_000).map(|id| format!("device-{id:04}")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut plugins = Vec::new();
        for index in 0..10 {
            plugins.push(rig.plugin(&format!("domain{index}.com/gpu"), &all).await);
        }
        pass(Duration::from_secs(10)).await;
        rig.told();
        let mut took = Vec::new();
        for plugin in &plugins {
            let begun = Instant::now();
            plugin.list(healthy(&all[..999]));
            let told = rig.node.next(Duration::from_secs(60)).await;
            took.push(begun.elapsed());
            let Some(PeerMessage::Node(told)) = told else {
                panic!("{told:?}");
            };
            assert_eq!(told.allocatable[&plugin.resource], 999);
        }
        took.sort();
        assert!(took[plugins.len() / 2] < AT_MOST, "{took:?}");
    });
}
