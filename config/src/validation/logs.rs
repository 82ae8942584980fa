//! Logging, tracing and the directory of pod logs.

use std::path::{Component, Path};

use super::FieldErrors;
use crate::feature_gates::FeatureGates;
use crate::kubelet_configuration::{GoDuration, KubeletConfiguration, Logging, Quantity, Tracing};

/// The highest verbosity: upstream's, what a signed 32-bit number holds.
const MAX_VERBOSITY: u32 = i32::MAX.unsigned_abs();

pub(super) fn check(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    logging(&c.logging, gates, checks);
    if let Some(tracing) = &c.tracing {
        check_tracing(tracing, checks);
    }
    pod_logs_dir(&c.pod_logs_dir, checks);
    if let Err(error) = c.container_log_max_size.parse::<Quantity>() {
        checks.refuse("containerLogMaxSize", format!("is no size: {error}"));
    }
}

fn logging(logging: &Logging, gates: &FeatureGates, checks: &mut FieldErrors) {
    checks.require(
        logging.flush_frequency > GoDuration::ZERO,
        "logging.flushFrequency",
        "must be greater than zero",
    );
    checks.one_of("logging.format", &logging.format, &["text", "json"]);
    checks.require(
        logging.format != "json" || gates.enabled("LoggingBetaOptions"),
        "logging.format",
        "json is disabled, see LoggingBetaOptions feature",
    );
    let vmodule = "logging.vmodule";
    checks.require(
        logging.vmodule.is_empty() || logging.format == "text",
        vmodule,
        "is only supported for text log format",
    );
    for item in &logging.vmodule {
        checks.require(
            !item.file_pattern.is_empty() && !item.file_pattern.contains(['=', ',']),
            vmodule,
            "needs file patterns that are not empty and have no equal sign or comma",
        );
    }
    let levels = logging.vmodule.iter().map(|item| (vmodule, item.verbosity));
    for (field, level) in levels.chain([("logging.verbosity", logging.verbosity)]) {
        if level > MAX_VERBOSITY {
            checks.refuse(
                field,
                format!("is {level}; it must be at most {MAX_VERBOSITY}"),
            );
        }
    }
    if gates.enabled("LoggingAlphaOptions") {
        return;
    }
    for (field, set) in [
        (
            "logging.options.text.splitStream",
            logging.options.text.split_stream,
        ),
        (
            "logging.options.text.infoBufferSize",
            !logging.options.text.info_buffer_size.is_zero(),
        ),
        (
            "logging.options.json.splitStream",
            logging.options.json.split_stream,
        ),
        (
            "logging.options.json.infoBufferSize",
            !logging.options.json.info_buffer_size.is_zero(),
        ),
    ] {
        checks.require(!set, field, "requires feature gate LoggingAlphaOptions");
    }
}

fn check_tracing(tracing: &Tracing, checks: &mut FieldErrors) {
    if let Some(rate) = tracing.sampling_rate_per_million {
        checks.within("tracing.samplingRatePerMillion", rate.into(), 0..=1_000_000);
    }
    let scheme = tracing
        .endpoint
        .as_deref()
        .and_then(|endpoint| endpoint.split_once("://"));
    if let Some((scheme, _)) = scheme
        && !["dns", "unix", "unix-abstract"].contains(&scheme)
    {
        checks.refuse(
            "tracing.endpoint",
            format!("has the scheme {scheme:?}; expected none, dns, unix or unix-abstract"),
        );
    }
}

fn pod_logs_dir(dir: &str, checks: &mut FieldErrors) {
    let field = "podLogsDir";
    if dir.is_empty() {
        checks.refuse(field, "was not specified");
        return;
    }
    let path = Path::new(dir);
    checks.require(path.is_absolute(), field, "must be an absolute path");
    let clean: std::path::PathBuf = path.components().collect();
    let normal = clean.as_os_str() == path.as_os_str()
        && !path.components().any(|part| part == Component::ParentDir);
    checks.require(normal, field, "must be normalized");
    // The path becomes a metric's label.
    checks.require(dir.is_ascii(), field, "must contain ASCII characters only");
}
