//! Images as people really have them, and pods that ask odd things of them: what each container sees, as a table. The
//! node's own files are the same afterwards.

use std::fs;
use std::path::Path;

use integration::images::Image;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::host::{HostState, OUTSIDE};
use crate::suite::node_rig::*;

on_real_runtimes! {
    each_image_runs_as_it_says_and_the_node_stays_as_it_was,
}

/// A pod of an odd image, and what its script prints.
struct OddPod {
    name: &'static str,
    image: Image,
    /// Fields of the container.
    container: Value,
    script: &'static str,
    /// The lines of the log.
    expected: &'static [&'static str],
    /// Whether apt's containerd 1.6 with runc 1.1 does the same; what it does instead is no measure.
    on_containerd: bool,
}

impl OddPod {
    fn new(name: &'static str, script: &'static str, expected: &'static [&'static str]) -> OddPod {
        OddPod {
            name,
            image: Image::busybox(&format!("localhost/odd/{name}:1")),
            container: json!({}),
            script,
            expected,
            on_containerd: true,
        }
    }

    fn user(mut self, user: i64) -> OddPod {
        self.container["securityContext"]["runAsUser"] = json!(user);
        self
    }

    fn image_user(mut self, user: &str) -> OddPod {
        user.clone_into(&mut self.image.user);
        self
    }

    fn link(mut self, path: &str, target: &str) -> OddPod {
        self.image.links.push((path.to_owned(), target.to_owned()));
        self
    }

    fn file(mut self, path: &str, content: &str) -> OddPod {
        let content = content.as_bytes().to_vec();
        self.image.files.push((path.to_owned(), content));
        self
    }

    fn container(mut self, field: &str, value: Value) -> OddPod {
        self.container[field] = value;
        self
    }

    fn on_native_alone(mut self) -> OddPod {
        self.on_containerd = false;
        self
    }

    fn manifest(&self) -> Value {
        let mut container = self.container.clone();
        container["name"] = json!("app");
        container["image"] = json!(self.image.name);
        container["command"] = json!(["/bin/sh", "-c", self.script]);
        let spec = json!({
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{ "name": "work", "emptyDir": {} }],
        });
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": self.name }, "spec": spec })
    }
}

/// Root by a number that is a name, and a group that is one.
const NUMBERS_AS_NAMES: &str =
    "root:x:0:0::/root:/bin/sh\n1000:x:0:0::/:/bin/sh\napp:x:1001:1002::/srv:/bin/sh\n";

fn users() -> Vec<OddPod> {
    vec![
        OddPod::new("number-of-the-pod", "id -u; id -g", &["1000", "0"])
            .file("etc/passwd", NUMBERS_AS_NAMES)
            .user(1000)
            .container(
                "securityContext",
                json!({ "runAsUser": 1000, "runAsNonRoot": true }),
            ),
        OddPod::new("number-of-the-image", "id -u", &["1000"])
            .file("etc/passwd", NUMBERS_AS_NAMES)
            .image_user("1000"),
        OddPod::new(
            "name-of-the-image",
            "id -u; id -g; echo $HOME",
            &["1001", "1002", "/srv"],
        )
        .file("etc/passwd", NUMBERS_AS_NAMES)
        .image_user("app"),
        // As with containerd's CRI: of an image's user the part before the colon counts.
        OddPod::new("name-and-group-number", "id -u; id -g", &["1001", "1002"])
            .file("etc/passwd", NUMBERS_AS_NAMES)
            .image_user("app:77"),
        OddPod::new("home-of-nobody-known", "echo home=$HOME", &["home=/"]).user(12345),
        OddPod::new("home-of-root", "echo home=$HOME", &["home=/root"]),
    ]
}

fn streams() -> Vec<OddPod> {
    const REOPEN: &str = "echo out > /dev/stdout; echo err > /proc/self/fd/2; echo end";
    vec![
        OddPod::new("reopened-outputs", REOPEN, &["out", "end", "err"]).user(1000),
        OddPod::new(
            "reopened-outputs-of-the-image",
            REOPEN,
            &["out", "end", "err"],
        )
        .image_user("65534"),
        OddPod::new("link-to-its-output", "echo line >> /var.log", &["line"])
            .link("var.log", "/dev/stdout")
            .user(1000),
    ]
}

