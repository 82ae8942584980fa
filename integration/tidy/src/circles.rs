//! Circles between modules: no module of one can be understood, moved or tested without all the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{self, Graph, Module};
use crate::tree::Tree;

/// Neighbours in a folder may lean on each other; more files than this may not.
const MAX_FILES: usize = 3;

/// Returns every circle of more than [`MAX_FILES`] modules, as `crate: module, module, ...`.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut errors = BTreeSet::new();
    for (folder, package) in &tree.crates {
        for (name, graph) in modules::graphs(tree, folder, package) {
            let circles = circles(&graph).into_iter();
            let large = circles.filter(|circle| circle.len() > MAX_FILES);
            errors.extend(
                large.map(|circle| format!("modules in a circle:\n  {}", line(&name, &circle))),
            );
        }
    }
    errors.into_iter().collect()
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
    fn a_circle_of_four_files_is_an_error() {
        let errors = check(&house(&RING));
        assert_eq!(errors, ["modules in a circle:\n  house: a, b, c, d"]);
        let mut files = RING;
        files[4].1 = "";
        assert_eq!(check(&house(&files)), [""; 0]);
    }

    #[test]
    fn three_files_may_lean_on_each_other_and_parents_on_their_children() {
        let mut files = RING;
        files[3].1 = "use crate::a::A;";
        assert_eq!(check(&house(&files)), [""; 0]);
        let files = [
            (
                "lib.rs",
                "mod a; mod b; mod c; pub use a::A; pub use b::B; pub use c::C;",
            ),
            ("a.rs", "use crate::B;"),
            ("b.rs", "use crate::C;"),
            ("c.rs", "use crate::A;"),
        ];
        assert_eq!(check(&house(&files)), [""; 0]);
    }
}
