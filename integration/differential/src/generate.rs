//! From a seed to a case. Most choices keep the default most of the time, so that a case has a few oddities and not all at once.

use std::path::Path;

use rig::random::Random;

use crate::case::{
    Case, ContainerCase, Content, DeviceCase, Dns, End, File, HiddenPaths, ImageCase, ImageVolume,
    MountCase, NewerCase, Pids, PodCase, Propagation, Resources, SeccompCase, Source,
};

const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nweb:x:1000:1000::/home/web:/bin/sh\n\
                      plain:x:33:34::/:/bin/false\n";
const GROUP: &str = "root:x:0:\nweb:x:1000:\nextra:x:50:web,plain\nwheel:x:10:root,web\n";

/// Names of users that images and requests have: known, unknown, numbers, with groups, malformed.
const IMAGE_USERS: [&str; 13] = [
    "web",
    "web:extra",
    "plain",
    "1000",
    "1000:2000",
    "33",
    "12345",
    "12345:54321",
    "web:77",
    "0",
    "0:50",
    "root",
    "root:web",
];
const ODD_USERS: [&str; 7] = [
    "nosuch",
    "web:nosuch",
    "2147483647",
    "4294967294",
    "4294967295",
    "-1",
    "1000:",
];
const UIDS: [i64; 8] = [0, 0, 1000, 1000, 33, 12_345, 65_534, 2_147_483_647];
const GIDS: [i64; 6] = [0, 50, 1000, 2000, 65_534, 2_147_483_647];
const GROUPS: [i64; 6] = [0, 50, 1000, 4000, 65_534, 123_456];

const PLAIN_WORKING_DIRS: [&str; 4] = ["/", "/app", "/app/dir", "/no/such/dir"];
const WORKING_DIRS: [&str; 14] = [
    "/",
    "/app",
    "/app/dir",
    "/no/such/dir",
    "/app/link-to-dir",
    "/app/dangling",
    "/app/config",
    "/app/up",
    "/home/web",
    "/private",
    "/tmp/../app",
    "/app/dir/",
    "/mnt/new/inner",
    "relative",
];

const ENVIRONMENT: [(&str, &str); 14] = [
    ("PLAIN", "value"),
    ("EMPTY", ""),
    ("SPACES", "  a  b  "),
    ("EQUALS", "a=b=c"),
    ("LINES", "a\nb\tc"),
    ("DOLLAR", "$(PLAIN) $PLAIN ${PLAIN}"),
    ("QUOTES", "\"'`\\"),
    ("UNICODE", "näïve ☃"),
    ("PATH", "/bin:/usr/bin"),
    ("HOME", "/elsewhere"),
    ("HOSTNAME", "another"),
    ("TERM", "dumb"),
    ("lower.case-name", "1"),
    (
        "LONG",
        "0123456789012345678901234567890123456789012345678901234567890123456789",
    ),
];

const ARGUMENTS: [&str; 12] = [
    "",
    " ",
    "--flag=value",
    "a b",
    "\"quoted\"",
    "'single'",
    "back\\slash",
    "new\nline",
    "tab\t",
    "\u{1}\u{7f}",
    "ünïcödé ☃",
    "$(PLAIN)",
];

const CAPABILITIES: [&str; 16] = [
    "ALL",
    "CHOWN",
    "DAC_OVERRIDE",
    "KILL",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_ADMIN",
    "SYS_CHROOT",
    "SYS_NICE",
    "SYS_PTRACE",
    "SYS_TIME",
];

const MOUNT_POINTS: [&str; 29] = [
    "/mnt/new",
    "/mnt/new/inner",
    "/data",
    "/data/inner",
    "/app/dir",
    "/app/config",
    "/app/link-to-dir",
    "/app/link-to-file",
    "/app/dangling",
    "/app/dangling/below",
    "/app/up",
    "/app/up/made",
    "/app/data",
    "/nested",
    "/nested/inner",
    "/nested/inner/most",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/passwd",
    "/tmp",
    "/run/secrets",
    "/var/run/secrets",
    "/dev/shm",
    "/dev/extra",
    "/proc/bus",
    "/sys/fs/extra",
    "/mnt//double/./dot/",
    "/app/loop",
    "/home/web",
];

