//! A node alone, as `docs/alone.md` tells it: each of its manifests runs, outlives kills, and is not run twice.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use held_port::HeldPort;
use integration::agent::{Node, Runtime, program};
use integration::http;
use integration::images::{BUSYBOX_IMAGE, Image};
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::suite::node_rig::*;

on_each_runtime! {
    the_pods_of_the_page_outlive_kills_and_the_job_ends_once,
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/alone.md");
const FOLDER: &str = "# /etc/oxlet/manifests/";
const NGINX: &str = "docker.io/library/nginx:1.29";
const POSTGRES: &str = "docker.io/library/postgres:17";
const BUSYBOX: &str = "docker.io/library/busybox:1.37";
/// What the job writes, each time that it runs.
const WRITTEN: &str = "It works.\n";

/// The manifests of the page, by the names of their files.
fn manifests() -> BTreeMap<String, String> {
    let page = fs::read_to_string(PAGE).unwrap();
    let blocks = page.split("```yaml\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    blocks
        .map(|block| {
            let file = block.lines().next().unwrap();
            let name = file.strip_prefix(FOLDER);
            let name = name.unwrap_or_else(|| panic!("no manifest's path: {file}"));
            (name.to_owned(), block.to_owned())
        })
        .collect()
}

/// Images of the page's names that need no registry: a web server, a program that keeps files, a shell.
fn images() -> [Image; 3] {
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect();
    let httpd = format!("httpd -p 80 -h /usr/share/nginx/html; {SERVE}");
    let nginx = Image {
        entrypoint: words(&["sh", "-c", &httpd]),
        arguments: Vec::new(),
        ..Image::busybox(NGINX)
    };
    let files = "cd /var/lib/postgresql/data; echo 17 > PG_VERSION; echo begun >> begins; ";
    let is_ready = "#!/bin/sh\ntest -f /var/lib/postgresql/data/PG_VERSION\n";
    let postgres = Image {
        entrypoint: words(&["sh", "-c", &format!("{files}{SERVE}")]),
        arguments: Vec::new(),
        files: vec![("bin/pg_isready".to_owned(), is_ready.into())],
        ..Image::busybox(POSTGRES)
    };
    [nginx, postgres, Image::busybox(BUSYBOX)]
}

/// The page's node, with its folders below the test's own and its ports where no other program has them.
struct Site {
    rig: NodeRig,
    on: TestRuntime,
    srv: PathBuf,
    /// Of the page.
    port: HeldPort,
    database_port: HeldPort,
}

impl Site {
    async fn start(on: TestRuntime) -> Option<Site> {
        let fake = json!({ "images": [NGINX, POSTGRES, BUSYBOX] });
        let rig = on.start_with(|builder| builder.alone().fake(&fake)).await?;
        let site = Site {
            srv: rig.node.dir().join("srv"),
            port: HeldPort::pick().unwrap(),
            database_port: HeldPort::pick().unwrap(),
            rig,
            on,
        };
        site.supply_images().await;
        site.write_manifests();
        Some(site)
    }

    async fn supply_images(&self) {
        for image in images() {
            match (&self.rig.containerd, self.on) {
                (Some(containerd), _) => containerd.import(&image).await.unwrap(),
                (None, TestRuntime::Native) => import(&self.rig.node, &image).await,
                (None, _) => {}
            }
        }
    }

    fn write_manifests(&self) {
        let database = self.database_port.number();
        for (name, text) in manifests() {
            let text = text
                .replace("/srv/", &format!("{}/", self.srv.display()))
                .replace(
                    "hostPort: 8080",
                    &format!("hostPort: {}", self.port.number()),
                )
                .replace("hostPort: 5432", &format!("hostPort: {database}"));
            self.rig.node.drop_manifest(&name, &text).unwrap();
        }
    }

    /// Waits until both services are ready and the job has succeeded; returns all pods.
    async fn until_up(&self) -> Vec<Pod> {
        let has_succeeded = |pod: &Pod| phase(pod) == "Succeeded";
        vec![
            self.rig.until_running("web").await,
            self.rig.until_running("database").await,
            self.rig
                .until("first-page", "has succeeded", has_succeeded)
                .await,
        ]
    }

    /// The page as the web server has it, from outside of its pod.
    async fn until_served(&self) {
        // Nothing listens for a simulated pod.
        if self.on == TestRuntime::Fake {
            return;
        }
        let is_served = async || {
            let answer = http::get(self.port.number(), "/").await;
            answer.is_ok_and(|answer| answer.status == 200 && answer.text() == WRITTEN)
        };
        wait_until(CONVERGENCE_TIMEOUT, "the page is served", is_served)
            .await
            .unwrap();
    }

    /// Ends the pods, and with them what leads their ports to them.
    async fn end(self) {
        for name in ["web", "database", "first-page"] {
            // One may be gone already.
            drop(self.rig.node.remove_manifest(&format!("{name}.yaml")));
            self.rig.until_gone(name).await;
        }
    }

    fn assert_the_job_ran_once(&self) {
        let written = fs::read_to_string(self.srv.join("web/index.html")).unwrap();
        assert_eq!(written, WRITTEN);
    }
}

/// Carries an image into the native runtime, as the page says.
async fn import(node: &Node, image: &Image) {
    node.until_plugin_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    let file = node.dir().join("image.tar");
    image.build().unwrap().save(&file).unwrap();
    let file = file.display().to_string();
    node.oxctl(&["image", "import", &file]).await.unwrap();
}

async fn the_pods_of_the_page_outlive_kills_and_the_job_ends_once(on: TestRuntime) {
    let Some(mut site) = Site::start(on).await else {
        return;
    };
    let before = site.until_up().await;
    site.until_served().await;
    site.assert_the_job_ran_once();
    let shown = site.rig.node.oxctl(&["pods"]).await.unwrap();
    for words in ["web-node", "database-node", "first-page-node", "Succeeded"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let why = ["why", "first-page-node"];
    assert!(!site.rig.node.oxctl(&why).await.unwrap().is_empty());

    for _ in 0..3 {
        site.rig.node.kill9().unwrap();
        site.rig.node.begin().await.unwrap();
        assert_eq!(identities(&site.until_up().await), identities(&before));
        site.rig.node.kill_plugin();
        let ready = site.rig.node.until_plugin_ready(CONVERGENCE_TIMEOUT);
        ready.await.unwrap();
        assert_nothing_twice(&site.rig.cri().await).await;
    }
    site.rig.node.restart().await.unwrap();
    assert_eq!(identities(&site.until_up().await), identities(&before));
    site.until_served().await;
    site.assert_the_job_ran_once();

    // What is removed while the agent is away ends when it is back; what is changed runs anew.
    site.rig.node.terminate().await.unwrap();
    site.rig.node.remove_manifest("web.yaml").unwrap();
    site.rig.node.begin().await.unwrap();
    site.rig.until_gone("web").await;
    site.rig.until_running("database").await;
    site.assert_the_job_ran_once();
    site.end().await;
}

/// Has the native runtime's records say that they are of an earlier boot of the machine.
fn boot_again(native: &Path) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let earlier = "0".repeat(boot.trim().len());
    let mut changed = 0;
    for file in files(&native.join("sandboxes"))
        .into_iter()
        .chain(files(&native.join("containers")))
    {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        if text.contains(boot.trim()) {
            fs::write(&file, text.replace(boot.trim(), &earlier)).unwrap();
            changed += 1;
        }
    }
    // A sandbox and a container of each service at least: the job's are of its first boot.
    assert!(changed >= 4, "{changed}");
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path()),
            false => vec![entry.path()],
        })
        .collect()
}

