//! The measured values, printed as a table or as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::{Value, json};

use super::BenchPlan;
use super::figures::{BenchGoal, FIGURES, Figure};

/// The agent that a figure was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentColumn {
    /// Oxlet's agent.
    Oxlet,
    /// The kubelet's, measured in the same run.
    KubeletProcess,
}

/// The format of a printed report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// A table as text.
    Table,
    /// One JSON document.
    Json,
}

/// The values measured so far, by figure and agent.
#[derive(Debug)]
pub struct BenchReport {
    plan: BenchPlan,
    values: BTreeMap<(&'static str, AgentColumn), f64>,
    notes: Vec<String>,
}

impl BenchReport {
    pub(super) fn new(plan: &BenchPlan) -> Self {
        Self {
            plan: plan.clone(),
            values: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Writes a line of progress to standard error.
    pub(super) fn say(&self, what: &str) {
        // A reader that has left has read enough.
        drop(writeln!(std::io::stderr(), "{what}"));
    }

    pub(super) fn put(&mut self, column: AgentColumn, key: &'static str, value: f64) {
        self.values.insert((key, column), value);
    }

    pub(super) fn count(&mut self, column: AgentColumn, key: &'static str, count: usize) {
        self.put(
            column,
            key,
            f64::from(u32::try_from(count).unwrap_or(u32::MAX)),
        );
    }

    /// Adds a sentence below the table.
    pub(super) fn note(&mut self, sentence: &str) {
        self.notes.push(sentence.to_owned());
    }

    /// Returns a figure, if it was measured.
    pub fn value(&self, column: AgentColumn, key: &'static str) -> Option<f64> {
        self.values.get(&(key, column)).copied()
    }

    /// Returns the keys that have no figure of ours.
    pub fn missing(&self) -> Vec<&'static str> {
        let keys = FIGURES.iter().map(|figure| figure.key);
        keys.filter(|key| self.value(AgentColumn::Oxlet, key).is_none())
            .collect()
    }

    /// Returns the whole report as text.
    pub fn show(&self, format: ReportFormat) -> String {
        match format {
            ReportFormat::Table => self.table(),
            ReportFormat::Json => format!("{:#}\n", self.json()),
        }
    }

    fn table(&self) -> String {
        let beside = self.plan.kubelet.is_some();
        let mut text = String::new();
        let kubelet = if beside { " kubelet |" } else { "" };
        let line = if beside { "---|" } else { "" };
        text.push_str(&format!(
            "| figure | aim | measured |{kubelet} verdict |\n|---|---|---|{line}---|\n"
        ));
        for figure in FIGURES.iter() {
            if !self.plan.wants(figure.section) {
                continue;
            }
            let shown = |column| {
                self.value(column, figure.key)
                    .map_or("–".to_owned(), |value| amount(value, figure))
            };
            let kubelet = if beside {
                format!(" {} |", shown(AgentColumn::KubeletProcess))
            } else {
                String::new()
            };
            let (name, aim, ours) = (
                figure.name(&self.plan),
                aim(figure),
                shown(AgentColumn::Oxlet),
            );
            // Writing to a string cannot fail.
            let _done = writeln!(
                text,
                "| {name} | {aim} | {ours} |{kubelet} {} |",
                self.verdict(figure)
            );
        }
        for note in &self.notes {
            let _done = writeln!(text, "\n{note}");
        }
        text
    }

    fn json(&self) -> Value {
        let figures = FIGURES
            .iter()
            .filter(|figure| self.plan.wants(figure.section))
            .map(|figure| {
                json!({
                    "key": figure.key,
                    "section": figure.section,
                    "figure": figure.name(&self.plan),
                    "unit": figure.unit,
                    "aim": aim(figure),
                    "measured": self.value(AgentColumn::Oxlet, figure.key),
                    "kubelet": self.value(AgentColumn::KubeletProcess, figure.key),
                    "verdict": self.verdict(figure),
                })
            });
        json!({ "figures": figures.collect::<Vec<_>>(), "notes": self.notes })
    }

    fn verdict(&self, figure: &Figure) -> &'static str {
        let value = self
            .value(AgentColumn::Oxlet, figure.key)
            .filter(|_| self.plan.judged);
        match value.and_then(|value| figure.aim.met(value)) {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        }
    }
}

fn aim(figure: &Figure) -> String {
    match figure.aim {
        BenchGoal::AtMost(most) => format!("at most {}", amount(most, figure)),
        BenchGoal::Under(bound) => format!("under {}", amount(bound, figure)),
        BenchGoal::None => String::new(),
    }
}

/// A number with its unit, no more exact than it deserves.
fn amount(value: f64, figure: &Figure) -> String {
    let digits = match value.abs() {
        _ if value.fract() == 0.0 => 0,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", figure.unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_judged_by_its_aim_when_the_plan_is_whole() {
        let figure = Figure {
            aim: BenchGoal::AtMost(15.0),
            ..FIGURES[0]
        };
        let verdict = |plan: &BenchPlan, value| {
            let mut report = BenchReport::new(plan);
            report.put(AgentColumn::Oxlet, figure.key, value);
            report.verdict(&figure)
        };
        assert_eq!(verdict(&BenchPlan::whole(), 15.0), "met");
        assert_eq!(verdict(&BenchPlan::whole(), 15.1), "MISSED");
        assert_eq!(verdict(&BenchPlan::quick(), 15.1), "");
    }

    #[test]
    fn the_kubelet_stands_beside_only_where_there_is_one() {
        let mut plan = BenchPlan::whole();
        assert!(
            !BenchReport::new(&plan)
                .show(ReportFormat::Table)
                .contains("kubelet")
        );
        plan.kubelet = Some("/bin/kubelet".into());
        let mut report = BenchReport::new(&plan);
        report.put(AgentColumn::KubeletProcess, "start-median", 301.5);
        let table = report.show(ReportFormat::Table);
        assert!(
            table.contains("| process start to healthz, median | under 50 ms | – | 302 ms |"),
            "{table}"
        );
    }

    #[test]
    fn keys_are_unique() {
        let keys: std::collections::BTreeSet<_> = FIGURES.iter().map(|figure| figure.key).collect();
        assert_eq!(keys.len(), FIGURES.len());
    }
}
