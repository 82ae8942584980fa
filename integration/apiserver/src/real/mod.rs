//! A real cluster: `kube-apiserver` and `etcd` from the PATH, each test's own, in a folder of its own on loopback.
//!
//! What the controllers and the scheduler of a cluster do for one node is done by [`controllers`]: they are not on the
//! PATH. Kubelets are called at 127.0.0.1 by their node's name, which a hosts file for this server alone gives.

mod client;
mod controllers;
mod flags;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use held_port::HeldPort;
use serde_json::json;
use tempfile::TempDir;

use self::client::CurlClient;
use self::controllers::Controllers;
use crate::auth::identity::{CallerIdentity, write_kubeconfig};
use crate::auth::rights::MASTERS;
use crate::auth::{CertificateAuthority, CertificateWithKey};
use crate::clock;

/// Both begin with empty folders, on machines that do much else.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// How often what cannot be waited for is asked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const YEAR: i64 = 365 * 24 * 3600;

/// The paths of `kube-apiserver` and `etcd`.
#[derive(Clone, Debug)]
pub struct ServerPrograms {
    server: PathBuf,
    etcd: PathBuf,
}

impl ServerPrograms {
    /// Finds them on the PATH; none unless both are there.
    pub fn find() -> Option<ServerPrograms> {
        let path = std::env::var_os("PATH")?;
        let find = |name: &str| {
            let files = std::env::split_paths(&path).map(|folder| folder.join(name));
            files.into_iter().find(|file| file.is_file())
        };
        Some(ServerPrograms {
            server: find("kube-apiserver")?,
            etcd: find("etcd")?,
        })
    }
}

/// A real server that runs; it and its etcd end when it is dropped.
#[derive(Debug)]
pub struct Real {
    programs: ServerPrograms,
    pub(crate) client: CurlClient,
    etcd_port: u16,
    /// Of the server, of etcd's clients and of its peers.
    _ports: [HeldPort; 3],
    authority: Arc<CertificateAuthority>,
    // Dropped in this order: the controllers, the server, etcd, the folder.
    controllers: Option<Controllers>,
    server: Mutex<Option<Child>>,
    etcd: Option<Child>,
    _folder: TempDir,
}

impl Real {
    /// Starts etcd and a server; it answers, and the namespace `default` can be used, when this returns. The node of
    /// this name is the one that there may be.
    pub fn start(programs: ServerPrograms, node: &str) -> anyhow::Result<Real> {
        let folder = tempfile::Builder::new().prefix("oxlet-").tempdir()?;
        let ports = [HeldPort::pick()?, HeldPort::pick()?, HeldPort::pick()?];
        let [port, etcd_port, peers_port] = ports.each_ref().map(HeldPort::number);
        let mut real = Real {
            programs,
            client: CurlClient {
                port,
                folder: folder.path().to_owned(),
            },
            etcd_port,
            _ports: ports,
            authority: Arc::new(CertificateAuthority::new("kubernetes")?),
            controllers: None,
            server: Mutex::new(None),
            etcd: None,
            _folder: folder,
        };
        real.write_files(node)?;
        let mut etcd = Command::new(&real.programs.etcd);
        let data = real.client.path("etcd");
        etcd.args(flags::etcd(&data, etcd_port, peers_port));
        real.etcd = Some(real.spawn(etcd, "etcd.log")?);
        real.resume()?;
        controllers::found(&real.client, &real.authority())?;
        real.controllers = Some(Controllers::start(
            real.client.clone(),
            real.authority.clone(),
        )?);
        Ok(real)
    }

    /// Returns where clients find it, without a slash at the end.
    pub fn url(&self) -> String {
        self.client.url()
    }

    /// Returns the certificate of the authority of the cluster, as PEM.
    pub fn authority(&self) -> String {
        self.authority.pem()
    }

    /// Returns a client certificate, good for so many seconds.
    pub fn client_certificate(
        &self,
        name: &str,
        group: &str,
        seconds: i64,
    ) -> anyhow::Result<CertificateWithKey> {
        self.authority.client_named(name, group, seconds)
    }

    /// Returns a kubeconfig that has all it needs in itself.
    pub fn kubeconfig(&self, identity: &CallerIdentity) -> anyhow::Result<String> {
        let user = match identity {
            CallerIdentity::Anonymous => json!({}),
            CallerIdentity::Token(token) => json!({ "token": token }),
            CallerIdentity::Certificate { name, group } => {
                self.client_certificate(name, group, YEAR)?.as_user()
            }
        };
        write_kubeconfig(&self.url(), Some(&self.authority()), &user)
    }

    /// Returns a kubeconfig with a bootstrap token.
    pub fn bootstrap_kubeconfig(&self) -> anyhow::Result<String> {
        let (id, secret) = controllers::TOKEN;
        self.kubeconfig(&CallerIdentity::Token(format!("{id}.{secret}")))
    }

    /// Kills the server, not its etcd: the beginning of an outage.
    pub fn stop(&self) {
        end(lock(&self.server).take());
    }

    /// Starts the server again on the same port: the end of an outage.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.stop();
        let mut server = Command::new("unshare");
        server.args(["--mount", "sh", "-c"]);
        server.arg("mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"");
        server
            .args(["sh", &self.client.path("hosts")])
            .arg(&self.programs.server);
        server.args(flags::server(self));
        *lock(&self.server) = Some(self.spawn(server, "server.log")?);
        let until = clock::later(clock::now(), START_TIMEOUT.as_secs().cast_signed());
        while self.client.get("/readyz?verbose").is_err() {
            let log = fs::read_to_string(self.client.path("server.log")).unwrap_or_default();
            let gone = lock(&self.server)
                .as_mut()
                .is_none_or(|child| child.try_wait().is_ok_and(|end| end.is_some()));
            anyhow::ensure!(
                !gone && clock::now() < until,
                "kube-apiserver does not start: {log}"
            );
            pause();
        }
        Ok(())
    }

    fn write_files(&self, node: &str) -> anyhow::Result<()> {
        let (certificate, key) = self.authority.serving()?;
        let serving = CertificateWithKey {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        };
        let kubelets = self.client_certificate("kube-apiserver-kubelet-client", MASTERS, YEAR)?;
        let admin = self.client_certificate("kubernetes-admin", MASTERS, YEAR)?;
        for (name, who) in [
            ("serving", serving),
            ("kubelets", kubelets),
            ("admin", admin),
        ] {
            fs::write(self.client.path(&format!("{name}.pem")), who.certificate)?;
            fs::write(self.client.path(&format!("{name}.key")), who.key)?;
        }
        fs::write(self.client.path("ca.pem"), self.authority())?;
        let signing = rcgen::KeyPair::generate().context("cannot make a key")?;
        fs::write(self.client.path("accounts.key"), signing.serialize_pem())?;
        fs::write(self.client.path("accounts.pub"), signing.public_key_pem())?;
        fs::write(
            self.client.path("hosts"),
            format!("127.0.0.1 localhost {node}\n"),
        )?;
        Ok(())
    }

    fn spawn(&self, mut command: Command, log: &str) -> anyhow::Result<Child> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.client.path(log))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn();
        child.with_context(|| format!("cannot start {command:?}"))
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        drop(self.controllers.take());
        self.stop();
        end(self.etcd.take());
    }
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        child.kill().unwrap_or_default();
        drop(child.wait());
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets [`POLL_INTERVAL`] go by.
fn pause() {
    let (_nobody, silence) = mpsc::channel::<()>();
    silence.recv_timeout(POLL_INTERVAL).unwrap_or_default();
}