#[tokio::test]
async fn services_begin_again_after_a_pulled_plug_and_what_had_succeeded_does_not() {
    let mut site = Site::start(TestRuntime::Native).await.unwrap();
    for begins in 2..4 {
        let before = identities(&site.until_up().await);
        site.rig.node.pull_plug().unwrap();
        boot_again(&site.rig.node.root().join("oxlet/plugins/runtime/native"));
        site.rig.node.begin().await.unwrap();
        for name in ["web", "database"] {
            let is_new = |pod: &Pod| {
                let now = identities(std::slice::from_ref(pod));
                is_ready(pod) && now.iter().all(|(key, now)| before[key].0 != now.0)
            };
            site.rig
                .until(name, "runs in a new container", is_new)
                .await;
        }
        let after = identities(&site.until_up().await);
        let job = ("first-page-node".to_owned(), "write".to_owned());
        assert_eq!(after[&job], before[&job]);
        site.assert_the_job_ran_once();
        site.until_served().await;
        // The database finds the files of its earlier lives.
        let lives = fs::read_to_string(site.srv.join("database/begins")).unwrap();
        assert_eq!(lives.lines().count(), begins, "{lives}");
        assert_nothing_twice(&site.rig.cri().await).await;
    }
    site.end().await;
}

const NEAR: &str = "
apiVersion: v1
kind: Pod
metadata: {name: near}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/oxlet/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, \"trap 'exit 0' TERM; while true; do sleep 1; done\"]
";

