//! kubectl against the streaming server: whichever versions are installed, through the smallest API server that it
//! takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use proto::cri::*;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::rig::{Rig, RuntimeClient, rig};

/// Folders with more of them, separated as in PATH.
const FOLDERS: &str = "OXLET_KUBECTLS";
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns all that are installed, each version once: on the PATH, beside the one that is found there, and in the
/// folders of the environment.
fn kubectls() -> Vec<PathBuf> {
    let variables = [FOLDERS, "PATH"].into_iter().filter_map(std::env::var_os);
    let mut folders: Vec<PathBuf> = variables
        .flat_map(|folders| std::env::split_paths(&folders).collect::<Vec<_>>())
        .collect();
    let plain = folders
        .iter()
        .map(|folder| folder.join("kubectl"))
        .find(|file| file.is_file());
    let real = plain.and_then(|file| file.canonicalize().ok());
    folders.extend(
        real.as_deref()
            .and_then(Path::parent)
            .map(Path::to_path_buf),
    );
    let mut found = BTreeMap::new();
    for entry in folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let version = name
            .strip_prefix("kubectl.1.")
            .is_some_and(|minor| minor.parse::<u32>().is_ok());
        if name == "kubectl" || version {
            found.entry(name).or_insert(entry.path());
        }
    }
    assert!(
        !found.is_empty(),
        "no kubectl is on the PATH or in the folders of {FOLDERS}: install one"
    );
    found.into_values().collect()
}

/// Whether the server takes WebSockets, which newer kubectls try first; without them they come with SPDY.
#[derive(Clone, Copy, Debug)]
enum Sockets {
    Taken,
    Refused,
}

const BOTH: [Sockets; 2] = [Sockets::Taken, Sockets::Refused];

/// An API server with one pod, whose streams it carries to the runtime.
struct ApiDouble {
    address: String,
    folder: PathBuf,
}

impl ApiDouble {
    async fn start(rig: &Rig, (sandbox, container): (&str, &str), sockets: Sockets) -> ApiDouble {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (runtime, pod) = (
            rig.runtime.clone(),
            (sandbox.to_owned(), container.to_owned()),
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, runtime.clone(), pod.clone(), sockets));
            }
        });
        ApiDouble {
            address,
            folder: rig.folder.clone(),
        }
    }

    fn command(&self, kubectl: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(kubectl);
        command
            .args([
                "--server",
                &format!("http://{}", self.address),
                "--namespace",
                "default",
            ])
            .args(args)
            .env_clear()
            .env("HOME", &self.folder)
            .kill_on_drop(true)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs kubectl to its end, and once more where it lost what it was sent: before 1.34 it may read from a WebSocket
    /// before its own streams are there (kubernetes#131203).
    async fn run(&self, kubectl: &Path, args: &[&str], stdin: &str) -> Output {
        soon(async {
            loop {
                let mut child = self.command(kubectl, args).spawn().unwrap();
                let mut input = child.stdin.take().unwrap();
                // One that has ended reads no more.
                input.write_all(stdin.as_bytes()).await.unwrap_or_default();
                drop(input);
                let output = child.wait_with_output().await.unwrap();
                if !text(&output.stderr).contains("Unknown stream id") {
                    return output;
                }
            }
        })
        .await
    }
}

async fn answer(
    stream: TcpStream,
    mut runtime: RuntimeClient,
    (sandbox, container): (String, String),
    sockets: Sockets,
) {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line);
    }
    let websocket = head
        .iter()
        .any(|line| line.to_lowercase().starts_with("upgrade: websocket"));
    if let (Sockets::Refused, true) = (sockets, websocket) {
        return show(stream, "").await;
    }
    let target = head[0].split(' ').nth(1).unwrap().to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let url = match path.rsplit('/').next().unwrap() {
        "exec" => {
            let has = |flag: &str| query.split('&').any(|pair| pair == format!("{flag}=true"));
            let words = query
                .split('&')
                .filter_map(|pair| pair.strip_prefix("command="));
            let cmd = words.map(decoded).collect();
            let (stdin, stdout, stderr, tty) =
                (has("stdin"), has("stdout"), has("stderr"), has("tty"));
            let request = ExecRequest {
                container_id: container,
                cmd,
                tty,
                stdin,
                stdout,
                stderr,
            };
            runtime.exec(request).await.unwrap().into_inner().url
        }
        "attach" => {
            let request = AttachRequest {
                container_id: container,
                stdout: true,
                stderr: true,
                ..AttachRequest::default()
            };
            runtime.attach(request).await.unwrap().into_inner().url
        }
        "portforward" => {
            let request = PortForwardRequest {
                pod_sandbox_id: sandbox,
                port: Vec::new(),
            };
            runtime
                .port_forward(request)
                .await
                .unwrap()
                .into_inner()
                .url
        }
        _ => return show(stream, path).await,
    };
    let (host, token) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut server = TcpStream::connect(host).await.unwrap();
    head[0] = head[0].replace(&target, &format!("/{token}"));
    server
        .write_all(format!("{}\r\n", head.concat()).as_bytes())
        .await
        .unwrap();
    drop(copy_bidirectional(&mut stream, &mut server).await);
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut plain = parts.next().unwrap().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        plain.push(char::from(u8::from_str_radix(code, 16).unwrap()));
        plain.push_str(rest);
    }
    plain.replace('+', " ")
}

