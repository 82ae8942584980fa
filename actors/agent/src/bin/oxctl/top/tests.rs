//! The rates, the order and the tables of `oxctl top`.

use agent::endpoints::admin::{ContainerUsage, NodeUsage, PodUsage, ProcessRow};
use jiff::Timestamp;

use super::screen::frame;
use super::*;

fn process(name: &str, kind: &str, (pid, began): (u32, u64), cpu: u64) -> ProcessRow {
    ProcessRow {
        name: name.to_owned(),
        kind: kind.to_owned(),
        pid: Some(pid),
        began: Some(began),
        threads: Some(3),
        cpu_nanoseconds: Some(cpu),
        nano_cores: None,
        rss_bytes: Some((u64::from(pid) << 20) + 5),
    }
}

fn pod(name: &str, cpu: Option<u64>, memory: u64) -> PodUsage {
    PodUsage {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        nano_cores: cpu,
        working_set_bytes: Some(memory << 20),
        rss_bytes: None,
        containers: vec![ContainerUsage {
            name: "app".to_owned(),
            nano_cores: cpu,
            working_set_bytes: Some(memory << 20),
            rss_bytes: Some(1 << 20),
        }],
    }
}

fn view(second: i64, processes: Vec<ProcessRow>) -> TopView {
    TopView {
        at: Timestamp::from_second(second).unwrap(),
        node: Some(NodeUsage {
            name: "node-1".to_owned(),
            cpus: Some(2),
            nano_cores: Some(500_000_001),
            working_set_bytes: Some(256 << 20),
            available_bytes: Some(768 << 20),
        }),
        processes,
        pods: vec![
            pod("b", None, 9),
            pod("a", Some(2_000_000), 4),
            pod("c", Some(7), 5),
        ],
        missing: Vec::new(),
    }
}

#[test]
fn a_rate_is_what_a_process_used_between_two_views_of_it() {
    let before = view(
        10,
        vec![
            process("oxlet", "agent", (1, 5), 1_000_000_000),
            process("runtime", "runtime", (2, 6), 5),
            process("gone", "storage", (3, 7), 5),
        ],
    );
    let after = view(
        14,
        vec![
            process("oxlet", "agent", (1, 5), 3_000_000_000),
            process("runtime", "runtime", (2, 99), 9_000),
            process("new", "network", (4, 8), 5),
        ],
    );
    let rates: Vec<Option<u64>> = rated(after.clone(), &before)
        .processes
        .iter()
        .map(|row| row.nano_cores)
        .collect();
    assert_eq!(
        rates,
        [Some(500_000_000), None, None],
        "a pid is no identity"
    );
    let back = rated(before, &after);
    assert!(back.processes.iter().all(|row| row.nano_cores.is_none()));
    let mut still = after.clone();
    still.at = after.at;
    assert_eq!(rated(still, &after).processes[0].nano_cores, None);
}

#[test]
fn the_largest_comes_first_and_the_agent_before_all() {
    let names = |by| {
        let mut view = view(
            0,
            vec![
                process("x", "runtime", (7, 1), 0),
                process("oxlet", "agent", (1, 1), 0),
                process("y", "storage", (9, 1), 0),
            ],
        );
        view.processes[0].nano_cores = Some(4);
        let view = sorted(view, by);
        let processes: Vec<String> = view.processes.into_iter().map(|row| row.name).collect();
        let pods: Vec<String> = view.pods.into_iter().map(|pod| pod.name).collect();
        (processes.concat(), pods.concat())
    };
    assert_eq!(
        names(SortKey::Cpu),
        ("oxletxy".to_owned(), "acb".to_owned())
    );
    assert_eq!(
        names(SortKey::Memory),
        ("oxletyx".to_owned(), "bca".to_owned())
    );
}

#[test]
fn usage_is_shown_in_the_columns_of_kubectl_top() {
    let mut view = view(0, vec![process("oxlet", "agent", (12, 1), 0)]);
    view.processes[0].nano_cores = Some(1_000_001);
    view.processes.push(ProcessRow {
        name: "crio".to_owned(),
        kind: "runtime".to_owned(),
        ..ProcessRow::default()
    });
    view.missing = vec!["it is a test".to_owned()];
    let view = sorted(view, SortKey::Cpu);
    assert_eq!(
        table::text(&view, PodRows::Pods),
        "NODE     CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\n\
         node-1   501m         25%      256Mi           25%\n\
         \n\
         NAME    KIND      PID   THREADS   CPU(cores)   RSS(bytes)\n\
         oxlet   agent     12    3         2m           12Mi\n\
         crio    runtime   -     -         -            -\n\
         \n\
         NAMESPACE   NAME   CPU(cores)   MEMORY(bytes)   RSS(bytes)\n\
         default     a      2m           4Mi             -\n\
         default     c      1m           5Mi             -\n\
         default     b      -            9Mi             -\n\
         \n\
         missing: it is a test\n"
    );
    let containers = table::text(&view, PodRows::Containers);
    assert!(
        containers.contains("default     a     app    2m           4Mi             1Mi\n"),
        "{containers}"
    );
}

#[test]
fn a_view_is_drawn_over_the_last_one_and_stays_on_the_screen() {
    assert_eq!(
        frame("one\ntwo\n", (10, 80)),
        "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J"
    );
    assert_eq!(
        frame("a long line\nb\nc\nd\n", (4, 6)),
        "\x1b[Ha long\x1b[K\nb\x1b[K\n... 2 \x1b[K\n\x1b[J"
    );
    assert_eq!(frame("", (0, 0)), "\x1b[H\x1b[J");
}
