//! The real process, killed at random moments under load: nothing is mounted twice or forgotten, nothing half-written
//! is ever seen, no data is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proto::storage::volume::Source;
use proto::storage::{Local, Medium, MountRequest, State};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::rig::{Client, Node, Process, empty_dir, files, list, names, unmount};

const KINDS: [&str; 5] = [
    "empty-dir",
    "secret",
    "configmap",
    "projected",
    "local-volume",
];

fn source(node: &Node, kind: &str, n: u64) -> Source {
    let text = content(n);
    match kind {
        "empty-dir" if n.is_multiple_of(2) => empty_dir(Medium::Memory),
        "empty-dir" => empty_dir(Medium::Default),
        "configmap" => files(Medium::Default, &[("a", &text), ("d/b", &text)]),
        "local-volume" => Source::Local(Local {
            path: node.path("local").display().to_string(),
            ..Local::default()
        }),
        _ => files(Medium::Memory, &[("a", &text), ("d/b", &text)]),
    }
}

/// Long enough to be written in more than one piece.
fn content(n: u64) -> Vec<u8> {
    format!("{n} ").repeat(8_000).into_bytes()
}

/// Mounts, updates and unmounts one volume after the other until the process is gone.
async fn load(
    node: Arc<Node>,
    mut client: Client,
    worker: u64,
    answers: UnboundedSender<()>,
) -> Result<(), tonic::Status> {
    for n in 0.. {
        let kind = KINDS[usize::try_from((n + worker) % 5).unwrap()];
        let uid = format!("w{worker}");
        let request = |n| node.mount(&uid, kind, &format!("v{}", n % 7), source(&node, kind, n));
        client.mount(request(n)).await?;
        answers.send(()).unwrap_or_default();
        client.mount(request(n + 7)).await?;
        answers.send(()).unwrap_or_default();
        if n % 3 > 0 {
            client.unmount(unmount(&request(n))).await?;
            answers.send(()).unwrap_or_default();
        }
    }
    Ok(())
}

/// What a new agent does: takes away what it finds and does not want.
async fn clean_up(node: &Node, client: &mut Client) {
    for found in list(client).await {
        let mount = MountRequest {
            target: found.path.clone(),
            ..node.mount(
                &found.pod_uid,
                &found.kind,
                &found.name,
                empty_dir(Medium::Default),
            )
        };
        client.unmount(unmount(&mount)).await.unwrap();
    }
    assert_eq!(list(client).await, []);
    assert_eq!(node.mounted(), Vec::<PathBuf>::new(), "leaked mounts");
    for uid in names(&node.root().join("pods")) {
        let request = proto::storage::RemovePodRequest {
            folder: node.root().join("pods").join(uid).display().to_string(),
            within_ms: 0,
        };
        let kept = client.remove_pod(request).await.unwrap().into_inner().kept;
        assert!(kept.is_empty(), "{kept:?}");
    }
    assert!(names(&node.root().join("pods")).is_empty());
}

/// What is called mounted is mounted once, and whole.
async fn look(node: &Node, client: &mut Client) {
    let mounted = node.mounted();
    let mut counts = BTreeMap::new();
    for path in &mounted {
        *counts.entry(path).or_insert(0) += 1;
    }
    assert!(
        counts.values().all(|&count| count == 1),
        "mounted twice: {counts:?}"
    );
    for found in list(client).await {
        let path = Path::new(&found.path);
        let files = matches!(found.kind.as_str(), "secret" | "configmap" | "projected");
        if found.state() == State::Mounted && files {
            let version = path.join("..data");
            let (a, b) = (
                fs::read(version.join("a")).unwrap(),
                fs::read(version.join("d/b")).unwrap(),
            );
            assert!(a == b && a.len() >= 16_000, "half of {}", found.path);
        }
    }
}

#[tokio::test]
async fn kills_leave_nothing_that_is_not_found_and_taken_away() {
    let node = Arc::new(Node::new());
    fs::create_dir(node.path("local")).unwrap();
    fs::write(node.path("local/kept"), "kept").unwrap();
    for round in 0..15_u64 {
        let (process, mut client) = Process::start(&node).await;
        look(&node, &mut client).await;
        if round % 3 == 2 {
            clean_up(&node, &mut client).await;
        }
        let (answers, mut heard) = unbounded_channel();
        let workers: Vec<_> = (0..4)
            .map(|worker| tokio::spawn(load(node.clone(), client.clone(), worker, answers.clone())))
            .collect();
        // Any moment will do while others are under way, as long as the rounds choose different ones.
        for _ in 0..20 + round * 37 % 60 {
            heard.recv().await.unwrap();
        }
        process.kill();
        for worker in workers {
            worker.await.unwrap().unwrap_err();
        }
    }
    let (process, mut client) = Process::start(&node).await;
    look(&node, &mut client).await;
    clean_up(&node, &mut client).await;
    assert_eq!(fs::read(node.path("local/kept")).unwrap(), b"kept");
    process.kill();
}

