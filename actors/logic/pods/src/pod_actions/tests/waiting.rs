//! What of a plan is done while something has to wait for its time.

use super::*;

fn sandbox_waits(wait: ActionGate<'_>) -> bool {
    wait == ActionGate::Sandbox
}

/// The steps that are left of the plan.
fn left(pod: &Pod, runtime: &RuntimePod, waits: impl Fn(ActionGate<'_>) -> bool) -> Vec<String> {
    steps(&plan(pod, runtime).due(runtime, waits))
}

#[test]
fn a_sandbox_that_is_down_is_not_stopped_until_its_successor_may_be_made() {
    let (pod, mut runtime) = apps();
    runtime.sandboxes[0].state = SandboxState::NotReady;
    for name in ["foo1", "foo2", "foo3"] {
        exit(&mut runtime, name, 137);
    }
    let stop = format!("stop {}", runtime.sandboxes[0].id);
    let all = left(&pod, &runtime, |_| false);
    assert_eq!(all[..2], [stop, "create 1".to_owned()]);
    assert_eq!(left(&pod, &runtime, sandbox_waits), [""; 0]);
}

#[test]
fn a_sandbox_that_is_up_and_must_go_does_not_wait_for_its_successor() {
    let (pod, mut runtime) = apps();
    runtime.sandboxes[0].ips.clear();
    let stop = format!("stop {}", runtime.sandboxes[0].id);
    let kills = ["foo1", "foo2", "foo3"].map(|name| format!("kill {name}-0"));
    let [first, second, third] = kills;
    assert_eq!(
        left(&pod, &runtime, sandbox_waits),
        [first, second, third, stop]
    );
}

#[test]
fn starts_wait_for_themselves_and_for_the_sandbox_and_all_for_what_must_end() {
    let (pod, mut runtime) = apps();
    exit(&mut runtime, "foo1", 1);
    exit(&mut runtime, "foo2", 1);
    of(&mut runtime, "foo3").hash = Some(1);
    let wait_for = |held: &'static str| move |wait: ActionGate<'_>| wait == ActionGate::Start(held);
    let rows = [
        (
            "nobody",
            left(&pod, &runtime, |_| false),
            "kill foo3-0, start foo1 1, start foo2 1, start foo3 1",
        ),
        (
            "foo2",
            left(&pod, &runtime, wait_for("foo2")),
            "kill foo3-0, start foo1 1, start foo3 1",
        ),
        (
            "the sandbox",
            left(&pod, &runtime, sandbox_waits),
            "kill foo3-0",
        ),
        (
            "an end",
            left(&pod, &runtime, |wait| wait == ActionGate::End),
            "",
        ),
    ];
    for (held, left, expected) in rows {
        assert_eq!(left.join(", "), expected, "{held} waits");
    }
}
