//! Authentication and authorization of callers. Upstream: apiserver's pkg/authentication/request/x509,
//! pkg/authentication/token/cache, pkg/{authentication/authenticator,authorization/authorizer}factory (1.36).

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{GaugeVec, Histogram, HistogramVec, IntCounterVec};

use crate::registry::{SECONDS, counters, gauges, histogram, histograms};

const CODE: [&str; 1] = ["code"];
const STATUS: [&str; 1] = ["status"];
/// Buckets of reviews, in seconds.
pub(crate) const REVIEWS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
/// Buckets of certificates' lives, in seconds: half an hour to twelve months of thirty days.
pub(crate) const LIVES: [f64; 14] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// Seconds until the certificates of callers expire, at each request.
pub static CERTIFICATE_LIVES: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "apiserver_client_certificate_expiration_seconds",
        "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
        &LIVES,
    )
});

static TOKENS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "apiserver_delegated_authn_request_total",
        "Number of HTTP requests partitioned by status code.",
        &CODE,
    )
});

static TOKENS_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "apiserver_delegated_authn_request_duration_seconds",
        "Request latency in seconds. Broken down by status code.",
        &CODE,
        &REVIEWS,
    )
});

static RIGHTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "apiserver_delegated_authz_request_total",
        "Number of HTTP requests partitioned by status code.",
        &CODE,
    )
});

static RIGHTS_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "apiserver_delegated_authz_request_duration_seconds",
        "Request latency in seconds. Broken down by status code.",
        &CODE,
        &REVIEWS,
    )
});

/// Tokens that are being reviewed (`in_flight`) or wait for their review (`blocked`).
static ACTIVE: LazyLock<GaugeVec> =
    LazyLock::new(|| gauges("authentication_token_cache_active_fetch_count", "", &STATUS));

static FETCHES: LazyLock<IntCounterVec> =
    LazyLock::new(|| counters("authentication_token_cache_fetch_total", "", &STATUS));

static LOOKS: LazyLock<IntCounterVec> =
    LazyLock::new(|| counters("authentication_token_cache_request_total", "", &STATUS));

static LOOKS_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "authentication_token_cache_request_duration_seconds",
        "",
        &STATUS,
        &SECONDS,
    )
});

/// The kind of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// TokenReview.
    Token,
    /// SubjectAccessReview.
    Right,
}

/// Counts a review by the status code of its response, as `<error>` where there was none.
pub fn reviewed(question: ReviewKind, code: Option<u16>, took: Duration) {
    let code = code.map_or("<error>".to_owned(), |code| code.to_string());
    let (count, duration) = match question {
        ReviewKind::Token => (&TOKENS, &TOKENS_DURATION),
        ReviewKind::Right => (&RIGHTS, &RIGHTS_DURATION),
    };
    count.with_label_values(&[&code]).inc();
    let duration = duration.with_label_values(&[&code]);
    duration.observe(took.as_secs_f64());
}

/// Whether a token's review was cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLookup {
    Hit,
    Miss,
}

/// Counts a lookup of a token's review.
pub fn looked(look: CacheLookup, took: Duration) {
    let status = match look {
        CacheLookup::Hit => "hit",
        CacheLookup::Miss => "miss",
    };
    LOOKS.with_label_values(&[status]).inc();
    let duration = LOOKS_DURATION.with_label_values(&[status]);
    duration.observe(took.as_secs_f64());
}

/// A review of a token under way.
#[derive(Debug)]
pub struct Fetch(Option<ReviewResult>);

/// Whether the API server answered a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewResult {
    Well,
    InError,
}

impl Fetch {
    /// Counts the review as under way until the value is dropped.
    pub fn begin() -> Fetch {
        ACTIVE.with_label_values(&["in_flight"]).inc();
        Fetch(None)
    }

    /// Sets the result.
    pub fn end(mut self, end: ReviewResult) {
        self.0 = Some(end);
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        ACTIVE.with_label_values(&["in_flight"]).dec();
        let status = match self.0 {
            Some(ReviewResult::Well) => "ok",
            Some(ReviewResult::InError) | None => "error",
        };
        FETCHES.with_label_values(&[status]).inc();
    }
}

pub(crate) fn declare() {
    for counters in [&TOKENS, &RIGHTS, &FETCHES, &LOOKS] {
        LazyLock::force(counters);
    }
    for histograms in [&TOKENS_DURATION, &RIGHTS_DURATION, &LOOKS_DURATION] {
        LazyLock::force(histograms);
    }
    LazyLock::force(&ACTIVE);
    LazyLock::force(&CERTIFICATE_LIVES);
}