/// Of these, the ones that are files in every image, and the ones that no image has.
const FILES: [&str; 5] = [
    "/app/config",
    "/app/link-to-file",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/passwd",
];
const MAYBE_MISSING: [&str; 5] = [
    "/mnt/new",
    "/mnt/new/inner",
    "/app/dangling",
    "/app/up/made",
    "/mnt//double/./dot/",
];

const SOURCES: [Source; 10] = [
    Source::Folder,
    Source::Folder,
    Source::Folder,
    Source::SubFolder,
    Source::File,
    Source::File,
    Source::Link,
    Source::Private,
    Source::Tree,
    Source::Null,
];

/// Of the image that is a volume: all of it, folders, a file, links out of it, what is not there.
const IMAGE_SUB_PATHS: [&str; 8] = [
    "",
    "app",
    "app/dir",
    "app/link-to-dir",
    "app/up",
    "app/up/etc",
    "app/config",
    "no/such",
];

const VOLUMES: [&str; 10] = [
    "/data",
    "/app/data",
    "/new/volume",
    "/app/link-to-dir",
    "/home/web",
    "/nested",
    "/nested/inner",
    "/tmp",
    "/app/dangling",
    "/private",
];

/// None in the place of `/dev/null`: runc 1.1 then gives the node's own to the container's user.
const DEVICES: [(&str, &str); 6] = [
    ("/dev/null", "/dev/xnull"),
    ("/dev/fuse", "/dev/fuse"),
    ("/dev/zero", "/dev/deep/er/zero"),
    ("/dev/full", "/app/full"),
    ("/dev/net/tun", "/dev/net/tun"),
    ("/dev/no-such-device", "/dev/no-such-device"),
];

const SYSCTLS: [(&str, &str); 6] = [
    ("net.ipv4.ip_unprivileged_port_start", "0"),
    ("net.ipv4.ping_group_range", "0 2147483647"),
    ("net/core/somaxconn", "333"),
    ("kernel.shm_rmid_forced", "1"),
    ("kernel.msgmax", "16384"),
    ("kernel.sem", "250 32000 32 128"),
];

const STOP_SIGNALS: [&str; 8] = [
    "SIGQUIT",
    "SIGUSR1",
    "QUIT",
    "2",
    "SIGTERM",
    "SIGRTMIN+3",
    "37",
    "SIGKILL",
];

/// Traps first: the harness stops the container when it has read the probe's line.
const SHELL: &str = "trap 'exit 40' TERM; trap 'exit 41' QUIT; trap 'exit 42' USR1; trap 'exit 43' INT; trap 'exit 44' 37; \
                     /bin/busybox grep -E '^(Sig(Blk|Ign|Cgt)|ShdPnd)' /proc/self/status; /bin/probe; \
                     while :; do /bin/busybox sleep 0.05; done";

/// Makes the case of a seed: always the same.
pub fn case(seed: u64) -> Case {
    let mut random = Random::far_apart(seed);
    let mut case = Case {
        seed,
        image: image(&mut random),
        pod: pod(&mut random),
        container: container(&mut random),
        newer: NewerCase::default(),
        end: End::Stop(1),
    };
    start(&mut case, &mut random);
    // Choices of their own: what a seed decided before stays.
    let mut random = Random::new(seed ^ u64::MAX);
    let first_stays = case.pod.second_container && matches!(case.end, End::Stop(_));
    case.pod.second_joins_first = first_stays && random.one_in(3);
    if random.one_in(4) {
        newer(&mut case, &mut random);
    }
    // A container can have no more than its sandbox.
    case.pod.privileged |= case.container.privileged;
    case
}

/// What containerd 1.6 does not have.
fn newer(case: &mut Case, random: &mut Random) {
    case.newer = NewerCase {
        user_namespace: random
            .one_in(2)
            .then(|| 65_536 * *random.pick(&[1, 2, 500])),
        strict_groups: random.one_in(3),
        recursive_readonly: random.one_in(2),
        image_volumes: Vec::new(),
    };
    let taken: Vec<&String> = case
        .container
        .mounts
        .iter()
        .map(|mount| &mount.at)
        .collect();
    if random.one_in(2) {
        let volume = ImageVolume {
            at: random.word(&MOUNT_POINTS),
            sub_path: random.word(&IMAGE_SUB_PATHS),
        };
        if !taken.contains(&&volume.at) {
            case.newer.image_volumes.push(volume);
        }
    }
    if case.newer.user_namespace.is_some() {
        // The API refuses these beside a user namespace.
        (case.pod.node_network, case.pod.node_ipc) = (false, false);
        (case.pod.privileged, case.container.privileged) = (false, false);
        if case.pod.pids == Pids::Node {
            case.pod.pids = Pids::Pod;
        }
    }
}

