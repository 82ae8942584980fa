//! Laws of reviews, against the double.

use std::collections::BTreeMap;
use std::rc::Rc;

use api_client::plain;
use apiserver::{ApiFault, Effect, Server, ServerOptions};
use serving::{Attributes, AuthenticatedUser, Decision, RequestHistory, ReviewError, Reviews as _};

use super::ApiReviews;

async fn double() -> (Server, ApiReviews) {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let client = plain(server.url().parse().unwrap());
    (server, ApiReviews::new(&client))
}

fn fault(path: &str, times: u32, effect: Effect) -> ApiFault {
    ApiFault {
        method: Some("POST".to_owned()),
        path: path.to_owned(),
        contains: None,
        watch: None,
        times,
        effect,
    }
}

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

fn access(name: &str) -> Attributes {
    Attributes {
        user: Rc::new(AuthenticatedUser {
            name: name.to_owned(),
            groups: vec!["people".to_owned()],
            uid: "1".to_owned(),
            extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]),
        }),
        verb: "get",
        subresource: "metrics",
        node: "node-1".into(),
    }
}

#[tokio::test]
async fn a_token_is_its_owners() {
    let (server, reviews) = double().await;
    server.token("good", "alice", &["people"]);
    let user = reviews
        .token("good", RequestHistory::Unknown)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(user.name, "alice");
    assert!(user.groups.contains(&"people".to_owned()));
    let refused = reviews
        .token("bad", RequestHistory::Unknown)
        .await
        .unwrap_err();
    assert!(matches!(refused, ReviewError::Refused { .. }), "{refused}");
    server.revoke_token("good");
    assert!(
        reviews
            .token("good", RequestHistory::Unknown)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn access_is_asked_for_in_upstreams_words() {
    let (server, reviews) = double().await;
    server.judge(|question| Some(question.user == "alice"));
    assert_eq!(
        reviews.access(&access("alice")).await,
        Ok(Decision::Allowed)
    );
    assert_eq!(reviews.access(&access("bob")).await, Ok(Decision::Refused));
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    let first = &asked[0];
    assert_eq!(first.user, "alice");
    assert_eq!(first.groups, ["people"]);
    assert_eq!(first.verb, "get");
    assert_eq!(
        (first.group.as_str(), first.resource.as_str()),
        ("", "nodes")
    );
    assert_eq!(first.subresource, "metrics");
    assert_eq!(first.name, "node-1");
}

#[tokio::test]
async fn a_review_that_failed_is_asked_again() {
    let (server, reviews) = double().await;
    server.token("good", "alice", &[]);
    let broken = Effect::Status {
        code: 500,
        retry_after: None,
    };
    server.fault(fault(TOKENS, 1, broken));
    assert!(
        reviews
            .token("good", RequestHistory::Unknown)
            .await
            .unwrap()
            .is_some()
    );
    server.judge(|_| Some(true));
    server.fault(fault(ACCESS, 1, Effect::Refuse));
    assert_eq!(reviews.access(&access("a")).await, Ok(Decision::Allowed));
}

#[tokio::test]
async fn nonsense_and_refusals_are_no_permission() {
    let (server, reviews) = double().await;
    server.judge(|_| Some(true));
    for effect in [Effect::Garbage, Effect::Nonsense] {
        server.fault(fault(ACCESS, 1, effect.clone()));
        let verdict = reviews.access(&access("a")).await;
        assert!(
            matches!(verdict, Err(ReviewError::Refused { .. })),
            "{effect:?}: {verdict:?}"
        );
        server.clear_faults();
    }
    let forbidden = Effect::Status {
        code: 403,
        retry_after: None,
    };
    server.fault(fault(TOKENS, 1, forbidden));
    let refused = reviews
        .token("secret-token", RequestHistory::Unknown)
        .await
        .unwrap_err();
    assert!(!refused.transient());
    assert!(!refused.to_string().contains("secret-token"));
}
