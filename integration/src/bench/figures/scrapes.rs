//! Scrapes of a node on a real containerd, and a race against the kernel's OOM killer.

use super::{BenchGoal, EVICTION, Figure, SCRAPES, figure};

pub(super) const FIGURES: &[Figure] = &[
    figure(
        "scrape-summary",
        SCRAPES,
        "/stats/summary of {many} pods when it must look, median",
        "ms",
        BenchGoal::Under(150.0),
    ),
    figure(
        "scrape-summary-again",
        SCRAPES,
        "/stats/summary asked again at once, median",
        "ms",
        BenchGoal::Under(15.0),
    ),
    figure(
        "scrape-resource",
        SCRAPES,
        "/metrics/resource when it must look, median",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "scrape-cadvisor",
        SCRAPES,
        "/metrics/cadvisor when it must look, median",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "scrape-cadvisor-more",
        SCRAPES,
        "of it more than the summary takes",
        "ms",
        BenchGoal::Under(25.0),
    ),
    figure(
        "scrape-metrics",
        SCRAPES,
        "/metrics, median",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "scrapes-none-cpu",
        SCRAPES,
        "agent's processor time, {many} idle pods on containerd, not scraped",
        "% of a core",
        BenchGoal::None,
    ),
    figure(
        "scrapes-cpu",
        SCRAPES,
        "agent's processor time with resource, cadvisor and summary scraped every 15 s",
        "% of a core",
        BenchGoal::Under(1.5),
    ),
    figure(
        "scrapes-pss",
        SCRAPES,
        "agent's memory with the adapter, {many} pods, scraped",
        "MiB",
        BenchGoal::AtMost(36.0),
    ),
    figure(
        "eaters-lost",
        EVICTION,
        "of {eaters} pods that eat 1 GiB a second with 512 MiB left: killed by the kernel before they are evicted",
        "pods",
        BenchGoal::AtMost(1.0),
    ),
];