fn image(random: &mut Random) -> ImageCase {
    let mut image = ImageCase {
        env: vec!["PATH=/bin".to_owned()],
        ..ImageCase::default()
    };
    if random.one_in(3) {
        image.user = if random.one_in(8) {
            random.word(&ODD_USERS)
        } else {
            random.word(&IMAGE_USERS)
        };
    }
    if random.one_in(3) {
        image.working_dir = working_dir(random);
    }
    if random.one_in(3) {
        let more = random.some(&ENVIRONMENT, 4);
        image
            .env
            .extend(more.iter().map(|(name, value)| format!("{name}={value}")));
    }
    if random.one_in(8) {
        let odd = ["NOVALUE", "=nameless", "TWICE=1", "TWICE=2"].map(str::to_owned);
        image.env.extend(random.some(&odd, 4));
    }
    if random.one_in(10) {
        image.env.clear();
    }
    if random.one_in(3) {
        image.volumes = random.some(&VOLUMES.map(str::to_owned), 3);
    }
    if random.one_in(3) {
        image.stop_signal = random.word(&STOP_SIGNALS);
    }
    if random.one_in(3) {
        image.files = odd_files(random);
    }
    image
}

/// Files that images of the wild have, hostile ones among them.
fn odd_files(random: &mut Random) -> Vec<File> {
    let text = |path: &str, text: &str| entry(path, Content::Text(text.to_owned()), 0o644);
    let link = |path: &str, target: &str| entry(path, Content::Link(target.to_owned()), 0o777);
    let gone = |path: &str| entry(path, Content::Whiteout, 0o644);
    let odd = [
        // A number is no name.
        text("etc/passwd", &format!("1000:x:0:0::/:/bin/sh\n{PASSWD}")),
        text(
            "etc/passwd",
            &format!("\nmalformed\n:x:1:1::/:\nshort:x:5\n{PASSWD}# no comment\n"),
        ),
        text(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nweb:x:1000:4000::relative:/bin/sh\nweb:x:7:7::/second:/bin/sh\n",
        ),
        text(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nweb:x:1000:1000:::\n",
        ),
        text(
            "etc/group",
            &format!("{GROUP}77:x:88:web\n2000:x:99:\nweb:x:1001:plain\n"),
        ),
        text(
            "etc/group",
            "root:x:0:\nbroken\nextra:x:notanumber:web\nextra:x:51:web, plain\n",
        ),
        gone("etc/passwd"),
        gone("etc/group"),
        link("etc/passwd", "/app/passwd"),
        link("etc/group", "../../../app/group"),
        link("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf"),
        link("etc/hosts", "/run/none"),
        link("etc/hostname", "/app/config"),
        link("var/run", "/run"),
        link("run", "var/run"),
        link("tmp", "/app/dir"),
        link("mnt", "/app"),
        link("dev", "/app/dir"),
        link("proc", "/app/dir"),
        link("sys", "app/dir"),
        gone("dev"),
        gone("proc"),
        gone("tmp"),
        entry("dev/null", Content::Text("a file".to_owned()), 0o600),
        entry("dev/console", Content::Text(String::new()), 0o600),
        entry("dev/pts/0", Content::Text(String::new()), 0o600),
        link("dev/stdout", "/app/config"),
        link("dev/shm", "/tmp"),
        link("dev/ptmx", "/app/config"),
        entry("data", Content::Folder, 0o700),
    ];
    let mut chosen: Vec<File> = Vec::new();
    for file in random.some(&odd, 2) {
        // A layer that has an entry twice, or one below a link of its own, is another suite's matter.
        let is_apart = |other: &File| {
            let (file, other) = (Path::new(&file.path), Path::new(&other.path));
            !file.starts_with(other) && !other.starts_with(file)
        };
        if chosen.iter().all(is_apart) {
            chosen.push(file);
        }
    }
    chosen
}

