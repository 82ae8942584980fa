//! Laws of reading the kernel's messages; the messages are those of real kernels.

use proptest::prelude::*;

use super::*;

fn parse(messages: &[&str]) -> Vec<OomInstance> {
    let mut parser = OomParser::default();
    messages
        .iter()
        .filter_map(|message| parser.take(message))
        .collect()
}

const STARTED_BY: &str =
    "memhog invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=984";

#[test]
fn since_linux_5_one_message_tells_who_was_killed_where() {
    let told = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,oom_memcg=/kubepods/burstable/podu1,task_memcg=/kubepods/burstable/podu1/c1,task=memhog,pid=1234,uid=0";
    let expected = OomInstance {
        pid: 1234,
        process: "memhog".into(),
        container: "/kubepods/burstable/podu1/c1".into(),
        victim: "/kubepods/burstable/podu1".into(),
        constraint: "CONSTRAINT_MEMCG".into(),
    };
    assert!(!expected.is_of_system());
    let last =
        "Memory cgroup out of memory: Killed process 1234 (memhog) total-vm:1kB, anon-rss:1kB";
    assert_eq!(parse(&[STARTED_BY, "Call Trace:", told, last]), [expected]);
}

#[test]
fn where_the_machines_memory_ran_out_the_last_message_tells_who_was_killed() {
    let told = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=stress,pid=77,uid=1000";
    let last = "Out of memory: Killed process 77 (stress) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1kB oom_score_adj:0";
    let found = parse(&[STARTED_BY, told, last]);
    assert_eq!(found.len(), 1);
    assert!(found[0].is_of_system());
    assert_eq!(
        found[0].message(),
        "System OOM encountered, victim process: stress, pid: 77"
    );
}

#[test]
fn before_linux_5_groups_and_process_are_told_apart() {
    let groups = "Task in /mem2/child killed as a result of limit of /mem2";
    let last =
        "Killed process 19667 (evilprogram2) total-vm:1460016kB, anon-rss:1414008kB, file-rss:4kB";
    let found = parse(&[STARTED_BY, groups, last]);
    assert_eq!(found.len(), 1);
    let OomInstance {
        pid,
        process,
        container,
        victim,
        ..
    } = &found[0];
    assert_eq!((*pid, process.as_str()), (19667, "evilprogram2"));
    assert_eq!(
        (container.as_str(), victim.as_str()),
        ("/mem2/child", "/mem2")
    );
    let root = "Task in / killed as a result of limit of /";
    assert!(parse(&[STARTED_BY, root, last])[0].is_of_system());
}

#[test]
fn a_process_cannot_pass_for_another_by_its_name() {
    let told = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a,task=x,pid=1,uid=0,pid=42,uid=7";
    let found = parse(&[STARTED_BY, told]);
    assert_eq!(
        (found[0].pid, found[0].process.as_str()),
        (42, "x,pid=1,uid=0")
    );
    let last = "Killed process 42 (a) b) total-vm:1kB";
    assert_eq!(parse(&[STARTED_BY, last])[0].process, "a) b");
}

#[test]
fn what_does_not_belong_to_a_kill_or_is_damaged_completes_none() {
    let last = "Killed process 42 (a) total-vm:1kB";
    assert_eq!(parse(&[last]), [], "no kill has begun");
    for other in [
        "usb 1-1: new device",
        "Killed process  (a)",
        "Killed process -7 (a)",
        "Killed process 99999999999999999999 (a)",
        "Killed process 42 ()",
        "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,task=x,pid=1,uid=0",
        "oom-kill:constraint=A,nodemask=,cpuset=,mems_allowed=,oom_memcg=/a,task_memcg=/a,task=x,pid=x,uid=0",
        "Task in / killed",
        "",
    ] {
        assert_eq!(parse(&[STARTED_BY, other]), [], "{other}");
        assert_eq!(parse(&[STARTED_BY, other, last]).len(), 1, "{other}");
    }
}

/// Upstream's event without a process.
#[test]
fn a_kill_without_a_process_is_told_all_the_same() {
    assert_eq!(OomInstance::begun().message(), "System OOM encountered");
}

#[test]
fn a_record_of_the_kernel_has_its_number_and_its_message() {
    let record = |text| KmsgRecord::parse(text).map(|record| (record.sequence, record.message));
    let cases = [
        (
            "6,339,5140900,-;NET: Registered protocol family 10",
            Some((339, "NET: Registered protocol family 10")),
        ),
        (
            "30,340,5690716,-;udevd[80]: starting; version 181",
            Some((340, "udevd[80]: starting; version 181")),
        ),
        (
            "6,7,8,c,more=1;text\n SUBSYSTEM=acpi\n DEVICE=+acpi:1\n",
            Some((7, "text")),
        ),
        ("6,7,8;", Some((7, ""))),
        ("6,7;text", None),
        ("x,7,8,-;text", None),
        ("6,-7,8,-;text", None),
        ("6,7,x,-;text", None),
        ("text", None),
        ("", None),
    ];
    for (text, expected) in cases {
        let expected = expected.map(|(sequence, message)| (sequence, message.to_owned()));
        assert_eq!(record(text), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn no_message_panics(messages in prop::collection::vec(".{0,60}", 0..8), mark in 0_usize..4) {
        let marks = [STARTED, KILLED_IN_GROUP, KILLED_IN_TASK, KILLED];
        let mut parser = OomParser::default();
        parser.take(STARTED);
        for message in &messages {
            parser.take(&format!("{}{message}", marks[mark]));
            KmsgRecord::parse(message);
        }
    }
}
