//! Random pods.

use proptest::prelude::*;

use super::super::*;

/// What a pod looks like.
#[derive(Clone, Debug)]
pub(super) struct PodShape {
    policy: &'static str,
    inits: Vec<Init>,
    apps: Vec<App>,
    ephemerals: usize,
    grace: Option<i64>,
    probe_grace: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
enum Init {
    Plain { own: Option<&'static str> },
    Sidecar { probed: bool },
}

#[derive(Clone, Copy, Debug)]
struct App {
    own: Option<&'static str>,
    /// Whether code 1 restarts it, and code 2 everything.
    rules: bool,
    resize_restarts: bool,
}

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

pub(super) fn shapes() -> impl Strategy<Value = PodShape> {
    let policy = || prop::sample::select(&POLICIES[..]);
    let own = || prop::option::weighted(0.3, prop::sample::select(&POLICIES[..]));
    let init = prop_oneof![
        prop::option::weighted(0.3, prop::sample::select(&POLICIES[1..]))
            .prop_map(|own| Init::Plain { own }),
        any::<bool>().prop_map(|probed| Init::Sidecar { probed }),
    ];
    let app = (own(), any::<bool>(), any::<bool>()).prop_map(|(own, rules, resize_restarts)| App {
        own,
        rules: rules && own.is_some(),
        resize_restarts,
    });
    let grace = || prop::option::of(0_i64..40);
    (
        policy(),
        prop::collection::vec(init, 0..4),
        prop::collection::vec(app, 1..3),
        0_usize..2,
        grace(),
        grace(),
    )
        .prop_map(
            |(policy, inits, apps, ephemerals, grace, probe_grace)| PodShape {
                policy,
                inits,
                apps,
                ephemerals,
                grace,
                probe_grace,
            },
        )
}

impl PodShape {
    pub(super) fn of_one_app(policy: &'static str) -> PodShape {
        let app = App {
            own: None,
            rules: false,
            resize_restarts: false,
        };
        PodShape {
            policy,
            inits: Vec::new(),
            apps: vec![app],
            ephemerals: 0,
            grace: None,
            probe_grace: None,
        }
    }

    pub(super) fn pod(&self) -> Pod {
        let mut made = pod("p").policy(self.policy);
        made.spec.as_mut().unwrap().termination_grace_period_seconds = self.grace;
        for (index, init) in self.inits.iter().enumerate() {
            let name = format!("init{index}");
            made = match *init {
                Init::Plain { own } => {
                    let mut made = made.init(&name);
                    init_spec(&mut made, index).restart_policy = own.map(str::to_owned);
                    made
                }
                Init::Sidecar { probed } => sidecar(made, &name, |c| {
                    c.liveness_probe = probed.then(|| self.probe());
                    c.startup_probe = probed.then(|| self.probe());
                }),
            };
        }
        for (index, app) in self.apps.iter().enumerate() {
            made = made.app_with(&format!("app{index}"), |c| self.shape_app(app, c));
        }
        (0..self.ephemerals).fold(made, |made, index| {
            ephemeral(made, &format!("debug{index}"))
        })
    }

    fn shape_app(&self, app: &App, container: &mut core::Container) {
        container.liveness_probe = Some(self.probe());
        container.restart_policy = app.own.map(str::to_owned);
        container.restart_policy_rules = app.rules.then(|| {
            vec![
                exit_rule("Restart", "In", &[1]),
                exit_rule("RestartAllContainers", "In", &[2]),
            ]
        });
        container.resize_policy = app.resize_restarts.then(|| {
            vec![core::ContainerResizePolicy {
                resource_name: "cpu".into(),
                restart_policy: "RestartContainer".into(),
            }]
        });
    }

    fn probe(&self) -> core::Probe {
        core::Probe {
            termination_grace_period_seconds: self.probe_grace,
            ..core::Probe::default()
        }
    }

    /// The longest that any kill may take while the pod is not deleted.
    pub(super) fn longest_grace(&self) -> i64 {
        let defined = self
            .grace
            .map_or(0, |grace| grace.max(self.probe_grace.unwrap_or(0)));
        defined.max(2)
    }
}