fn entry(path: &str, content: Content, mode: u32) -> File {
    File {
        path: path.to_owned(),
        content,
        mode,
        owner: (0, 0),
    }
}

/// The files that every image has in its second layer, below its odd ones.
pub(crate) fn usual_files() -> Vec<File> {
    let text = |path: &str, text: &str, mode| entry(path, Content::Text(text.to_owned()), mode);
    let folder = |path: &str, mode| entry(path, Content::Folder, mode);
    let link = |path: &str, target: &str| entry(path, Content::Link(target.to_owned()), 0o777);
    let owned = |file: File, owner| File { owner, ..file };
    vec![
        text("etc/passwd", PASSWD, 0o644),
        text("etc/group", GROUP, 0o644),
        folder("app", 0o755),
        folder("app/dir", 0o755),
        text("app/dir/inside", "inside", 0o644),
        text("app/config", "config of the image", 0o640),
        text(
            "app/passwd",
            "root:x:0:0::/root:/bin/sh\nweb:x:1234:1234::/linked:/bin/sh\n",
            0o644,
        ),
        text("app/group", "root:x:0:\nextra:x:4321:web\n", 0o644),
        text("app/start", "#!/bin/sh\nexec /bin/probe \"$@\"\n", 0o755),
        text("app/plain", "no program", 0o644),
        text("app/garbage", "no program either", 0o755),
        text("app/secret", "secret", 0o644),
        folder("app/hidden", 0o755),
        text("app/hidden/file", "hidden", 0o644),
        link("app/link-to-dir", "dir"),
        link("app/link-to-file", "/app/config"),
        link("app/dangling", "/nowhere/at/all"),
        link("app/up", "../../../../.."),
        link("app/loop", "loop"),
        owned(folder("app/data", 0o2775), (1000, 50)),
        owned(text("app/data/file", "of web", 0o660), (1000, 1000)),
        owned(folder("home/web", 0o750), (1000, 1000)),
        folder("data", 0o755),
        owned(text("data/file", "data of the image", 0o644), (33, 34)),
        folder("nested/inner", 0o755),
        folder("private", 0o700),
        folder("run", 0o755),
        folder("mnt", 0o755),
    ]
}

fn pod(random: &mut Random) -> PodCase {
    let mut pod = PodCase::default();
    if random.one_in(2) {
        pod.hostname = random.word(&["web-0", "a-name-that-is-a-bit-longer-than-others", "x"]);
    }
    if random.one_in(4) {
        pod.node_network = true;
        pod.hostname = String::new();
    }
    pod.node_ipc = random.one_in(8);
    if random.one_in(3) {
        pod.pids = *random.pick(&[Pids::Pod, Pids::Pod, Pids::Node]);
    }
    pod.privileged = random.one_in(12);
    if random.one_in(4) {
        let all = SYSCTLS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        pod.sysctls = random.some(&all, 3);
        // The kubelet sends none that are not the pod's own.
        let (node_network, node_ipc) = (pod.node_network, pod.node_ipc);
        pod.sysctls.retain(|(name, _)| {
            if name.starts_with("net") {
                !node_network
            } else {
                !node_ipc
            }
        });
    }
    if random.one_in(3) {
        pod.dns = Some(Dns {
            servers: vec!["10.96.0.10".to_owned()],
            searches: vec![
                "default.svc.cluster.local".to_owned(),
                "cluster.local".to_owned(),
            ],
            options: vec!["ndots:5".to_owned()],
        });
    }
    if random.one_in(6) {
        pod.run_as_user = Some(*random.pick(&[0, 1000, 12_345]));
    }
    if random.one_in(6) {
        pod.supplemental_groups = random.some(&GROUPS, 2);
    }
    pod.second_container = random.one_in(4);
    pod
}