async fn show(mut stream: BufReader<TcpStream>, path: &str) {
    let answer = match path {
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
        "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
        "/api/v1" => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["get"]}]}),
        "/api/v1/namespaces/default/pods/a" => json!({"kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "a", "namespace": "default"}, "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "state": {"running": {}}}]}}),
        _ => {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": path})
        }
    };
    let code = if answer["code"] == 404 {
        "404 Not Found"
    } else {
        "200 OK"
    };
    let text = answer.to_string();
    let answer = format!(
        "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    stream
        .write_all(answer.as_bytes())
        .await
        .unwrap_or_default();
}

async fn api(sockets: Sockets) -> (Rig, ApiDouble, String) {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let container = rig
        .running(&sandbox, "c", "while true; do sleep 0.1; echo tick; done")
        .await;
    let api = ApiDouble::start(&rig, (&sandbox, &container), sockets).await;
    (rig, api, container)
}

/// Returns every kubectl with every kind of server.
fn each() -> impl Iterator<Item = (PathBuf, Sockets)> {
    let pair = |kubectl: PathBuf| BOTH.map(|sockets| (kubectl.clone(), sockets));
    kubectls().into_iter().flat_map(pair)
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("it is not done in time")
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn it_runs_commands() {
    for (kubectl, sockets) in each() {
        let (_rig, api, _) = api(sockets).await;
        let script = "echo out; echo err >&2; exit 3";
        let exec = ["exec", "a", "--", "sh", "-c", script];
        let output = api.run(&kubectl, &exec, "").await;
        let shown = format!("{} {sockets:?}: {output:?}", kubectl.display());
        assert_eq!(text(&output.stdout), "out\n", "{shown}");
        assert!(text(&output.stderr).contains("err\n"), "{shown}");
        assert!(text(&output.stderr).contains("exit code 3"), "{shown}");
        assert_eq!(output.status.code(), Some(3), "{shown}");

        let long = "0123456789\n".repeat(30_000);
        let cat = ["exec", "-i", "a", "--", "cat"];
        let output = api.run(&kubectl, &cat, &long).await;
        assert_eq!(output.stdout.len(), long.len(), "{shown}");
        assert!(output.status.success(), "{shown}");
    }
}

#[tokio::test]
async fn it_copies_files() {
    for (kubectl, sockets) in each() {
        let (rig, api, _) = api(sockets).await;
        let (from, to) = (rig.folder.join("from"), rig.folder.join("to"));
        std::fs::write(&from, "content\n").unwrap();
        let from = from.display().to_string();
        let output = api.run(&kubectl, &["cp", &from, "a:/tmp/there"], "").await;
        assert!(output.status.success(), "{}: {output:?}", kubectl.display());
        let back = to.display().to_string();
        let output = api.run(&kubectl, &["cp", "a:/tmp/there", &back], "").await;
        assert!(output.status.success(), "{}: {output:?}", kubectl.display());
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "content\n");
    }
}

#[tokio::test]
async fn it_attaches_and_sees_the_end() {
    for (kubectl, sockets) in each() {
        let (rig, api, container) = api(sockets).await;
        let mut child = api.command(&kubectl, &["attach", "a"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = soon(lines.next_line()).await.unwrap();
        assert_eq!(line.as_deref(), Some("tick"));
        rig.fake.kill(&container);
        let ended = soon(child.wait()).await.unwrap();
        assert!(ended.success(), "{}", kubectl.display());
    }
}

#[tokio::test]
async fn it_forwards_ports() {
    for (kubectl, sockets) in each() {
        let (_rig, api, _) = api(sockets).await;
        let forward = ["port-forward", "pod/a", ":80"];
        let mut child = api.command(&kubectl, &forward).spawn().unwrap();
        let port = local_port(&mut child).await;
        for number in 0..3 {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let said = format!("hello {number}").repeat(10_000);
            let (mut read, mut write) = stream.split();
            let mut heard = String::new();
            let talk = async {
                write.write_all(said.as_bytes()).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let hear = read.read_to_string(&mut heard);
            soon(async { tokio::join!(talk, hear).1 }).await.unwrap();
            let counts = (heard.len(), said.len());
            assert!(heard == said, "{}: {counts:?}", kubectl.display());
        }
        child.kill().await.unwrap();
    }
}

async fn local_port(child: &mut Child) -> u16 {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let line = soon(lines.next_line()).await.unwrap().unwrap();
    let port = line
        .strip_prefix("Forwarding from 127.0.0.1:")
        .and_then(|rest| rest.split(' ').next());
    port.and_then(|port| port.parse().ok())
        .unwrap_or_else(|| panic!("{line}"))
}
