//! Volumes that hang: a file system whose server never answers.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use mounts::mount::file_system;
use proto::plugin::HealthRequest;
use proto::storage::volume::Source;
use proto::storage::{HostPath, Local, Medium, State, StatsRequest};
use tonic::Code;

use crate::rig::{Node, empty_dir, files, list, unmount};

/// A FUSE mount whose server never answers; dropping this aborts pending requests.
struct Dead {
    _server: File,
    path: PathBuf,
}

impl Dead {
    fn mount(path: &Path) -> Self {
        std::fs::create_dir_all(path).unwrap();
        let server = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .unwrap();
        let options = [
            format!("fd={}", server.as_raw_fd()),
            "rootmode=40000,user_id=0,group_id=0".to_owned(),
        ];
        file_system("dead", path, "fuse", &options).unwrap();
        Self {
            _server: server,
            path: path.to_owned(),
        }
    }
}

async fn abandoned(plugin: &sdk::testing::Plugin) -> String {
    let request = HealthRequest {
        interval_ms: 60_000,
    };
    let mut stream = plugin.base().health(request).await.unwrap().into_inner();
    let report = stream.message().await.unwrap().unwrap();
    report.attributes["abandoned"].clone()
}

#[tokio::test]
async fn a_path_that_hangs_is_given_up_at_its_deadline_and_delays_no_other() {
    let node = Node::new();
    let dead = Dead::mount(&node.path("dead"));
    let (plugin, client) = node.plugin().await;
    let below = |name: &str| dead.path.join(name).display().to_string();
    let hanging = |n: usize| {
        let source = match n % 2 {
            0 => Source::HostPath(HostPath {
                path: below("x"),
                r#type: "Directory".to_owned(),
            }),
            _ => Source::Local(Local {
                path: below("x"),
                ..Local::default()
            }),
        };
        let kind = ["host-path", "local-volume"][n % 2];
        let mut request = node.mount("u", kind, &format!("v{n}"), source);
        request.within_ms = 2_000;
        request
    };
    let stuck = (0..20).map(|n| {
        let (mut client, request) = (client.clone(), hanging(n));
        async move { client.mount(request).await.unwrap_err() }
    });
    let stuck = tokio::spawn(join_all(stuck.collect::<Vec<_>>()));
    let good = (0..20).map(|n| {
        let source = match n % 2 {
            0 => empty_dir(Medium::Memory),
            _ => files(Medium::Default, &[("a", b"a")]),
        };
        let kind = ["empty-dir", "configmap"][n % 2];
        let (mut client, request) = (
            client.clone(),
            node.mount("u", kind, &format!("g{n}"), source),
        );
        async move { client.mount(request).await.unwrap() }
    });
    join_all(good.collect::<Vec<_>>()).await;
    assert!(!stuck.is_finished(), "the others waited for what hangs");
    for status in stuck.await.unwrap() {
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    assert_eq!(abandoned(&plugin).await, "20");
    // No call works on a volume beside a thread that is stuck in it.
    let mut again = hanging(0);
    again.within_ms = 100;
    let refused = client.clone().mount(again).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    assert_eq!(abandoned(&plugin).await, "20");
}

#[tokio::test]
async fn a_volume_that_hangs_is_listed_and_unmounted() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    let source = Source::Nfs(proto::storage::Nfs {
        server: "server".to_owned(),
        path: "/".to_owned(),
    });
    let request = node.mount("u", "nfs", "share", source);
    let target = node.target("u", "nfs", "share");
    let _dead = Dead::mount(&target);
    let found = list(&mut client).await;
    assert_eq!((found.len(), found[0].state()), (1, State::Mounted));
    let stats = StatsRequest {
        kind: "nfs".to_owned(),
        path: request.target.clone(),
        within_ms: 200,
        ..StatsRequest::default()
    };
    let late = client.stats(stats).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    // Mounted already, as far as the mount table shows; the volume itself is not accessed.
    client.mount(request.clone()).await.unwrap();
    let mut unmount = unmount(&request);
    unmount.within_ms = 2_000;
    // The thread that measures still waits for it; what waits is let go.
    client.unmount(unmount).await.unwrap();
    assert!(node.mounted().is_empty() && !target.exists());
    assert_eq!(list(&mut client).await, []);
}
