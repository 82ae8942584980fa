//! The campaign on real containers: `make test` runs forty seeds, `make differential` as many as it is asked for.

#![allow(clippy::unwrap_used, reason = "all of a test binary is test")]

const SEEDS: u64 = 40;

fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => otherwise,
    }
}

#[tokio::test]
async fn what_a_program_sees_is_what_it_sees_on_containerd() {
    let first = number("DIFFERENTIAL_FIRST", 1);
    let seeds = number("DIFFERENTIAL_SEEDS", SEEDS);
    let Some(outcome) = differential::campaign::run(first..first + seeds)
        .await
        .unwrap()
    else {
        return;
    };
    assert_eq!(outcome.seeds, seeds);
    let differ = outcome.unexplained.len();
    assert!(
        differ == 0,
        "{differ} of {seeds} seeds differ without an explanation\n{}\
         again with one of them: make differential SEEDS=1 FIRST=SEED",
        outcome.report()
    );
}
