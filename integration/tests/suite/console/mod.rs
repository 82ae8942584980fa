//! The node's page in a real browser, and `oxctl console` in a real terminal.

mod page;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use integration::agent::{self, Node};
use integration::{images, wait_until};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::time::Instant;

/// A debug build on a busy machine.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Seconds of the page's own clock: it looks several times.
const PAGE_TIME: u32 = 7;

fn pod(name: &str, image: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "containers": [{
                "name": "app", "image": image, "command": ["sleep", "100000"],
                "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }],
            }],
            "volumes": [{ "name": "scratch", "emptyDir": {} }],
        },
    })
    .to_string()
}

fn runs(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// A node with a pod that runs, one whose image is a script, and a log.
async fn node() -> Node {
    let image = r#"<img src=x onerror="document.title='broken in'">"#;
    let node = Node::builder()
        .manifest("web.yaml", &pod("web", images::BUSYBOX_IMAGE))
        .manifest("evil.yaml", &pod("evil", image));
    let node = node.start().await.unwrap();
    let web = node
        .until("web", CONVERGENCE_TIMEOUT, "runs", runs)
        .await
        .unwrap();
    let folder = format!("default_web-node_{}", web.metadata.uid.unwrap());
    let log = node.pod_logs().join(folder).join("app/0.log");
    let line = "2026-01-01T00:00:00.000000000Z stdout F <b>said</b> \u{1b}[31mthis\n";
    std::fs::write(log, line).unwrap();
    node
}

/// The admin socket as an address, as `ssh -L` makes it; counts what is asked for.
struct ForwardedSocket {
    address: String,
    asked_for_pods: Arc<AtomicUsize>,
}

impl ForwardedSocket {
    async fn start(socket: PathBuf) -> ForwardedSocket {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked_for_pods = Arc::<AtomicUsize>::default();
        let counted = asked_for_pods.clone();
        tokio::spawn(async move {
            while let Ok((browser, _)) = listener.accept().await {
                let agent = UnixStream::connect(&socket).await.unwrap();
                let ((mut from, mut back), (mut answers, mut to)) =
                    (browser.into_split(), agent.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
                let counted = counted.clone();
                tokio::spawn(async move {
                    let mut piece = vec![0; 16 * 1024];
                    while let Ok(length @ 1..) = from.read(&mut piece).await {
                        let text = String::from_utf8_lossy(&piece[..length]);
                        let asked = text.matches("GET /console/pods ").count();
                        counted.fetch_add(asked, Ordering::Relaxed);
                        to.write_all(&piece[..length]).await.unwrap();
                    }
                });
            }
        });
        ForwardedSocket {
            address,
            asked_for_pods,
        }
    }

    /// What the browser has made of the page at a place of it, as soon as that contains the words.
    async fn until(&self, place: &str, words: &[&str]) -> String {
        let address = format!("http://{}/console/#{place}", self.address);
        let deadline = Instant::now() + CONVERGENCE_TIMEOUT;
        loop {
            let page = browse(&address, PAGE_TIME).await;
            let missing = words.iter().find(|word| !page.contains(**word));
            let Some(missing) = missing else { return page };
            assert!(
                Instant::now() < deadline,
                "{place} without {missing}: {page}"
            );
        }
    }
}

/// What the browser has made of an address after so many seconds of the page's clock, which waits for answers.
async fn browse(address: &str, seconds: u32) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = tokio::process::Command::new("chromium-headless-shell")
        .args([
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
        ])
        .arg(format!("--virtual-time-budget={}", seconds * 1000))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("--dump-dom")
        .arg(address)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(CONVERGENCE_TIMEOUT, output).await;
    let output = output.expect("the browser ends").unwrap();
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    page
}

/// Whether the kernel measures the stalls of the machine's root cgroup; only version 2 does.
fn has_stalls() -> bool {
    Path::new("/sys/fs/cgroup/io.pressure").exists()
}

#[tokio::test]
async fn page_shows_the_node_live_in_a_browser_and_runs_nobody_elses_script() {
    let mut node = node().await;
    let forwarded = ForwardedSocket::start(node.admin_socket()).await;

    let pods = [">web-node</a>", ">Running<", "InvalidImageName"];
    forwarded.until("pods", &pods).await;
    let looks = forwarded.asked_for_pods.load(Ordering::Relaxed);
    assert!(
        looks >= 3,
        "it looks every two seconds: {looks} times in seven"
    );

    let evil = forwarded
        .until("pod/default/evil-node", &["&lt;img src=x"])
        .await;
    assert!(
        evil.contains("<title>Oxlet</title>") && !evil.contains("<img"),
        "{evil}"
    );

    let to_the_log = r##"href="#log/default/web-node/app""##;
    forwarded.until("pod/default/web-node", &[to_the_log]).await;
    forwarded
        .until("log/default/web-node/app", &["&lt;b&gt;said&lt;/b&gt;"])
        .await;

    forwarded.until("plugins", &[">runtime<", ">ready<"]).await;
    node.oxctl(&["plugin", "restart", "runtime"]).await.unwrap();
    let generation = node.plugin().await.unwrap()["generation"].to_string();
    forwarded
        .until("plugins", &[&format!(">{generation}<")])
        .await;

    let image = format!("<td>{}</td>", images::BUSYBOX_IMAGE);
    let stalls = match has_stalls() {
        true => "<td>io</td><td>some</td>",
        false => "none are measured",
    };
    for (place, words) in [
        ("tree", ["eviction", ">Running<"]),
        ("volumes", ["<td>scratch</td>", ">Mounted<"]),
        ("images", [&image, "no image is pulled or waits"]),
        ("pressure", ["Under pressure", stalls]),
        ("events", ["<td>Started</td>", "Pod/default/web-node"]),
    ] {
        let no_trouble = r#"id="trouble" role="alert" hidden"#;
        forwarded
            .until(place, &[words[0], words[1], no_trouble])
            .await;
    }
    node.kill9().unwrap();
    node.begin().await.unwrap();
    forwarded.until("pods", &[">web-node</a>"]).await;
    assert!(node.terminate().await.unwrap().success());
}

/// A terminal in which the console runs.
struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    fn start(node: &Node) -> Terminal {
        let terminal = Terminal {
            folder: tempfile::tempdir().unwrap(),
        };
        let console = format!(
            "{} --socket {} console",
            agent::program("oxctl").unwrap().display(),
            node.admin_socket().display()
        );
        terminal.tmux(&["new-session", "-d", "-x", "140", "-y", "24", &console]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .arg("-S")
            .arg(self.folder.path().join("tmux.sock"))
            .args(["-f", "/dev/null"])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Goes down to a row of a screen's table, and into it.
    fn enter_row(&self, screen: &str, is_row: impl Fn(&str) -> bool) {
        // Above the rows are the tabs, a line, and the table's head.
        let row = screen.lines().skip(3).position(is_row).unwrap();
        for _ in 0..row {
            self.keys(&["Down"]);
        }
        self.keys(&["Enter"]);
    }

    async fn until(&self, words: &[&str]) -> String {
        let screen = || self.tmux(&["capture-pane", "-p"]);
        let what = words.join(", ");
        let shown = wait_until(CONVERGENCE_TIMEOUT, &what, async || {
            let screen = screen();
            words.iter().all(|word| screen.contains(word))
        });
        if let Err(error) = shown.await {
            panic!("{error}; the screen:\n{}", screen());
        }
        screen()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[tokio::test]
async fn console_shows_the_node_in_a_terminal_from_a_pod_to_its_log_and_over_a_kill() {
    let mut node = node().await;
    let terminal = Terminal::start(&node);
    terminal
        .until(&["web-node", "Running", "InvalidImageName", "1 Pods"])
        .await;
    let pods = terminal.until(&["web-node"]).await;
    terminal.enter_row(&pods, |line| line.contains("web-node"));
    let why = terminal
        .until(&["default/web-node", "CONTAINER", "app"])
        .await;
    terminal.enter_row(&why, |line| line.starts_with("app"));
    terminal.until(&["<b>said</b> ·[31mthis"]).await;

    let stalls = match has_stalls() {
        true => "io          some",
        false => "no stalls are measured",
    };
    for (tab, words) in [
        ("2", ["runtime", "GENERATION"]),
        ("4", ["scratch", "Mounted"]),
        ("5", [images::BUSYBOX_IMAGE, "no image is pulled or waits"]),
        ("6", ["under no pressure", stalls]),
        ("7", ["LAST SEEN", "Started"]),
        ("3", ["HANDLED", "storage-local"]),
    ] {
        terminal.keys(&[tab]);
        terminal.until(&words).await;
    }
    node.kill9().unwrap();
    terminal.until(&["no agent answers at"]).await;
    node.begin().await.unwrap();
    terminal.keys(&["1"]);
    terminal.until(&["web-node", "Running"]).await;
    terminal.keys(&["q"]);
    wait_until(CONVERGENCE_TIMEOUT, "it has ended", async || {
        terminal.tmux(&["list-sessions"]).is_empty()
    })
    .await
    .unwrap();
    assert!(node.terminate().await.unwrap().success());
}
