//! What those who may ask get.

use serde_json::Value;

use super::rig::{Rig, open, run};
use crate::node::Trouble;
use crate::policy::Policy;

/// Upstream's TestHealthCheck, TestSyncLoopCheck.
#[test]
fn health_is_said_in_upstreams_words() {
    run(open, async |rig: Rig| {
        assert_eq!(rig.ask("GET /healthz").await.body, "ok");
        assert_eq!(rig.ask("GET /healthz/ping").await.body, "ok");
        assert_eq!(rig.ask("GET /healthz/nope").await.status, 404);
        rig.node.stopped.set(true);
        let told = rig.ask("GET /healthz").await;
        let text =
            "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n";
        assert_eq!((told.status, told.body.as_str()), (500, text));
        let told = rig.ask("GET /healthz/syncloop").await;
        assert_eq!(
            (told.status, told.body.as_str()),
            (500, "internal server error: stuck\n")
        );
    });
}

#[test]
fn pods_are_a_list_with_the_kept_statuses() {
    run(open, async |rig: Rig| {
        rig.node.pods.borrow_mut().push(super::rig::pod("q"));
        for path in ["/pods", "/pods/"] {
            let told = rig.ask(&format!("GET {path}")).await;
            assert_eq!(told.status, 200);
            assert!(
                told.head.contains("content-type: application/json"),
                "{}",
                told.head
            );
            let list: Value = serde_json::from_str(&told.body).unwrap();
            assert_eq!(
                (&list["kind"], &list["apiVersion"]),
                (&"PodList".into(), &"v1".into())
            );
            assert_eq!(list["items"][0]["status"]["phase"], "Running");
            assert_eq!(list["items"][1]["metadata"]["name"], "q");
        }
        let told = rig.ask("GET /runningpods/").await;
        let list: Value = serde_json::from_str(&told.body).unwrap();
        assert_eq!(list["items"][0]["metadata"]["name"], "seen");
    });
}

#[test]
fn thousand_pods_are_one_valid_list() {
    run(open, async |rig: Rig| {
        let pods = (0..1000).map(|n| super::rig::pod(&n.to_string())).collect();
        *rig.node.pods.borrow_mut() = pods;
        let told = rig.ask("GET /pods").await;
        let list: Value = serde_json::from_str(&told.body).unwrap();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1000));
    });
}

#[test]
fn metrics_and_the_rest_are_what_the_node_says() {
    run(open, async |rig: Rig| {
        let cases = [
            ("GET /metrics", "metrics Own"),
            ("GET /metrics/cadvisor", "metrics Cadvisor"),
            ("GET /metrics/probes", "metrics Probes"),
            ("GET /metrics/resource", "metrics Resource"),
            ("GET /metrics/slis", "metrics Slis"),
            ("GET /stats/summary", "summary Everything"),
            ("POST /stats/summary", "summary Everything"),
            (
                "GET /stats/summary?only_cpu_and_memory=true",
                "summary OnlyCpuAndMemory",
            ),
            (
                "GET /stats/summary?only_cpu_and_memory=1",
                "summary Everything",
            ),
            ("GET /configz", "configz"),
        ];
        for (line, asked) in cases {
            rig.node.asked.borrow_mut().clear();
            assert_eq!(rig.ask(line).await.status, 200, "{line}");
            assert_eq!(*rig.node.asked.borrow(), [asked], "{line}");
        }
        let told = rig.ask("GET /metrics").await;
        let kind = "content-type: text/plain; version=0.0.4; charset=utf-8";
        assert!(told.head.contains(kind), "{}", told.head);
        assert_eq!(told.body, "a 1\n");
        *rig.node.trouble.borrow_mut() = Some(Trouble::Failed("no runtime".into()));
        let told = rig.ask("GET /stats/summary").await;
        let text = "Internal Error: no runtime";
        assert_eq!((told.status, told.body.as_str()), (500, text));
    });
}

/// Upstream's TestFailedParseParamsSummaryHandler.
#[test]
fn body_of_no_kind_is_refused_before_a_summary_is_made() {
    run(open, async |rig: Rig| {
        for (kind, why) in [
            (
                "invalid/content/type",
                "unexpected content after media subtype",
            ),
            ("text/", "expected token after slash"),
            ("/plain", "expected slash after first token"),
            ("a b", "expected slash after first token"),
        ] {
            let header = format!("content-type: {kind}\r\n");
            let told = rig.ask_as(None, "POST /stats/summary", &header).await;
            let text = format!("Internal Error: parse form failed: mime: {why}");
            assert_eq!((told.status, told.body), (500, text));
        }
        assert!(rig.node.asked.borrow().is_empty());
        let form = "content-type: application/x-www-form-urlencoded; charset=utf-8\r\n";
        let told = rig.ask_as(None, "POST /stats/summary", form).await;
        assert_eq!(told.status, 200);
        let told = rig
            .ask_as(None, "GET /stats/summary", "content-type: a/b/c\r\n")
            .await;
        assert_eq!(
            told.status, 200,
            "what has no body is not asked for its kind"
        );
    });
}

