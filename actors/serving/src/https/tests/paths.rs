//! What authorized callers get.

use serde_json::Value;

use super::rig::{Rig, open, run};
use crate::node::NodeError;
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
fn console_is_the_nodes_own_where_it_is_wanted() {
    let wanted = |policy: &mut Policy| {
        open(policy);
        policy.paths.console = true;
    };
    run(wanted, async |rig: Rig| {
        let told = rig.ask("GET /console/why/ns/p").await;
        assert_eq!(told.body, r#"console "why/ns/p""#);
        assert_eq!(rig.ask("POST /console/").await.status, 405);
    });
    run(open, async |rig: Rig| {
        assert_eq!(rig.ask("GET /console/").await.status, 404);
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
        *rig.node.trouble.borrow_mut() = Some(NodeError::Failed("no runtime".into()));
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
            Some(NodeError::NotFound("container not found (\"c\")".into()));
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
        *rig.node.trouble.borrow_mut() = Some(NodeError::Failed("no CRIU".into()));
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
            ("HEAD /pods", 405, ""),
            ("OPTIONS /logs/", 405, "405: Method Not Allowed"),
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

#[test]
fn what_is_no_route_takes_every_method() {
    run(open, async |rig: Rig| {
        let paths = [
            "/healthz",
            "/healthz/ping",
            "/metrics",
            "/metrics/probes",
            "/configz",
            "/statusz",
            "/flagz",
        ];
        for path in paths {
            for method in ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEIRD"] {
                let told = rig.ask(&format!("{method} {path}")).await;
                assert_eq!(told.status, 200, "{method} {path}");
                assert_eq!(told.body.is_empty(), method == "HEAD", "{method} {path}");
            }
        }
    });
}

#[test]
fn who_takes_no_json_gets_none() {
    run(open, async |rig: Rig| {
        let text = "406: Not Acceptable\n\nAvailable representations: application/json";
        for line in [
            "GET /pods",
            "GET /runningpods/",
            "POST /stats/summary",
            "POST /checkpoint/ns/p/c",
        ] {
            let told = rig.ask_as(None, line, "accept: text/html\r\n").await;
            assert_eq!((told.status, told.body.as_str()), (406, text), "{line}");
            for accept in ["application/json", "text/html, */*;q=0.1"] {
                let told = rig
                    .ask_as(None, line, &format!("accept: {accept}\r\n"))
                    .await;
                assert_eq!(told.status, 200, "{line}");
            }
        }
        let told = rig
            .ask_as(None, "GET /configz", "accept: text/html\r\n")
            .await;
        assert_eq!(told.status, 200, "what is no route does not ask");
    });
}

/// Go's TestServeMuxHandlerRedirects.
#[test]
fn ways_round_are_sent_to_their_ends() {
    run(open, async |rig: Rig| {
        for (line, end) in [
            ("GET //pods?x=%2F", "/pods?x=%2F"),
            ("POST /run/ns//p/c?cmd=ls", "/run/ns/p/c?cmd=ls"),
            ("GET /logs/./x", "/logs/x"),
            ("GET /logs", "/logs/"),
        ] {
            let told = rig.ask(line).await;
            assert_eq!(told.status, 307, "{line}");
            assert!(
                told.head.contains(&format!("location: {end}\r\n")),
                "{}",
                told.head
            );
        }
        assert!(rig.node.asked.borrow().is_empty());
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
            "/attach",
            "/runningpods",
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

/// Upstream's TestStatusz and TestFlagz.
#[test]
fn status_flags_and_verbosity_are_for_people() {
    run(open, async |rig: Rig| {
        let told = rig.ask("GET /statusz").await;
        let (head, rest) = told.body.split_once("\n\nStarted: ").unwrap();
        assert!(head.starts_with("\nkubelet statusz\nWarning: This endpoint is not"));
        assert!(
            rest.starts_with("Thu Jan  1 00:00:00 UTC 1970\nUp: "),
            "{rest}"
        );
        let end = "Binary version: 0.1.0\nEmulation version: 1.36\nPaths: /configz /debug /flagz /healthz /metrics\n";
        assert!(rest.ends_with(end), "{rest}");
        let told = rig.ask("GET /flagz").await;
        assert!(
            told.body.starts_with("\nkubelet flagz\nWarning: "),
            "{}",
            told.body
        );
        assert!(
            told.body.ends_with("purposes only.\nv=2\n"),
            "{}",
            told.body
        );
        let told = rig
            .ask_as(None, "GET /flagz", "accept: application/json\r\n")
            .await;
        let status: Value = serde_json::from_str(&told.body).unwrap();
        assert_eq!(
            (told.status, &status["reason"]),
            (406, &"NotAcceptable".into())
        );
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
                "strconv.ParseUint: parsing \"x\": invalid syntax\n",
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

/// Upstream's TestHandleStatusz and TestHandleFlagz (statusz_test.go, flagz_test.go).
#[test]
fn status_and_flags_are_objects_for_those_who_name_them() {
    run(open, async |rig: Rig| {
        let named = |kind: &str, version: &str, media: &str| {
            format!("accept: {media};v={version};g=config.k8s.io;as={kind}\r\n")
        };
        let accept = named("Statusz", "v1beta1", "application/json");
        let told = rig.ask_as(None, "GET /statusz", &accept).await;
        assert!(
            told.head.contains("content-type: application/json"),
            "{}",
            told.head
        );
        assert!(!told.head.contains("warning:"), "{}", told.head);
        let status: Value = serde_json::from_str(&told.body).unwrap();
        let expected = serde_json::json!({
            "kind": "Statusz",
            "apiVersion": "config.k8s.io/v1beta1",
            "metadata": { "name": "kubelet" },
            "startTime": "1970-01-01T00:00:00Z",
            "uptimeSeconds": status["uptimeSeconds"].as_u64().unwrap(),
            "goVersion": "none",
            "binaryVersion": "0.1.0",
            "emulationVersion": "1.36",
            "paths": ["/configz", "/debug", "/flagz", "/healthz", "/metrics"],
        });
        assert_eq!(status, expected);
        let accept = named("Flagz", "v1alpha1", "application/yaml");
        let told = rig.ask_as(None, "GET /flagz", &accept).await;
        assert!(
            told.head.contains("content-type: application/yaml"),
            "{}",
            told.head
        );
        let old = "warning: 299 - \"This version of the flagz endpoint is deprecated. Please use a newer version.\"";
        assert!(told.head.contains(old), "{}", told.head);
        let flags: Value = serde_json::from_str(&told.body).unwrap();
        assert_eq!(flags["apiVersion"], "config.k8s.io/v1alpha1");
        assert_eq!(flags["flags"], serde_json::json!({ "v": "2" }));
    });
}

/// Upstream's TestServeHTTPRequestDurationMetric.
#[test]
fn a_request_is_measured_until_its_answer_is_there() {
    const DELAY: std::time::Duration = std::time::Duration::from_millis(50);
    run(open, async |rig: Rig| {
        rig.node.delay.set(DELAY);
        assert_eq!(rig.ask("GET /pods/").await.status, 200);
        let labels = ["GET", "pods", "readwrite", "false"];
        let duration = metrics::api::http::DURATION.with_label_values(&labels);
        let measured = duration.get_sample_sum() / duration.get_sample_count() as f64;
        assert!(measured >= DELAY.as_secs_f64(), "{measured}");
    });
}

#[test]
fn requests_are_counted_by_their_roots() {
    run(open, async |rig: Rig| {
        let labels = ["GET", "configz", "readwrite", "false"];
        let before = metrics::api::http::REQUESTS
            .with_label_values(&labels)
            .get();
        rig.ask("GET /configz").await;
        assert!(
            metrics::api::http::REQUESTS
                .with_label_values(&labels)
                .get()
                > before
        );
        let tree = rig.root.tree().await;
        let snapshot = &tree.find("test/https").unwrap().snapshot;
        assert_eq!(snapshot["requests"], 1);
    });
}