fn container(random: &mut Random) -> ContainerCase {
    let mut container = ContainerCase::default();
    if random.one_in(4) {
        container.working_dir = working_dir(random);
    }
    if random.one_in(2) {
        let all = ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned()));
        container.env = random.some(&all, 5);
    }
    let mounts = if random.one_in(2) {
        random.below(3) + 1
    } else {
        0
    };
    container.mounts = (0..mounts).map(|_| mount(random)).collect();
    let mut points: Vec<String> = Vec::new();
    // Two mounts at one place are refused by the API.
    container.mounts.retain(|mount| {
        let is_new = !points.contains(&mount.at);
        points.push(mount.at.clone());
        is_new
    });
    if random.one_in(6) {
        container.devices = random
            .some(&DEVICES, 2)
            .iter()
            .map(|(node, at)| DeviceCase {
                node: (*node).to_owned(),
                at: (*at).to_owned(),
                permissions: random.word(&["rwm", "rw", "r", "mrw"]),
            })
            .collect();
    }
    security(&mut container, random);
    container.tty = random.one_in(6);
    if random.one_in(5) {
        container.stdin = true;
        container.stdin_once = random.one_in(2);
    }
    if random.one_in(3) {
        container.resources = resources(random);
    }
    if random.one_in(3) {
        container.exec_args = random.some(&ARGUMENTS.map(str::to_owned), 4);
    }
    container
}

fn working_dir(random: &mut Random) -> String {
    if random.one_in(3) {
        random.word(&WORKING_DIRS)
    } else {
        random.word(&PLAIN_WORKING_DIRS)
    }
}

fn mount(random: &mut Random) -> MountCase {
    let mut mount = MountCase {
        at: random.word(&MOUNT_POINTS),
        source: *random.pick(&SOURCES),
        readonly: random.one_in(3),
        propagation: Propagation::Private,
    };
    // A file onto a folder, or a folder onto a file, is refused by all: seldom.
    if FILES.contains(&mount.at.as_str()) && !random.one_in(10) {
        mount.source = *random.pick(&[Source::File, Source::Null]);
    } else if !MAYBE_MISSING.contains(&mount.at.as_str()) && !random.one_in(10) {
        mount.source = *random.pick(&[
            Source::Folder,
            Source::SubFolder,
            Source::Link,
            Source::Private,
            Source::Tree,
        ]);
    }
    if random.one_in(12) {
        mount.source = Source::Missing;
    }
    if random.one_in(5) {
        mount.propagation = *random.pick(&[Propagation::FromNode, Propagation::Both]);
    }
    if random.one_in(40) {
        mount.at = "/dev".to_owned();
        mount.source = *random.pick(&[Source::NodeDev, Source::Folder]);
    }
    mount
}

fn security(container: &mut ContainerCase, random: &mut Random) {
    container.privileged = random.one_in(8);
    if random.one_in(3) {
        container.capabilities_add = random.some(&CAPABILITIES.map(str::to_owned), 3);
        container.capabilities_drop = random.some(&CAPABILITIES.map(str::to_owned), 3);
    }
    if random.one_in(30) {
        container.capabilities_add.push(random.word(&[
            "NO_SUCH",
            "CAP_CHOWN",
            "sys_time",
            "SYS_RESOURCE",
        ]));
    }
    if random.one_in(30) {
        container.run_as_user = Some(*random.pick(&[-1, 4_294_967_294, 4_294_967_295]));
    } else if random.one_in(3) {
        container.run_as_user = Some(*random.pick(&UIDS));
    } else if random.one_in(8) {
        container.run_as_username = random.word(&["web", "web", "plain", "root", "nosuch", "1000"]);
    }
    // Without a user it is refused, but for the image's.
    let has_user = container.run_as_user.is_some() || !container.run_as_username.is_empty();
    if random.one_in(if has_user { 3 } else { 20 }) {
        container.run_as_group = Some(*random.pick(&GIDS));
    }
    if random.one_in(4) {
        container.supplemental_groups = random.some(&GROUPS, 3);
    }
    container.readonly_root = random.one_in(5);
    container.no_new_privs = random.one_in(5);
    if random.one_in(2) {
        container.seccomp = *random.pick(&[
            SeccompCase::Unconfined,
            SeccompCase::RuntimeDefault,
            SeccompCase::RuntimeDefault,
            SeccompCase::RuntimeDefault,
            SeccompCase::Errors,
            SeccompCase::Arguments,
        ]);
    }
    if random.one_in(40) {
        container.seccomp = *random.pick(&[SeccompCase::Malformed, SeccompCase::NoFile]);
    }
    if random.one_in(4) {
        container.hidden = *random.pick(&[HiddenPaths::None, HiddenPaths::More]);
    }
}