/// Upstream's TestServeRunInContainer, TestServeRunInContainerWithUID.
#[test]
fn commands_run_to_their_end() {
    run(open, async |rig: Rig| {
        for path in ["/run/ns/p/c", "/run/ns/p/uid-p/c"] {
            rig.node.asked.borrow_mut().clear();
            let told = rig.ask(&format!("POST {path}?cmd=ls%20-a+b")).await;
            assert_eq!((told.status, told.body.as_str()), (200, "output"), "{path}");
            assert_eq!(*rig.node.asked.borrow(), ["run c [\"ls\", \"-a\", \"b\"]"]);
        }
        let told = rig.ask("POST /run/ns/nope/c?cmd=ls").await;
        assert_eq!(
            (told.status, told.body.as_str()),
            (404, "pod does not exist")
        );
        *rig.node.trouble.borrow_mut() =
            Some(Trouble::NotFound("container not found (\"c\")".into()));
        let told = rig.ask("POST /run/ns/p/c?cmd=ls").await;
        assert_eq!(
            (told.status, told.body.as_str()),
            (500, "container not found (\"c\")")
        );
    });
}

/// Upstream's TestCheckpointContainer.
#[test]
fn containers_are_checkpointed() {
    run(open, async |rig: Rig| {
        let told = rig.ask("POST /checkpoint/ns/p/c").await;
        let items = "{\"items\":[\"/var/lib/kubelet/checkpoints/x.tar\"]}";
        assert_eq!((told.status, told.body.as_str()), (200, items));
        for container in ["init", "debug"] {
            let line = format!("POST /checkpoint/ns/p/{container}?timeout=1&timeout=20");
            assert_eq!(rig.ask(&line).await.status, 200);
        }
        let asked = [
            "checkpoint c None",
            "checkpoint init Some(20s)",
            "checkpoint debug Some(20s)",
        ];
        assert_eq!(*rig.node.asked.borrow(), asked);
        let cases = [
            ("/checkpoint/ns/nope/c", 404, "pod does not exist"),
            (
                "/checkpoint/ns/p/nope",
                404,
                "container nope does not exist",
            ),
            (
                "/checkpoint/ns/p/c?timeout=x",
                404,
                "cannot parse value of timeout parameter",
            ),
        ];
        for (path, status, text) in cases {
            let told = rig.ask(&format!("POST {path}")).await;
            assert_eq!((told.status, told.body.as_str()), (status, text), "{path}");
        }
        *rig.node.trouble.borrow_mut() = Some(Trouble::Failed("no CRIU".into()));
        let told = rig.ask("POST /checkpoint/ns/p/c").await;
        let text = "checkpointing of ns/p/c failed (no CRIU)";
        assert_eq!((told.status, told.body.as_str()), (500, text));
    });
}

#[test]
fn wrong_methods_and_paths_are_refused() {
    run(open, async |rig: Rig| {
        let cases = [
            ("POST /pods", 405, "405: Method Not Allowed"),
            ("DELETE /runningpods/", 405, "405: Method Not Allowed"),
            ("GET /run/ns/p/c", 405, "405: Method Not Allowed"),
            ("PUT /exec/ns/p/c", 405, "405: Method Not Allowed"),
            ("POST /containerLogs/ns/p/c", 405, "405: Method Not Allowed"),
            ("PATCH /metrics", 405, "405: Method Not Allowed"),
            ("GET /checkpoint/ns/p/c", 405, "405: Method Not Allowed"),
            ("GET /exec/ns/p", 404, "404: Page Not Found"),
            ("GET /pods/x", 404, "404: Page Not Found"),
            ("GET /", 404, "404 page not found\n"),
            ("GET /spec/", 404, "404 page not found\n"),
            ("GET /favicon.ico", 404, "404 page not found\n"),
            (
                "GET /debug/pprof/heap",
                501,
                "this agent is no Go program and has no such profiles\n",
            ),
        ];
        for (line, status, text) in cases {
            let told = rig.ask(line).await;
            assert_eq!((told.status, told.body.as_str()), (status, text), "{line}");
        }
        let told = rig.ask("DELETE /stats/summary").await;
        assert!(told.head.contains("allow: GET, POST"), "{}", told.head);
    });
}

/// Upstream's TestDebuggingDisabledHandlers, TestDisablingLogAndProfilingHandler.
#[test]
fn what_is_switched_off_says_so() {
    let off = |policy: &mut Policy| {
        open(policy);
        policy.paths.debugging = false;
    };
    run(off, async |rig: Rig| {
        for path in [
            "/run/a/b/c",
            "/exec/a/b/c",
            "/containerLogs/a/b/c",
            "/runningpods/",
            "/logs/",
            "/debug/pprof/",
        ] {
            for method in ["GET", "POST"] {
                let told = rig.ask(&format!("{method} {path}")).await;
                let text = "Debug endpoints are disabled.\n";
                assert_eq!(
                    (told.status, told.body.as_str()),
                    (405, text),
                    "{method} {path}"
                );
            }
        }
        for path in ["/pods", "/metrics", "/healthz", "/stats/summary"] {
            assert_eq!(rig.ask(&format!("GET {path}")).await.status, 200, "{path}");
        }
    });
}

