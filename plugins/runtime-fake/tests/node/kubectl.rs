//! kubectl against the streaming server: whichever versions are installed, through the smallest API server that it takes.
//! Where none is installed, nothing is shown.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use proto::cri::*;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::rig::{Rig, Runtime, rig};

const FOLDERS: [&str; 3] = ["/usr/lib/google-cloud-sdk/bin", "/usr/local/bin", "/usr/bin"];
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the kubectls that are installed: one of each version's own name, else the plain one.
fn kubectls() -> Vec<PathBuf> {
    let folders = FOLDERS.iter().filter_map(|folder| std::fs::read_dir(folder).ok());
    let paths = folders.flatten().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf, prefix: &str| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
    };
    let (versions, plain): (Vec<_>, Vec<_>) =
        paths.filter(|path| named(path, "kubectl")).partition(|path| named(path, "kubectl."));
    let plain = plain.into_iter().filter(|path| path.ends_with("kubectl"));
    if versions.is_empty() { plain.take(1).collect() } else { versions }
}

/// An API server with one pod, whose streams it carries to the runtime.
struct Api {
    address: String,
    folder: PathBuf,
}

impl Api {
    async fn start(rig: &Rig, sandbox: &str, container: &str) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (runtime, sandbox, container) = (rig.runtime.clone(), sandbox.to_owned(), container.to_owned());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, runtime.clone(), sandbox.clone(), container.clone()));
            }
        });
        Api { address, folder: rig.folder.clone() }
    }

    fn command(&self, kubectl: &PathBuf, args: &[&str]) -> Command {
        let mut command = Command::new(kubectl);
        command
            .args(["--server", &format!("http://{}", self.address), "--namespace", "default"])
            .args(args)
            .env_clear()
            .env("HOME", &self.folder)
            .kill_on_drop(true)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    async fn run(&self, kubectl: &PathBuf, args: &[&str], stdin: &str) -> Output {
        let mut child = self.command(kubectl, args).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).await.unwrap();
        tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("kubectl ends").unwrap()
    }
}

async fn answer(stream: TcpStream, mut runtime: Runtime, sandbox: String, container: String) {
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
    let target = head[0].split(' ').nth(1).unwrap().to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let url = match path.rsplit('/').next().unwrap() {
        "exec" => {
            let has = |flag: &str| query.split('&').any(|pair| pair == format!("{flag}=true"));
            let words = query.split('&').filter_map(|pair| pair.strip_prefix("command="));
            let cmd = words.map(|word| word.replace('+', " ").replace("%2F", "/").replace("%3B", ";").replace("%26", "&")).collect();
            let (stdin, stdout, stderr, tty) = (has("stdin"), has("stdout"), has("stderr"), has("tty"));
            let request = ExecRequest { container_id: container, cmd, tty, stdin, stdout, stderr };
            runtime.exec(request).await.unwrap().into_inner().url
        }
        "attach" => {
            let request = AttachRequest { container_id: container, stdout: true, stderr: true, ..AttachRequest::default() };
            runtime.attach(request).await.unwrap().into_inner().url
        }
        "portforward" => {
            let request = PortForwardRequest { pod_sandbox_id: sandbox, port: Vec::new() };
            runtime.port_forward(request).await.unwrap().into_inner().url
        }
        _ => return show(stream, path).await,
    };
    let (host, token) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut server = TcpStream::connect(host).await.unwrap();
    head[0] = head[0].replace(&target, &format!("/{token}"));
    server.write_all(format!("{}\r\n", head.concat()).as_bytes()).await.unwrap();
    drop(copy_bidirectional(&mut stream, &mut server).await);
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
        _ => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": path}),
    };
    let code = if answer["code"] == 404 { "404 Not Found" } else { "200 OK" };
    let text = answer.to_string();
    let answer = format!(
        "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(answer.as_bytes()).await.unwrap_or_default();
}

async fn api() -> (Rig, Api, String) {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let container = rig.running(&sandbox, "c", "while true; do sleep 0.1; echo tick; done").await;
    let api = Api::start(&rig, &sandbox, &container).await;
    (rig, api, container)
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn it_runs_commands() {
    let (_rig, api, _) = api().await;
    for kubectl in &kubectls() {
        let script = "echo out; echo err >&2; exit 3";
        let output = api.run(kubectl, &["exec", "a", "--", "sh", "-c", script], "").await;
        let shown = format!("{}: {output:?}", kubectl.display());
        assert_eq!(text(&output.stdout), "out\n", "{shown}");
        assert!(text(&output.stderr).starts_with("err\n"), "{shown}");
        assert!(text(&output.stderr).contains("exit code 3"), "{shown}");
        assert_eq!(output.status.code(), Some(3), "{shown}");

        let long = "0123456789\n".repeat(30_000);
        let output = api.run(kubectl, &["exec", "-i", "a", "--", "cat"], &long).await;
        assert_eq!(output.stdout.len(), long.len(), "{}", kubectl.display());
        assert!(output.status.success());
    }
}

#[tokio::test]
async fn it_copies_files() {
    let (rig, api, _) = api().await;
    let (from, to) = (rig.folder.join("from"), rig.folder.join("to"));
    std::fs::write(&from, "content\n").unwrap();
    for kubectl in &kubectls() {
        let from = from.display().to_string();
        let output = api.run(kubectl, &["cp", &from, "a:/tmp/there"], "").await;
        assert!(output.status.success(), "{}: {output:?}", kubectl.display());
        let back = to.display().to_string();
        let output = api.run(kubectl, &["cp", "a:/tmp/there", &back], "").await;
        assert!(output.status.success(), "{}: {output:?}", kubectl.display());
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "content\n");
        std::fs::remove_file(&to).unwrap();
    }
}

#[tokio::test]
async fn it_attaches_and_sees_the_end() {
    for kubectl in &kubectls() {
        let (rig, api, container) = api().await;
        let mut child = api.command(kubectl, &["attach", "a"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
        assert_eq!(line.as_deref(), Some("tick"));
        rig.fake.kill(&container);
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await.expect("kubectl ends").unwrap();
        assert!(ended.success(), "{}", kubectl.display());
    }
}

#[tokio::test]
async fn it_forwards_ports() {
    let (_rig, api, _) = api().await;
    for kubectl in &kubectls() {
        let mut child = api.command(kubectl, &["port-forward", "pod/a", ":80"]).spawn().unwrap();
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
            let talk = async { tokio::join!(talk, read.read_to_string(&mut heard)).1.unwrap() };
            tokio::time::timeout(PATIENCE, talk).await.expect("the echo ends");
            assert!(heard == said, "{}: {} of {}", kubectl.display(), heard.len(), said.len());
        }
        child.kill().await.unwrap();
    }
}

async fn local_port(child: &mut Child) -> u16 {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let port = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
    port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}
