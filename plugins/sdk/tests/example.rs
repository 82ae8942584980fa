//! The example of `docs/write-a-plugin.md`, as a process that is spoken to over its socket.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use command_fds::{CommandFdExt, FdMapping};
use proto::network::network_client::NetworkClient;
use proto::network::{AddRequest, DeleteRequest, StatusRequest};
use proto::plugin::{ConfigureRequest, InfoRequest, Kind};
use sdk::testing::connect;
use tonic::Code;

const DOCUMENT: &str = include_str!("../../../docs/write-a-plugin.md");
const SOURCE: &str = include_str!("../examples/network-isolated.rs");

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The example, started as the agent starts a plugin: with its socket as descriptor 3.
fn example(socket: &Path) -> Running {
    let own = std::env::current_exe().unwrap();
    let built = own.parent().unwrap().with_file_name("examples");
    let mut command = Command::new(built.join("network-isolated"));
    command
        .env("LISTEN_FDS", "1")
        .env("OXLET_PLUGIN_DIR", socket.parent().unwrap());
    let handed = FdMapping {
        parent_fd: UnixListener::bind(socket).unwrap().into(),
        child_fd: 3,
    };
    command.fd_mappings(vec![handed]).unwrap();
    Running(
        command
            .spawn()
            .expect("cargo builds the examples with the tests"),
    )
}

/// A process in a network namespace of its own, in which every interface is down.
fn sandbox() -> Running {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "echo there; exec cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut line = [0; 6];
    let said = running.0.stdout.as_mut().unwrap();
    std::io::Read::read_exact(said, &mut line).unwrap();
    running
}

#[tokio::test]
async fn the_example_serves_its_contract() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("plugin.sock");
    let _plugin = example(&socket);
    let channel = connect(&socket);
    let mut base = proto::plugin::plugin_client::PluginClient::new(channel.clone());
    let info = base.info(InfoRequest { contract: 1 }).await.unwrap();
    let info = info.into_inner();
    assert_eq!((info.contract, info.kind()), (1, Kind::Network));
    base.configure(ConfigureRequest::default()).await.unwrap();

    let mut network = NetworkClient::new(channel);
    let status = network.status(StatusRequest::default()).await.unwrap();
    assert!(status.into_inner().networks[0].ready);
    let sandbox = sandbox();
    let add = AddRequest {
        netns: format!("/proc/{}/ns/net", sandbox.0.id()),
        ..Default::default()
    };
    let is_up = || {
        let net = format!("--net={}", add.netns);
        let output = Command::new("nsenter")
            .args([&net, "ip", "link", "show", "lo"])
            .output();
        String::from_utf8(output.unwrap().stdout)
            .unwrap()
            .contains("<LOOPBACK,UP")
    };
    assert!(!is_up());
    network.add(add.clone()).await.unwrap();
    // Again, as after a crash.
    network.add(add.clone()).await.unwrap();
    assert!(is_up());
    network.delete(DeleteRequest::default()).await.unwrap();
    let nowhere = AddRequest {
        netns: "/proc/0/ns/net".to_owned(),
        ..Default::default()
    };
    let refusal = network.add(nowhere).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Internal);
    assert!(refusal.message().contains("/proc/0/ns/net"), "{refusal}");
}

#[test]
fn the_document_shows_the_example_as_it_is() {
    let (_, shown) = DOCUMENT.split_once("```rust\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    let (_, source) = SOURCE.split_once("\n\n").unwrap();
    assert_eq!(shown, source);
}