fn resources(random: &mut Random) -> Resources {
    let mut resources = Resources {
        memory: *random.pick(&[0, 64 << 20, 100_000_000, 1 << 30]),
        cpu_shares: *random.pick(&[0, 2, 102, 2048, 262_144]),
        oom_score_adj: *random.pick(&[0, 2, 500, 1000, -997, -998]),
        ..Resources::default()
    };
    if random.one_in(2) {
        resources.cpu_period = 100_000;
        resources.cpu_quota = *random.pick(&[1000, 50_000, 250_000]);
    }
    if random.one_in(4) {
        resources.cpuset = random.word(&["0", "0-1", "1"]);
    }
    resources
}

/// Decides what the container starts, from the image's words and its own, and how it ends.
fn start(case: &mut Case, random: &mut Random) {
    let words =
        |words: &[&str]| -> Vec<String> { words.iter().map(|&word| word.to_owned()).collect() };
    let more = if random.one_in(2) {
        random.some(&ARGUMENTS.map(str::to_owned), 4)
    } else {
        Vec::new()
    };
    let last = if random.one_in(4) {
        let status = *random.pick(&[0, 1, 7, 127, 128, 137, 255]);
        case.end = End::Exit(status);
        format!("--exit={status}")
    } else {
        case.end = End::Stop(*random.pick(&[0, 1, 1]));
        "--hold".to_owned()
    };
    let arguments: Vec<String> = more.into_iter().chain([last]).collect();
    let (image, container) = (&mut case.image, &mut case.container);
    match random.below(16) {
        0 | 1 => {
            container.command = words(&["/bin/probe"]);
            container.args = arguments;
        }
        2 => {
            image.entrypoint = words(&["/bin/probe"]);
            container.args = arguments;
        }
        3 => {
            image.entrypoint = words(&["/bin/probe"]);
            image.command = arguments;
        }
        4 => {
            image.command = words(&["probe"]).into_iter().chain(arguments).collect();
        }
        5 => {
            image.entrypoint = words(&["/app/start"]);
            image.command = words(&["replaced"]);
            container.args = arguments;
        }
        6 => {
            image.entrypoint = words(&["replaced"]);
            image.command = words(&["replaced as well"]);
            container.command = words(&["./probe"]).into_iter().chain(arguments).collect();
            container.working_dir = "/bin".to_owned();
        }
        7..=11 => {
            image.entrypoint = words(&["/bin/sh", "-c"]);
            image.command = words(&[SHELL]);
            case.end = End::Stop(1);
        }
        12 => {
            let odd = [
                words(&["/no/such/program"]),
                words(&["no-such-program"]),
                words(&["/app/plain"]),
                words(&["/app/garbage"]),
                words(&["/app"]),
                words(&[""]),
                words(&["/app/dangling"]),
                words(&["/app/loop"]),
            ];
            container.command = random.pick(&odd).clone();
            case.end = End::Removal;
        }
        _ => {
            image.entrypoint = words(&["/bin/probe"]);
            image.command = words(&["--exit=3"]);
            container.command = Vec::new();
            case.end = End::Exit(3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_one_case_and_others_make_others() {
        let cases: Vec<Case> = (0..50).map(case).collect();
        assert_eq!(cases, (0..50).map(case).collect::<Vec<_>>());
        let first = &cases[0];
        assert!(
            cases
                .iter()
                .skip(1)
                .all(|case| case.container != first.container)
        );
    }

    #[test]
    fn a_container_asks_for_no_more_than_its_sandbox_and_for_no_place_twice() {
        for case in (0..2000).map(case) {
            assert!(
                case.pod.privileged || !case.container.privileged,
                "{}",
                case.seed
            );
            let mut points: Vec<_> = case
                .container
                .mounts
                .iter()
                .map(|mount| &mount.at)
                .collect();
            points.sort();
            points.dedup();
            assert_eq!(points.len(), case.container.mounts.len(), "{}", case.seed);
        }
    }
}