/// Addresses and ports on which a process listens, IPv4 and IPv6 in the kernel's hexadecimal.
fn listening(pid: u32) -> Vec<String> {
    const LISTEN: &str = "0A";
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let sockets: Vec<_> = open
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|target| target.display().to_string())
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<_> = line.split_whitespace().collect();
            let is_own = sockets.contains(&format!("socket:[{}]", words[9]));
            if words[3] == LISTEN && is_own {
                found.push(words[1].to_owned());
            }
        }
    }
    found
}

/// Which runtime that is depends on the machine: here an earlier life has chosen, so that the test has its own.
#[tokio::test]
async fn without_a_further_word_a_pod_runs_on_what_the_machine_has_and_nothing_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("root/oxlet/runtime-choice");
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    fs::write(&kept, "native\n").unwrap();
    let closed = json!({ "readOnlyPort": 0 });
    let builder = Node::builder().runtime(Runtime::Chosen).alone();
    let builder = builder.config(&closed).at(dir.path());
    let mut node = builder
        .start()
        .await
        .unwrap_or_else(|error| panic!("{error:#}"));
    import(&node, &Image::busybox(BUSYBOX_IMAGE)).await;
    node.drop_manifest("near.yaml", NEAR).unwrap();
    let containers = async |node: &Node| node.cri().await.unwrap().running().await.unwrap();
    let runs = async |node: &Node| {
        let shown = node.oxctl(&["pods"]).await.unwrap_or_default();
        shown.contains("near-node") && shown.contains("1/1")
    };
    wait_until(CONVERGENCE_TIMEOUT, "the pod runs", async || {
        runs(&node).await
    })
    .await
    .unwrap();
    let before = containers(&node).await;
    assert_eq!(before.len(), 1);

    node.kill9().unwrap();
    node.begin().await.unwrap();
    node.until_plugin_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    wait_until(CONVERGENCE_TIMEOUT, "it is adopted", async || {
        runs(&node).await
    })
    .await
    .unwrap();
    assert_eq!(containers(&node).await, before);
    let port = format!("0100007F:{:04X}", node.healthz_port());
    assert_eq!(listening(node.pid().unwrap()), [port]);
    assert_eq!(fs::read_to_string(&kept).unwrap(), "native\n");
    let given = ["/etc/oxlet/net.d", "/etc/cni/net.d"].map(|folder| Path::new(folder).exists());
    let own = dir.path().join("root/oxlet/net.d/10-oxlet.conflist");
    assert!(own.exists() || given.contains(&true));
    node.remove_manifest("near.yaml").unwrap();
    wait_until(CONVERGENCE_TIMEOUT, "the pod is gone", async || {
        containers(&node).await.is_empty()
    })
    .await
    .unwrap();
}

#[test]
fn what_contradicts_it_ends_the_agent_with_a_sentence() {
    for (flag, words) in [
        ("--kubeconfig=/etc/kubernetes/kubelet.conf", "--kubeconfig"),
        ("--config=/etc/oxlet/config.yaml", "--config-dir"),
        ("--authorization-mode=Webhook", "authorization.mode"),
    ] {
        let mut command = Command::new(program("oxlet").unwrap());
        let done = command.args(["--alone", flag]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.contains(words) && said.contains("--alone"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn the_page_has_three_pods_and_names_only_files_that_ship() {
    let names: Vec<_> = manifests().into_keys().collect();
    assert_eq!(names, ["database.yaml", "first-page.yaml", "web.yaml"]);
    let page = fs::read_to_string(PAGE).unwrap();
    let service = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/service");
    assert!(page.contains("/usr/share/oxlet/90-alone.conf"));
    let unit = fs::read_to_string(service.join("90-alone.conf")).unwrap();
    assert!(unit.contains("/oxlet --alone --config-dir=/etc/oxlet/config.d"));
}
