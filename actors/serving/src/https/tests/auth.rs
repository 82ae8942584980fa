//! Authentication and authorization of callers.

use std::time::Duration;

use kernel::testing::pass;
use rcgen::{DnType, ExtendedKeyUsagePurpose, date_time_ymd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::rig::{Rig, TestAuthority, open, run};
use crate::policy::{AuthorizationPolicy, Policy};
use crate::reviews::AuthenticatedUser;

const NOTHING: &str = "Unauthorized";

fn webhook(_: &mut Policy) {}

fn webhook_and_console(policy: &mut Policy) {
    policy.paths.console = true;
}

#[test]
fn nobody_gets_in_without_being_known() {
    run(webhook, async |rig: Rig| {
        let stranger = TestAuthority::new("clients");
        let stranger = stranger.client("admin", &["system:masters"]);
        let cases = [
            (None, ""),
            (Some(&stranger), ""),
            (None, "authorization: Basic x\r\n"),
        ];
        for (credentials, headers) in cases {
            for line in [
                "GET /healthz",
                "GET /pods",
                "GET /metrics",
                "POST /exec/ns/p/c",
                "GET /nope",
                "GET /logs/../etc/shadow",
                "DELETE /",
                "GET /debug/pprof/",
                "PUT /debug/flags/v",
            ] {
                let told = rig.ask_as(credentials, line, headers).await;
                assert_eq!((told.status, told.body.as_str()), (401, NOTHING), "{line}");
            }
        }
        assert!(rig.node.asked.borrow().is_empty());
        assert!(
            rig.reviews.asked.borrow().is_empty(),
            "nobody is nobody to review"
        );
    });
}

/// Upstream's TestAuthFilters and TestAuthenticationError, TestAuthenticationFailure.
#[test]
fn each_path_is_reviewed_before_it_is_served() {
    run(webhook_and_console, async |rig: Rig| {
        let alice = rig.clients.client("alice", &["people"]);
        for (line, verb, subresources) in [
            ("GET /pods", "get", "pods proxy"),
            ("GET /runningpods/", "get", "pods proxy"),
            ("GET /healthz", "get", "healthz proxy"),
            ("GET /configz", "get", "configz proxy"),
            ("GET /metrics/cadvisor", "get", "metrics"),
            ("GET /stats/summary", "get", "stats"),
            ("GET /logs/x", "get", "log"),
            ("POST /checkpoint/ns/p/c", "create", "checkpoint"),
            ("POST /run/ns/p/c", "create", "proxy"),
            ("GET /exec/ns/p/c", "get", "proxy"),
            ("PUT /debug/flags/v", "update", "proxy"),
            ("GET /console/", "get", "proxy"),
            ("GET /console/pods", "get", "proxy"),
            ("DELETE /nope", "delete", "proxy"),
            ("GET /pods/../metrics", "get", "proxy"),
            ("GET //pods", "get", "pods proxy"),
            ("GET /%2e%2e/metrics", "get", "proxy"),
            ("DELETE /metrics/slis", "delete", "metrics"),
            ("HEAD /configzz", "", "proxy"),
        ] {
            rig.reviews.asked.borrow_mut().clear();
            let told = rig.ask_as(Some(&alice), line, "").await;
            assert_eq!(told.status, 403, "{line}");
            if !line.starts_with("HEAD") {
                let text = format!(
                    "Forbidden (user=alice, verb={verb}, resource=nodes, subresource(s)=[{subresources}])\n"
                );
                assert_eq!(told.body, text, "{line}");
            }
        }
        assert!(rig.node.asked.borrow().is_empty());
    });
}

/// The page asks for logs at `../containerLogs/`, which a browser resolves before it asks.
#[test]
fn page_of_the_node_and_the_logs_beside_it_need_one_right_and_no_way_leads_round_it() {
    run(webhook_and_console, async |rig: Rig| {
        rig.allow("operator", "proxy");
        rig.allow("reader", "pods");
        let operator = rig.clients.client("operator", &[]);
        let reader = rig.clients.client("reader", &[]);
        let log = rig.folder.path().join("0.log");
        std::fs::write(&log, "2026-01-01T00:00:00Z stdout F said\n").unwrap();
        rig.node.logs.borrow_mut().insert("id-c".into(), log);
        let page = r#"console """#;
        let crooked = "the path has empty, dotted or unreadable segments\n";
        for (path, status, body) in [
            ("/console/", 200, page),
            ("//console/", 307, ""),
            ("/containerLogs/ns/p/c", 200, "said\n"),
            ("/console/../containerLogs/ns/p/c", 400, crooked),
            ("/console/%2e%2e/containerLogs/ns/p/c", 400, crooked),
        ] {
            let line = format!("GET {path}");
            assert_eq!(rig.ask(&line).await.status, 401, "{path}");
            let refused = rig.ask_as(Some(&reader), &line, "").await;
            assert_eq!(refused.status, 403, "{path}");
            assert!(rig.node.asked.borrow().is_empty(), "{path}");
            let told = rig.ask_as(Some(&operator), &line, "").await;
            assert_eq!((told.status, told.body.as_str()), (status, body), "{path}");
            rig.node.asked.borrow_mut().clear();
        }
    });
}

#[test]
fn narrow_right_is_enough_and_broad_one_too() {
    run(webhook, async |rig: Rig| {
        let (narrow, broad) = (
            rig.clients.client("narrow", &[]),
            rig.clients.client("broad", &[]),
        );
        rig.allow("narrow", "pods");
        rig.allow("broad", "proxy");
        assert_eq!(rig.ask_as(Some(&narrow), "GET /pods", "").await.status, 200);
        assert_eq!(
            rig.ask_as(Some(&narrow), "GET /configz", "").await.status,
            403
        );
        for path in ["/pods", "/configz", "/healthz", "/runningpods/"] {
            let line = format!("GET {path}");
            assert_eq!(
                rig.ask_as(Some(&broad), &line, "").await.status,
                200,
                "{path}"
            );
        }
        assert_eq!(
            rig.ask_as(Some(&broad), "GET /metrics", "").await.status,
            403
        );
    });
}

/// Upstream's TestFineGrainedAuthz.
#[test]
fn the_narrow_right_is_asked_for_first_and_the_broad_one_only_without_it() {
    run(webhook, async |rig: Rig| {
        let narrow = |user: &str| format!("{user} get configz node-1");
        let broad = |user: &str| format!("{user} get proxy node-1");
        rig.allow("proxy-only", "proxy");
        rig.allow("configz-only", "configz");
        for (user, status, asked) in [
            ("nothing", 403, vec![narrow("nothing"), broad("nothing")]),
            (
                "proxy-only",
                200,
                vec![narrow("proxy-only"), broad("proxy-only")],
            ),
            ("configz-only", 200, vec![narrow("configz-only")]),
        ] {
            rig.reviews.asked.borrow_mut().clear();
            let credentials = rig.clients.client(user, &[]);
            let told = rig.ask_as(Some(&credentials), "GET /configz", "").await;
            assert_eq!(told.status, status, "{user}");
            assert_eq!(*rig.reviews.asked.borrow(), asked, "{user}");
        }
    });
}

/// Upstream's TestAuthorizationSuccess, TestInstallAuthNotRequiredHandlers of the HTTPS API.
#[test]
fn whoever_is_known_and_allowed_is_answered_and_nothing_is_open_to_others() {
    run(webhook, async |rig: Rig| {
        rig.allow("test", "healthz");
        let test = rig.clients.client("test", &[]);
        let told = rig.ask_as(Some(&test), "GET /healthz", "").await;
        assert_eq!((told.status, told.body.as_str()), (200, "ok"));
        for path in [
            "/healthz",
            "/healthz/ping",
            "/pods",
            "/stats/summary",
            "/metrics/slis",
        ] {
            assert_eq!(rig.ask(&format!("GET {path}")).await.status, 401, "{path}");
        }
    });
}

#[test]
fn certificates_are_their_subjects() {
    run(webhook, async |rig: Rig| {
        rig.allow("alice", "*");
        let alice = rig.clients.client("alice", &["people"]);
        assert_eq!(rig.ask_as(Some(&alice), "GET /pods", "").await.status, 200);
        let nameless = rig.clients.client("", &["people"]);
        assert_eq!(
            rig.ask_as(Some(&nameless), "GET /pods", "").await.status,
            401
        );
        let expired = rig.clients.signed("alice", &[], |params| {
            params.not_before = date_time_ymd(2000, 1, 1);
            params.not_after = date_time_ymd(2001, 1, 1);
        });
        let servers = rig.clients.signed("alice", &[], |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        let other = TestAuthority::new("clients").client("alice", &[]);
        for (why, credentials) in [
            ("expired", expired),
            ("a server's", servers),
            ("a stranger's", other),
        ] {
            let told = rig.ask_as(Some(&credentials), "GET /pods", "").await;
            assert_eq!((told.status, told.body.as_str()), (401, NOTHING), "{why}");
        }
    });
}

#[test]
fn user_of_a_certificate_has_all_that_upstream_gives_him() {
    let authority = TestAuthority::new("clients");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    std::fs::write(&path, authority.pem()).unwrap();
    let run = kernel::system::run(async {
        let authorities = crate::authn::Authorities::load(path).await.unwrap();
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let credentials = authority.signed("alice", &["people"], |params| {
            params.distinguished_name.push(uid, "1234");
        });
        let user = authorities
            .user(credentials.chain())
            .await
            .unwrap()
            .unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", "1234"));
        assert_eq!(user.groups, ["people"]);
        let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
        assert_eq!(authorities.user(&[]).await.unwrap(), None);
    });
    run.unwrap();
}

#[test]
fn stale_certificate_does_not_spoil_a_good_token() {
    run(
        |policy| policy.authentication.anonymous = true,
        async |rig: Rig| {
            rig.token("good", "alice");
            rig.allow("alice", "*");
            rig.allow("system:anonymous", "healthz");
            let stranger = TestAuthority::new("x").client("bob", &[]);
            let good = "authorization: Bearer good\r\n";
            let bad = "authorization: Bearer bad\r\n";
            assert_eq!(
                rig.ask_as(Some(&stranger), "GET /pods", good).await.status,
                200
            );
            assert_eq!(rig.ask("GET /healthz").await.status, 200, "anonymous");
            let refused = rig.ask_as(Some(&stranger), "GET /healthz", "").await;
            assert_eq!(
                refused.status, 401,
                "who shows what is no good is not anonymous"
            );
            assert_eq!(rig.ask_as(None, "GET /healthz", bad).await.status, 401);
            let told = rig.ask("GET /pods").await;
            let text = "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
            assert_eq!((told.status, told.body.as_str()), (403, text));
        },
    );
}

/// Upstream's TestCachedTokenAuthenticator.
#[test]
fn tokens_are_believed_for_a_while_and_refusals_too() {
    run(open, async |rig: Rig| {
        rig.token("good", "alice");
        let asked = || rig.reviews.asked.borrow().len();
        for _ in 0..3 {
            assert_eq!(rig.ask_with("good", "GET /pods").await.status, 200);
        }
        assert_eq!(asked(), 1);
        for _ in 0..3 {
            assert_eq!(rig.ask_with("bad", "GET /pods").await.status, 401);
        }
        assert_eq!(asked(), 2);
        rig.reviews.away.set(true);
        assert_eq!(
            rig.ask_with("good", "GET /pods").await.status,
            200,
            "known still"
        );
        for _ in 0..2 {
            assert_eq!(rig.ask_with("new", "GET /pods").await.status, 401);
        }
        assert_eq!(asked(), 4, "no answer is not remembered");
        rig.reviews.away.set(false);
        rig.token("new", "carol");
        assert_eq!(rig.ask_with("new", "GET /pods").await.status, 200);
    });
}

#[test]
fn verdicts_are_believed_for_a_while() {
    run(webhook, async |rig: Rig| {
        let alice = rig.clients.client("alice", &[]);
        rig.allow("alice", "metrics");
        for _ in 0..3 {
            assert_eq!(
                rig.ask_as(Some(&alice), "GET /metrics", "").await.status,
                200
            );
            assert_eq!(
                rig.ask_as(Some(&alice), "GET /stats/summary", "")
                    .await
                    .status,
                403
            );
        }
        let asked = rig.reviews.asked.borrow().clone();
        assert_eq!(
            asked,
            ["alice get metrics node-1", "alice get stats node-1"]
        );
        let put = rig.ask_as(Some(&alice), "POST /stats/summary", "").await;
        assert_eq!(put.status, 403, "another verb is another question");
        assert_eq!(rig.reviews.asked.borrow().len(), 3);
    });
}

/// Upstream's TestAuthFilters, with an authorizer that fails.
#[test]
fn nobody_gets_in_while_the_api_server_is_away() {
    run(webhook, async |rig: Rig| {
        let alice = rig.clients.client("alice", &[]);
        rig.token("good", "alice");
        rig.allow("alice", "*");
        rig.reviews.away.set(true);
        let told = rig.ask_as(Some(&alice), "GET /metrics", "").await;
        let text =
            "Authorization error (user=alice, verb=get, resource=nodes, subresource=metrics)";
        assert_eq!((told.status, told.body.as_str()), (500, text));
        let told = rig.ask_with("good", "GET /metrics").await;
        assert_eq!((told.status, told.body.as_str()), (401, NOTHING));
        assert!(rig.node.asked.borrow().is_empty());
        rig.reviews.away.set(false);
        assert_eq!(rig.ask_with("good", "GET /metrics").await.status, 200);
    });
}

#[test]
fn always_allow_asks_nobody_but_who_it_is() {
    run(
        |policy| policy.authorization = AuthorizationPolicy::AlwaysAllow,
        async |rig: Rig| {
            assert_eq!(rig.ask("GET /pods").await.status, 401);
            let alice = rig.clients.client("alice", &[]);
            assert_eq!(rig.ask_as(Some(&alice), "GET /pods", "").await.status, 200);
            assert!(rig.reviews.asked.borrow().is_empty());
        },
    );
}

#[test]
fn authorities_change_under_an_open_connection() {
    run(webhook, async |rig: Rig| {
        rig.allow("alice", "*");
        rig.allow("bob", "*");
        let alice = rig.clients.client("alice", &[]);
        let mut kept = rig.connect(Some(&alice)).await;
        let mut status = async || {
            let ask = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
            kept.write_all(ask).await.unwrap();
            let mut answer = vec![0; 4096];
            let read = kept.read(&mut answer).await.unwrap();
            String::from_utf8_lossy(&answer[9..12.min(read)]).into_owned()
        };
        assert_eq!(status().await, "200");
        let next = TestAuthority::new("next");
        let path = rig.folder.path().join("ca.crt");
        std::fs::write(&path, "no certificate at all").unwrap();
        pass(Duration::from_millis(1100)).await;
        assert_eq!(status().await, "200", "what cannot be read changes nothing");
        std::fs::write(&path, next.pem()).unwrap();
        pass(Duration::from_millis(1100)).await;
        assert_eq!(status().await, "401", "on the same connection");
        let bob = next.client("bob", &[]);
        assert_eq!(rig.ask_as(Some(&bob), "GET /healthz", "").await.status, 200);
    });
}

#[test]
fn own_certificate_changes_without_a_dropped_connection() {
    run(open, async |rig: Rig| {
        let mut kept = rig.connect(None).await;
        let first = rig
            .connect(None)
            .await
            .get_ref()
            .1
            .peer_certificates()
            .unwrap()[0]
            .clone();
        rig.certificate
            .send(Some(rig.servers.server("localhost")))
            .unwrap();
        let second = rig
            .connect(None)
            .await
            .get_ref()
            .1
            .peer_certificates()
            .unwrap()[0]
            .clone();
        assert_ne!(first, second);
        kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(super::rig::told(&mut kept).await.status, 200);
    });
}

#[test]
fn group_of_all_who_are_known_is_added_once() {
    use std::rc::Rc;
    let groups = |groups: &[&str], name: &str| {
        let user = AuthenticatedUser {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..AuthenticatedUser::default()
        };
        crate::authn::authenticated(Rc::new(user)).groups.clone()
    };
    assert_eq!(groups(&["a"], "u"), ["a", "system:authenticated"]);
    assert_eq!(
        groups(&["system:authenticated"], "u"),
        ["system:authenticated"]
    );
    assert_eq!(
        groups(&["system:unauthenticated"], "u"),
        ["system:unauthenticated"]
    );
    assert!(groups(&[], "system:anonymous").is_empty());
}
