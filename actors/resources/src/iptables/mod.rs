//! Keeps the rules of iptables that other components rely on (`makeIPTablesUtilChains`).
//!
//! - **Owns** what is known of each family's rules.
//! - **Hears** its own timer, and how a round of calls has ended.
//! - **Tells** nobody.
//! - **Never** takes a missing iptables for a fault: a node with nftables alone needs no rule of it.
//!
//! A chain of no use, the canary, shows that all rules were removed; then they are made again, within a minute.
//!
//! Upstream: pkg/kubelet/kubelet_network_linux.go, `Monitor` of pkg/util/iptables (1.36).

pub mod program;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::{Actor, Context, Exit};
use logic_node::iptables::{self, CANARY, CANARY_TABLES, IpFamily, RuleStep};
use serde::Serialize;

use self::program::{CallError, Iptables};

/// Room for its own timers.
pub const MAILBOX: usize = 8;
/// Between two looks at the canary, and after a failure.
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// How much of the rules is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Every rule is made sure of.
    Rules,
    /// The canary alone, and the rules if it is gone.
    Canary,
}

/// How a round of calls has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoundEnd {
    /// The node has no iptables of this family, by what says so.
    Absent(CallError),
    /// Nothing was to be done.
    Unchanged,
    /// The rules were made.
    Made,
    Failed(CallError),
}

/// Messages of the rules' keeper.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Looks at a family's rules.
    Look(IpFamily, Extent),
    /// Takes note of how that has ended, and looks again later.
    Looked(IpFamily, RoundEnd),
}

/// What is known of the rules, by program.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub rules: BTreeMap<&'static str, String>,
}

/// Keeps the rules.
#[derive(Debug)]
pub struct IptablesRules<I> {
    iptables: I,

    known: BTreeMap<IpFamily, String>,
}

impl<I: Iptables> Actor for IptablesRules<I> {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        for family in [IpFamily::V4, IpFamily::V6] {
            self.look(family, Extent::Rules, ctx);
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Look(family, extent) => self.look(family, extent, ctx),
            Msg::Looked(family, end) => self.looked(family, end, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let rules = self.known.iter();
        Snapshot {
            rules: rules
                .map(|(family, known)| (family.program(), known.clone()))
                .collect(),
        }
    }
}

impl<I: Iptables> IptablesRules<I> {
    pub fn new(iptables: I) -> Self {
        IptablesRules {
            iptables,
            known: BTreeMap::new(),
        }
    }

    fn look(&mut self, family: IpFamily, extent: Extent, ctx: &mut Context<Msg>) {
        let iptables = self.iptables.clone();
        ctx.run(async move {
            let end = match extent {
                Extent::Rules => first_round(&iptables, family).await,
                Extent::Canary => next_round(&iptables, family).await,
            };
            Msg::Looked(family, end.unwrap_or_else(RoundEnd::Failed))
        });
    }

    fn looked(&mut self, family: IpFamily, end: RoundEnd, ctx: &mut Context<Msg>) {
        let program = family.program();
        let known = match &end {
            RoundEnd::Unchanged | RoundEnd::Made => "made".to_owned(),
            RoundEnd::Absent(error) | RoundEnd::Failed(error) => error.to_string(),
        };
        let is_news = self.known.get(&family) != Some(&known);
        match &end {
            RoundEnd::Made if is_news => tracing::info!(program, "iptables rules are made"),
            RoundEnd::Absent(_) if is_news => {
                tracing::info!(program, "no iptables support: {known}")
            }
            RoundEnd::Failed(_) if is_news => {
                tracing::warn!(program, "iptables rules are not made: {known}");
            }
            RoundEnd::Unchanged | RoundEnd::Made | RoundEnd::Absent(_) | RoundEnd::Failed(_) => {}
        }
        self.known.insert(family, known);
        let extent = match end {
            RoundEnd::Absent(CallError::NoProgram { .. }) => return,
            RoundEnd::Absent(_) | RoundEnd::Failed(_) => Extent::Rules,
            RoundEnd::Unchanged | RoundEnd::Made => Extent::Canary,
        };
        ctx.after(LOOK_PERIOD, Msg::Look(family, extent));
    }
}

/// Makes sure of every rule, unless the node has no such iptables.
async fn first_round(iptables: &impl Iptables, family: IpFamily) -> Result<RoundEnd, CallError> {
    match iptables.call(family, &iptables::probe()).await {
        Ok(()) => make(iptables, family).await,
        Err(error) => Ok(RoundEnd::Absent(error)),
    }
}

/// Makes the rules again if a canary is gone from any table.
async fn next_round(iptables: &impl Iptables, family: IpFamily) -> Result<RoundEnd, CallError> {
    for table in CANARY_TABLES {
        let canary = iptables::check_chain(table, CANARY);
        if !is_there(iptables.call(family, &canary).await)? {
            tracing::info!(
                program = family.program(),
                table,
                "iptables rules were removed"
            );
            return make(iptables, family).await;
        }
    }
    Ok(RoundEnd::Unchanged)
}

async fn make(iptables: &impl Iptables, family: IpFamily) -> Result<RoundEnd, CallError> {
    for step in iptables::steps(family) {
        match step {
            RuleStep::Chain { table, chain } => chain_made(iptables, family, table, chain).await?,
            RuleStep::Rule(rule) => {
                if !is_there(iptables.call(family, &rule.check()).await)? {
                    iptables.call(family, &rule.add()).await?;
                }
            }
        }
    }
    for table in CANARY_TABLES {
        chain_made(iptables, family, table, CANARY).await?;
    }
    Ok(RoundEnd::Made)
}

async fn chain_made(
    iptables: &impl Iptables,
    family: IpFamily,
    table: &'static str,
    chain: &'static str,
) -> Result<(), CallError> {
    let made = iptables
        .call(family, &iptables::make_chain(table, chain))
        .await;
    // Refused: it was there.
    is_there(made).map(drop)
}

fn is_there(looked: Result<(), CallError>) -> Result<bool, CallError> {
    match looked {
        Ok(()) => Ok(true),
        Err(CallError::Refused { .. }) => Ok(false),
        Err(error @ (CallError::NoProgram { .. } | CallError::Failed { .. })) => Err(error),
    }
}
