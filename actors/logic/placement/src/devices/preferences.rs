//! Which devices plugins would rather give: questions to them, and their answers.
//!
//! Upstream (devicemanager/manager.go, `callGetPreferredAllocationIfAvailable`, v1.36) asks the plugin in the midst of
//! an allocation. Here the allocation ends with the questions, and begins anew with the answers.

use std::collections::{BTreeMap, BTreeSet};

/// What a plugin is to be asked by GetPreferredAllocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PreferenceQuestion {
    pub resource: String,
    /// The ids of the devices to choose among, with those that must be included.
    pub available: BTreeSet<String>,
    /// The ids of the devices that the container gets in any case.
    pub must_include: BTreeSet<String>,
    /// How many devices the container is to get.
    pub size: usize,
}

/// The answers that plugins have given, by the question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePreferences(BTreeMap<PreferenceQuestion, Result<BTreeSet<String>, String>>);

impl DevicePreferences {
    /// No answers.
    pub const NONE: Self = Self(BTreeMap::new());

    /// Adds an answer: the ids of devices, or why there is none.
    pub fn insert(
        &mut self,
        question: PreferenceQuestion,
        answer: Result<BTreeSet<String>, String>,
    ) {
        self.0.insert(question, answer);
    }

    /// None where the question has not been asked.
    pub(super) fn get(
        &self,
        question: &PreferenceQuestion,
    ) -> Option<&Result<BTreeSet<String>, String>> {
        self.0.get(question)
    }
}
