//! The servers that kubectl is tried on: the double, and a real one where `kube-apiserver` and `etcd` are on the PATH.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use apiserver::{Options, Server};

/// The real server's only user, of the group that may do everything.
const TOKEN: &str = "suite-token";

pub(crate) enum Cluster {
    Double(Server),
    Real(Real),
}

impl Cluster {
    /// Starts each server there is.
    pub(crate) fn all() -> Vec<Cluster> {
        let double = Server::start_now(Options {
            scheduler: true,
            ..Options::default()
        })
        .unwrap();
        let mut all = vec![Cluster::Double(double)];
        if let (Some(server), Some(etcd)) = (find("kube-apiserver"), find("etcd")) {
            all.push(Cluster::Real(Real::start(&server, &etcd)));
        }
        all
    }

    /// Returns the arguments that lead kubectl here.
    pub(crate) fn flags(&self) -> Vec<String> {
        match self {
            Cluster::Double(server) => vec!["--server".to_string(), server.url()],
            Cluster::Real(real) => {
                vec![
                    "--server".to_string(),
                    format!("https://127.0.0.1:{}", real.port),
                    "--token".to_string(),
                    TOKEN.to_string(),
                    "--insecure-skip-tls-verify".to_string(),
                ]
            }
        }
    }
}

/// A real server with its etcd, in a folder of its own.
pub(crate) struct Real {
    port: u16,
    children: Vec<Child>,
    folder: tempfile::TempDir,
}

impl Real {
    fn start(server: &Path, etcd: &Path) -> Real {
        let folder = tempfile::tempdir().unwrap();
        let (port, client, peer) = (free_port(), free_port(), free_port());
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("tokens"), format!("{TOKEN},suite,1,system:masters\n")).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(at("key"), key.serialize_pem()).unwrap();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut store = Command::new(etcd);
        store.args([
            "--data-dir",
            &at("etcd"),
            "--listen-client-urls",
            &url(client),
            "--advertise-client-urls",
            &url(client),
            "--listen-peer-urls",
            &url(peer),
        ]);
        let mut serve = Command::new(server);
        serve.args([
            "--etcd-servers",
            &url(client),
            "--secure-port",
            &port.to_string(),
            "--bind-address",
            "127.0.0.1",
            "--cert-dir",
            &at("certificates"),
        ]);
        serve.args([
            "--token-auth-file",
            &at("tokens"),
            "--authorization-mode",
            "AlwaysAllow",
            "--disable-admission-plugins",
            "ServiceAccount",
        ]);
        serve.args([
            "--service-account-issuer",
            "https://kubernetes.default.svc",
            "--service-account-key-file",
            &at("key"),
            "--service-account-signing-key-file",
            &at("key"),
        ]);
        let run = |mut command: Command| {
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        let real = Real {
            port,
            children: vec![run(store), run(serve)],
            folder,
        };
        real.wait();
        real
    }

    /// Waits until kubectl's first question would be answered.
    fn wait(&self) {
        let asleep = std::sync::mpsc::channel::<()>().1;
        for _ in 0..600 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return;
            }
            asleep
                .recv_timeout(Duration::from_millis(100))
                .unwrap_or_default();
        }
        panic!(
            "kube-apiserver does not listen; see {}",
            self.folder.path().display()
        );
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.kill().unwrap_or_default();
            drop(child.wait());
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
