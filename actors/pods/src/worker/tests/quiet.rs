//! What the log has no warning about.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use runtime_fake::Rpc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::testing::TestNode;

/// The log's warnings and errors.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

/// The fields of a line.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Its network goes with it, so that the runtime may refuse the sandbox.
#[test]
fn a_pod_that_is_deleted_while_its_sandbox_is_made_is_nothing_to_warn_of() {
    let warnings = Warnings::default();
    let log = tracing::Dispatch::new(warnings.clone());
    let run = |is_deleted: bool| {
        run_paused(async move || {
            let node = TestNode::start().await;
            node.script(
                r#"{"delays": {"RunPodSandbox": "3s"},
                    "faults": [{"call": "RunPodSandbox", "times": 1, "code": "Unknown", "message": "no network"}]}"#,
            );
            let app = "{name: app, image: localhost/busybox, command: [sleep, infinity]}";
            let yaml = format!("{{metadata: {{name: web}}, spec: {{containers: [{app}]}}}}");
            node.desire(&[pod(&yaml)]);
            pass(Duration::from_secs(1)).await;
            assert_eq!(node.fake.calls(Rpc::RunPodSandbox), 1);
            if is_deleted {
                node.desire(&[]);
                node.until_gone("web").await;
            }
            pass(Duration::from_secs(5)).await;
        });
    };
    tracing::dispatcher::with_default(&log, || run(true));
    assert_eq!(*warnings.0.lock().unwrap(), Vec::<String>::new());
    tracing::dispatcher::with_default(&log, || run(false));
    let told = warnings.0.lock().unwrap().join("\n");
    assert!(told.contains("no network"), "{told}");
}