/// Reads both files of whatever version is there, again and again; returns how often.
fn read_on(volume: &Path, stop: &AtomicBool, newest: &AtomicU64) -> u64 {
    let (mut reads, mut last) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        // One version is held by its folder; a later one may replace it meanwhile, and this one go.
        let Ok(version) = fs::canonicalize(volume.join("..data")) else {
            continue;
        };
        let (Ok(a), Ok(b)) = (fs::read(version.join("a")), fs::read(version.join("d/b"))) else {
            continue;
        };
        assert!(a == b, "two versions at once");
        let first = a.split(|&byte| byte == b' ').next().unwrap();
        let number: u64 = std::str::from_utf8(first).unwrap().parse().unwrap();
        assert!(a == content(number), "half of a version");
        assert!(number >= last, "an older version came back");
        assert!(number <= newest.load(Ordering::Relaxed));
        (reads, last) = (reads + 1, number);
    }
    reads
}

#[tokio::test]
async fn a_reader_sees_the_old_files_or_the_new_ones_whatever_is_killed() {
    let node = Node::new();
    let (stop, newest) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let volume = node.target("u", "configmap", "v");
    let reader = {
        let (volume, stop, newest) = (volume.clone(), stop.clone(), newest.clone());
        std::thread::spawn(move || read_on(&volume, &stop, &newest))
    };
    for round in 0..12_u64 {
        let (process, client) = Process::start(&node).await;
        let (answers, mut heard) = unbounded_channel();
        let writer = {
            let (mut client, newest, request) = (client, newest.clone(), |n| {
                node.mount("u", "configmap", "v", source(&node, "configmap", n))
            });
            async move {
                loop {
                    let n = newest.fetch_add(1, Ordering::Relaxed) + 1;
                    if client.mount(request(n)).await.is_err() {
                        return;
                    }
                    answers.send(()).unwrap_or_default();
                }
            }
        };
        let killer = async {
            for _ in 0..3 + round * 5 % 17 {
                heard.recv().await.unwrap();
            }
            process.kill();
        };
        tokio::join!(writer, killer);
    }
    stop.store(true, Ordering::Relaxed);
    let reads = reader.join().unwrap();
    assert!(reads > 50, "only {reads} reads");
    let (process, mut client) = Process::start(&node).await;
    let last = newest.fetch_add(1, Ordering::Relaxed) + 1;
    let request = node.mount("u", "configmap", "v", source(&node, "configmap", last));
    client.mount(request).await.unwrap();
    assert_eq!(fs::read(volume.join("a")).unwrap(), content(last));
    let hidden = names(&volume)
        .into_iter()
        .filter(|name| name.starts_with(".."));
    assert_eq!(hidden.count(), 2, "{:?}", names(&volume));
    process.kill();
}

/// Looks whether the link leads to whole files, again and again; returns how often.
fn look_on(volume: &Path, stop: &AtomicBool) -> u64 {
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(version) = fs::read_link(volume.join("..data")) else {
            assert_eq!(looks, 0, "the link is gone");
            continue;
        };
        // A version that is gone by now has been replaced by another one.
        let whole = volume.join(&version).join("d/b").is_file();
        let replaced = || fs::read_link(volume.join("..data")).unwrap() != version;
        assert!(whole || replaced(), "the link leads nowhere");
        looks += 1;
    }
    looks
}

#[tokio::test]
async fn two_processes_at_the_same_volume_do_not_spoil_each_other_s_work() {
    let node = Node::new();
    let (first, one) = Process::start_at(&node, "one.sock").await;
    let (second, two) = Process::start_at(&node, "two.sock").await;
    let volume = node.target("u", "secret", "v");
    let stop = Arc::new(AtomicBool::new(false));
    let looking = {
        let (volume, stop) = (volume.clone(), stop.clone());
        std::thread::spawn(move || look_on(&volume, &stop))
    };
    let newest = AtomicU64::new(0);
    let work = async |mut client: Client| {
        for _ in 0..60 {
            let n = newest.fetch_add(1, Ordering::Relaxed);
            let request = node.mount("u", "secret", "v", source(&node, "secret", n));
            client.mount(request).await.unwrap();
        }
    };
    tokio::join!(work(one), work(two));
    stop.store(true, Ordering::Relaxed);
    let looks = looking.join().unwrap();
    assert!(looks > 100, "only {looks} looks");
    assert_eq!(node.mounted(), [volume]);
    first.kill();
    second.kill();
}

#[tokio::test]
async fn data_in_an_empty_dir_outlives_the_process() {
    let node = Node::new();
    for medium in [Medium::Default, Medium::Memory] {
        let name = format!("{medium:?}").to_lowercase();
        let request = node.mount("u", "empty-dir", &name, empty_dir(medium));
        let file = node.target("u", "empty-dir", &name).join("data");
        for round in 0..3 {
            let (process, mut client) = Process::start(&node).await;
            client.mount(request.clone()).await.unwrap();
            if round == 0 {
                fs::write(&file, "data").unwrap();
            }
            assert_eq!(fs::read(&file).unwrap(), b"data");
            process.kill();
        }
    }
}

#[tokio::test]
async fn many_volumes_leave_little_in_memory() {
    let node = Node::new();
    let (process, mut client) = Process::start(&node).await;
    let before = process.memory();
    for n in 0..110 {
        for kind in ["configmap", "secret", "empty-dir", "projected"] {
            let request = node.mount(&format!("u{n}"), kind, "v", source(&node, kind, n));
            client.mount(request.clone()).await.unwrap();
        }
    }
    let after = process.memory();
    println!("{before} KiB idle, {after} KiB after 440 volumes");
    assert!(
        after < before + 2_048,
        "{before} KiB before, {after} KiB after"
    );
    process.kill();
}