/// Upstream's TestServeLogs.
#[test]
fn system_logs_are_files_beneath_their_folder() {
    run(open, async |rig: Rig| {
        let logs = rig.folder.path().join("log");
        std::fs::create_dir_all(logs.join("pods/a b")).unwrap();
        std::fs::write(logs.join("kubelet.log"), "line\n".repeat(100_000)).unwrap();
        std::fs::write(logs.join("<x>"), "").unwrap();
        std::fs::write(rig.folder.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../secret", logs.join("out")).unwrap();
        std::os::unix::fs::symlink("/etc", logs.join("etc")).unwrap();
        std::os::unix::fs::symlink(logs.join("kubelet.log"), logs.join("in")).unwrap();
        let told = rig.ask("GET /logs/").await;
        assert!(told.head.contains("text/html"), "{}", told.head);
        for entry in [
            "<a href=\"kubelet.log\">kubelet.log</a>",
            "<a href=\"pods/\">pods/</a>",
            "<a href=\"%3Cx%3E\">&lt;x&gt;</a>",
        ] {
            assert!(told.body.contains(entry), "{entry} in {}", told.body);
        }
        let told = rig.ask("GET /logs/kubelet.log").await;
        assert_eq!((told.status, told.body.len()), (200, 500_000));
        assert_eq!(rig.ask("GET /logs/in").await.body.len(), 500_000);
        assert_eq!(rig.ask("GET /logs/pods/a%20b/").await.status, 200);
        for (path, status) in [
            ("/logs/nope", 404),
            ("/logs/out", 404),
            ("/logs/etc/passwd", 404),
            ("/logs/etc", 404),
            ("/logs/../secret", 400),
            ("/logs/%2e%2e/secret", 400),
            ("/logs/..%2Fsecret", 400),
            ("/logs/%2e%2e%2fsecret", 400),
            ("/logs/pods/../../secret", 400),
            ("/logs//etc/passwd", 400),
            ("/logs/%00", 400),
            ("/logs/..\\secret", 400),
        ] {
            let told = rig.ask(&format!("GET {path}")).await;
            assert_eq!(told.status, status, "{path}");
            assert!(
                !told.body.contains("secret\n") && told.body != "secret",
                "{path}"
            );
        }
    });
}

/// Upstream's TestStatusz and TestFlagz.
#[test]
fn status_flags_and_verbosity_are_for_people() {
    run(open, async |rig: Rig| {
        let told = rig.ask("GET /statusz").await;
        assert!(
            told.body
                .contains("Binary version: 0.1.0\nEmulation version: 1.36\n"),
            "{}",
            told.body
        );
        assert!(
            told.body.contains("Started: 1970-01-01T00:00:00Z"),
            "{}",
            told.body
        );
        assert!(rig.ask("GET /flagz").await.body.ends_with("\n\nv=2\n"));
        let told = rig
            .ask_as(None, "GET /flagz", "accept: application/json\r\n")
            .await;
        let text = "media type not acceptable, must be: text/plain\n";
        assert_eq!((told.status, told.body.as_str()), (406, text));
        let any = "accept: application/json, */*\r\n";
        assert_eq!(rig.ask_as(None, "GET /statusz", any).await.status, 200);
        for (body, status, text) in [
            ("4", 200, "successfully set klog.logging.verbosity to 4\n"),
            (
                "11",
                400,
                "failed set klog.logging.verbosity 11: too much\n",
            ),
            (
                "x",
                400,
                "failed set klog.logging.verbosity x: invalid digit found in string\n",
            ),
        ] {
            let headers = format!("content-length: {}\r\n\r\n{body}", body.len());
            let told = rig
                .ask_as(None, "PUT /debug/flags/v", headers.trim_end_matches("\r\n"))
                .await;
            assert_eq!((told.status, told.body.as_str()), (status, text), "{body}");
        }
        assert_eq!(rig.ask("GET /debug/flags/v").await.status, 406);
    });
}

#[test]
fn requests_are_counted_by_their_roots() {
    run(open, async |rig: Rig| {
        let labels = ["GET", "configz", "readwrite", "false"];
        let before = metrics::http::REQUESTS.with_label_values(&labels).get();
        rig.ask("GET /configz").await;
        assert!(metrics::http::REQUESTS.with_label_values(&labels).get() > before);
        let tree = rig.root.tree().await;
        let snapshot = &tree.find("test/https").unwrap().snapshot;
        assert_eq!(snapshot["requests"], 1);
    });
}