fn folders() -> Vec<OddPod> {
    vec![
        OddPod::new(
            "missing-working-folder",
            "pwd; stat -c %a .",
            &["/no/such/dir", "755"],
        )
        .container("workingDir", json!("/no/such/dir")),
        OddPod::new(
            "working-folder-below-a-link",
            "pwd -P",
            &["/srv/real/below"],
        )
        .link("work", "/srv/real")
        .file("srv/real/.keep", "")
        .container("workingDir", json!("/work/below")),
        OddPod::new(
            "dangling-resolver",
            "test -s /etc/hosts && test -f /etc/resolv.conf && echo both",
            &["both"],
        )
        .link("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf")
        .link("etc/hosts", "/run/no/hosts"),
        OddPod::new(
            "mount-below-a-dangling-link",
            "touch /data/here && ls /data /real/data",
            &["/data:", "here", "", "/real/data:", "here"],
        )
        .link("data", "real/data")
        .container(
            "volumeMounts",
            json!([{ "name": "work", "mountPath": "/data" }]),
        ),
        OddPod::new(
            "mount-on-a-file-below-etc",
            "cat /etc/image > /dev/null; mount | grep -c ' /srv/a/b/c '",
            &["1"],
        )
        .container(
            "volumeMounts",
            json!([{ "name": "work", "mountPath": "/srv/a/b/c" }]),
        ),
    ]
}

const DEVICES: &str = "echo x > /dev/null && ls -ld /dev/ | cut -c1; \
    ls /dev | grep -cE '^(null|zero|fd|stdin)$'";

/// Images whose own places of a container lead elsewhere.
fn places() -> Vec<OddPod> {
    let outside = OUTSIDE.trim_start_matches('/');
    let kept = |pod: OddPod| pod.file(&format!("{outside}/.keep"), "").on_native_alone();
    vec![
        kept(OddPod::new("dev-is-a-link", DEVICES, &["d", "4"]).link("dev", OUTSIDE)),
        kept(OddPod::new("etc-is-a-link", "ls /etc/hosts", &["/etc/hosts"]).link("etc", OUTSIDE)),
        // As with runc: a procfs or sysfs goes on an ordinary folder or nowhere.
        kept(OddPod::new("sys-is-a-link", "echo ran", &[]).link("sys", OUTSIDE)),
        kept(OddPod::new("proc-is-a-link", "echo ran", &[]).link("proc", OUTSIDE)),
    ]
}

/// What a container has written: the lines of its standard output, then those of its standard error, since nothing
/// orders the two.
fn lines_of(node_rig: &NodeRig, pod: &Pod) -> Vec<String> {
    let log = node_rig.logs_of(pod).join("app/0.log");
    let text = fs::read_to_string(log).unwrap_or_default();
    ["stdout", "stderr"]
        .into_iter()
        .flat_map(|stream| lines_of_stream(&text, stream))
        .collect()
}

/// A line of the log is its time, its stream, whether it is whole, and the text.
fn lines_of_stream(log: &str, stream: &str) -> Vec<String> {
    log.lines()
        .map(|line| line.splitn(4, ' ').collect::<Vec<_>>())
        .filter(|fields| fields.get(1) == Some(&stream))
        .map(|fields| fields.get(3).copied().unwrap_or_default().to_owned())
        .collect()
}

impl NodeRig {
    /// Gives the runtime an image.
    pub(super) async fn import(&self, image: &Image, folder: &Path) {
        if let Some(containerd) = &self.containerd {
            containerd.import(image).await.unwrap();
            return;
        }
        let archive = folder.join("image.tar");
        image.build().unwrap().save(&archive).unwrap();
        let archive = archive.display().to_string();
        self.node
            .oxctl(&["image", "import", &archive])
            .await
            .unwrap();
    }
}

async fn each_image_runs_as_it_says_and_the_node_stays_as_it_was(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(OUTSIDE).unwrap();
    let before = HostState::read(&node_rig);
    let mut pods: Vec<OddPod> = [users(), streams(), folders(), places()]
        .into_iter()
        .flatten()
        .collect();
    pods.retain(|pod| pod.on_containerd || on == TestRuntime::Native);
    for pod in &pods {
        node_rig.import(&pod.image, folder.path()).await;
        let file = format!("{}.json", pod.name);
        let manifest = pod.manifest().to_string();
        node_rig.node.drop_manifest(&file, &manifest).unwrap();
    }
    let mut wrong = Vec::new();
    for odd in &pods {
        let has_ended = |pod: &Pod| matches!(phase(pod), "Succeeded" | "Failed");
        let ended = node_rig
            .node
            .until(odd.name, CONVERGENCE_TIMEOUT, "has ended", has_ended)
            .await;
        match ended.map(|pod| lines_of(&node_rig, &pod)) {
            Ok(lines) if lines == odd.expected => {}
            Ok(lines) => wrong.push(format!(
                "{}: {lines:?}, expected {:?}",
                odd.name, odd.expected
            )),
            Err(error) => wrong.push(format!("{}: {error:#}", odd.name)),
        }
    }
    for pod in &pods {
        let file = format!("{}.json", pod.name);
        node_rig.node.remove_manifest(&file).unwrap();
    }
    for pod in &pods {
        node_rig.until_gone(pod.name).await;
    }
    before.until_restored(&node_rig).await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}
