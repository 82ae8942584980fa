//! Circles between modules: no module of one can be understood, moved or tested without all the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{self, Graph, Module};
use crate::tree::Tree;

/// Neighbours in a folder may lean on each other; more files than this may not.
const MAX_FILES: usize = 3;

/// Returns the circles that are not in `known`, and what is in `known` without a reason or without a circle.
pub(crate) fn check(tree: &Tree, known: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let listed = listed(known, &mut errors);
    let mut found = BTreeSet::new();
    for (folder, package) in &tree.crates {
        for (name, graph) in modules::graphs(tree, folder, package) {
            let circles = circles(&graph).into_iter();
            let large = circles.filter(|circle| circle.len() > MAX_FILES);
            found.extend(large.map(|circle| line(&name, &circle)));
        }
    }
    let new = found.difference(&listed).map(|circle| {
        format!(
            "modules in a circle that integration/tidy/known-circles does not list:\n  {circle}"
        )
    });
    errors.extend(new);
    let gone = listed.difference(&found).map(|circle| {
        format!(
            "integration/tidy/known-circles lists a circle that is gone, strike it:\n  {circle}"
        )
    });
    errors.extend(gone);
    errors
}

/// Reads the list: `crate: module, module, ...`, each below a comment that says why it stays.
fn listed(known: &str, errors: &mut Vec<String>) -> BTreeSet<String> {
    let mut listed = BTreeSet::new();
    let mut has_reason = false;
    for (index, line) in known.lines().map(str::trim).enumerate() {
        let is_circle = !line.is_empty() && !line.starts_with('#');
        if is_circle {
            listed.insert(line.to_owned());
            if !has_reason {
                let line = index + 1;
                errors.push(format!(
                    "integration/tidy/known-circles:{line} has no comment above it that says why"
                ));
            }
        }
        has_reason = line.starts_with('#');
    }
    listed
}

fn line(name: &str, circle: &[Module]) -> String {
    let modules = circle.iter().map(|module| match module.as_slice() {
        [] => "crate".to_owned(),
        module => module.join("::"),
    });
    let modules: BTreeSet<String> = modules.collect();
    let modules: Vec<String> = modules.into_iter().collect();
    format!("{name}: {}", modules.join(", "))
}

/// Returns the strongly connected components, by Tarjan's algorithm.
fn circles(graph: &Graph) -> Vec<Vec<Module>> {
    let mut search = Search {
        graph,
        visits: BTreeMap::new(),
        path: Vec::new(),
        circles: Vec::new(),
    };
    for module in graph.keys() {
        if !search.visits.contains_key(module) {
            search.visit(module);
        }
    }
    search.circles
}

struct Search<'a> {
    graph: &'a Graph,
    /// The order of each module's first visit; `usize::MAX` once its component is complete.
    visits: BTreeMap<&'a Module, usize>,
    path: Vec<&'a Module>,
    circles: Vec<Vec<Module>>,
}

impl<'a> Search<'a> {
    /// Returns the earliest visit that is reached from here and still open.
    fn visit(&mut self, module: &'a Module) -> usize {
        let order = self.visits.len();
        let depth = self.path.len();
        self.visits.insert(module, order);
        self.path.push(module);
        let mut lowest = order;
        for other in self.graph.get(module).into_iter().flatten() {
            let reached = match self.visits.get(other) {
                Some(visited) => *visited,
                None => self.visit(other),
            };
            lowest = lowest.min(reached);
        }
        if lowest < order {
            return lowest;
        }
        let circle = self.path.split_off(depth);
        for module in &circle {
            self.visits.insert(module, usize::MAX);
        }
        self.circles.push(circle.into_iter().cloned().collect());
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::tests::house;

    const RING: [(&str, &str); 6] = [
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "use crate::{c::C, e::E};"),
        ("c.rs", "use crate::d::D;"),
        ("d.rs", "use crate::a::A;"),
        ("e.rs", ""),
    ];

    #[test]
    fn a_circle_is_an_error_unless_it_is_listed_with_a_reason() {
        let tree = house(&RING);
        let errors = check(&tree, "");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].ends_with("\n  house: a, b, c, d"), "{errors:?}");
        assert_eq!(check(&tree, "# why\nhouse: a, b, c, d\n"), [""; 0]);
        let errors = check(&tree, "# why\n\nhouse: a, b, c, d\n");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains(":3 has no comment"), "{errors:?}");
    }

    #[test]
    fn a_listed_circle_that_is_gone_is_an_error() {
        let mut files = RING;
        files[4].1 = "";
        let errors = check(&house(&files), "# why\nhouse: a, b, c, d\n");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("is gone"), "{errors:?}");
    }

    #[test]
    fn three_files_may_lean_on_each_other_and_parents_on_their_children() {
        let mut files = RING;
        files[3].1 = "use crate::a::A;";
        assert_eq!(check(&house(&files), ""), [""; 0]);
        let files = [
            (
                "lib.rs",
                "mod a; mod b; mod c; pub use a::A; pub use b::B; pub use c::C;",
            ),
            ("a.rs", "use crate::B;"),
            ("b.rs", "use crate::C;"),
            ("c.rs", "use crate::A;"),
        ];
        assert_eq!(check(&house(&files), ""), [""; 0]);
    }
}
