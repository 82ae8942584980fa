//! The bench walks all of its paths with the least counts, so that it cannot rot. No figure is judged here.

use integration::bench::{self, BenchPlan, ReportFormat};

/// Figures whose section needs what a test run may not have built.
const MAY_BE_MISSING: [&str; 5] = ["tells", "ask-median", "ask-p99", "actor-bytes", "actor-cpu"];

#[tokio::test]
async fn the_bench_measures_every_figure() {
    let sections = [
        "memory",
        "latency",
        "probes",
        "burst",
        "placement",
        "containerd",
        "cluster",
        "cluster-containerd",
        "scrapes",
        "eviction",
        "runtimes",
        "full-node",
    ];
    for section in sections {
        let plan = BenchPlan {
            section: Some(section.to_owned()),
            ..BenchPlan::smoke()
        };
        let report = bench::run(&plan).await.unwrap();
        let missing = report
            .missing()
            .into_iter()
            .filter(|key| !MAY_BE_MISSING.contains(key));
        let of_section = missing.filter(|key| {
            bench::figures::FIGURES
                .iter()
                .any(|figure| figure.key == *key && figure.section == section)
        });
        let of_section: Vec<_> = of_section.collect();
        assert!(
            of_section.is_empty(),
            "{of_section:?}\n{}",
            report.show(ReportFormat::Table)
        );
    }
}
