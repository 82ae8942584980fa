//! The files of one crate as a graph: which module names what of which other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::references::{self, Reference, References};
use crate::tree::Tree;

/// A module by its path from the crate's root, which is empty.
pub(crate) type Module = Vec<String>;

/// For each module that is a file: the others that it names, without its own descendants, because a parent wires
/// its children.
pub(crate) type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Names that stand for names that stand for names: no deeper than this.
const MAX_ALIASES: usize = 8;

/// Returns the graph of each library and program of a crate, with its name.
pub(crate) fn graphs(tree: &Tree, folder: &Path, package: &str) -> Vec<(String, Graph)> {
    let source = folder.join("src");
    let library = source.join("lib.rs");
    let roots = tree.sources.keys().filter(|file| {
        let program = file.strip_prefix(source.join("bin"));
        let is_program = program.is_ok_and(|program| match program.components().count() {
            1 => true,
            2 => program.ends_with("main.rs"),
            _ => false,
        });
        **file == library || **file == source.join("main.rs") || is_program
    });
    let name = |root: &Path| {
        if root == library || !tree.sources.contains_key(&library) {
            package.to_owned()
        } else {
            let below = root
                .strip_prefix(&source)
                .unwrap_or(root)
                .with_extension("");
            format!("{package}/{}", below.display())
        }
    };
    roots
        .map(|root| (name(root), SourceFiles::read(tree, root).graph()))
        .collect()
}

/// The files that a root declares, directly or not.
struct SourceFiles(BTreeMap<Module, References>);

impl SourceFiles {
    fn read(tree: &Tree, root: &Path) -> Self {
        let mut files = BTreeMap::new();
        let folder = root.parent().unwrap_or(root).to_owned();
        let mut found = vec![(Module::new(), root.to_owned(), folder)];
        while let Some((module, file, folder)) = found.pop() {
            let Some(text) = tree.sources.get(&file) else {
                continue;
            };
            let references = references::read(text);
            for child in &references.children {
                let below: Vec<&String> = child.scope.iter().chain(&child.path).collect();
                let path = below
                    .iter()
                    .fold(folder.clone(), |path, name| path.join(name));
                let module = [module.clone(), below.into_iter().cloned().collect()].concat();
                let file = file_of(tree, &path);
                found.push((module, file, path));
            }
            files.insert(module, references);
        }
        Self(files)
    }

    fn graph(&self) -> Graph {
        let named = self.0.iter().map(|(module, references)| {
            let imports = references.imports.iter().map(|import| &import.reference);
            let named = imports.chain(&references.paths);
            let named = named.filter_map(|reference| self.file_named(module, reference));
            let others = named.filter(|other| !other.starts_with(module));
            (module.clone(), others.collect())
        });
        named.collect()
    }

    /// Returns the file in which the path ends: the longest beginning of it that is a file.
    fn file_named(&self, module: &Module, reference: &Reference) -> Option<Module> {
        let mut path = self.absolute(module, &reference.scope, &reference.path, 0)?;
        while !self.0.contains_key(&path) {
            path.pop()?;
        }
        Some(path)
    }

    /// Returns the path from the crate's root; none where it leads to another crate.
    fn absolute(
        &self,
        module: &Module,
        scope: &[String],
        path: &[String],
        aliases: usize,
    ) -> Option<Module> {
        let mut base = [module, scope].concat();
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([&base, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|word| *word == "super").count();
                base.truncate(base.len().checked_sub(ups)?);
                Some([&base, &path[ups..]].concat())
            }
            _ if self
                .0
                .contains_key(&[&base[..], std::slice::from_ref(first)].concat()) =>
            {
                Some([&base, path].concat())
            }
            _ if aliases < MAX_ALIASES => self.imported(module, scope, path, aliases),
            _ => None,
        }
    }

    /// Resolves a path by what `use` brought into its scope.
    fn imported(
        &self,
        module: &Module,
        scope: &[String],
        path: &[String],
        aliases: usize,
    ) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let imports = self.0.get(module)?.imports.iter();
        let mut imports = imports.filter(|import| import.reference.scope == scope);
        let target = |path: &[String]| self.absolute(module, scope, path, aliases + 1);
        let named = imports.clone().find(|import| import.name == *first);
        if let Some(import) = named.filter(|import| import.reference.path != *path) {
            return Some([target(&import.reference.path)?, rest.to_vec()].concat());
        }
        imports.find_map(|import| {
            let everything = (import.name == "*").then(|| target(&import.reference.path))??;
            let child = [everything.clone(), vec![first.clone()]].concat();
            let is_file = self.0.contains_key(&child);
            is_file.then(|| [everything, path.to_vec()].concat())
        })
    }
}

/// Returns the file of a module; where there is none, a path that does not exist.
fn file_of(tree: &Tree, path: &Path) -> PathBuf {
    let folder = path.join("mod.rs");
    if tree.sources.contains_key(&folder) {
        return folder;
    }
    path.with_extension("rs")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A crate `house` of the given files.
    pub(crate) fn house(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        tree.crates.insert("house".into(), "house".to_owned());
        for (file, text) in files {
            let path = Path::new("house/src").join(file);
            tree.sources.insert(path, (*text).to_owned());
        }
        tree
    }

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let graphs = graphs(&house(files), Path::new("house"), "house");
        let mut edges = Vec::new();
        for (name, graph) in graphs {
            for (from, others) in graph {
                let others = others.iter().map(|to| to.join("::"));
                edges.extend(others.map(|to| format!("{name}: {} > {to}", from.join("::"))));
            }
        }
        edges
    }

    #[test]
    fn every_way_to_name_a_module_is_an_edge() {
        for text in [
            "use crate::b::T;",
            "use super::b;",
            "pub use super::{b::{self, T}, c as _};",
            "use super as up; fn f() { up::b::g() }",
            "use crate as root; use root::b::T;",
            "use super::*; fn f(_: b::T) {}",
            "mod inner { use super::super::b::T; }",
            "macro_rules! m { () => { $crate::b::g() } }",
            "fn f() { use super::b as x; x::g() }",
        ] {
            let files = [("lib.rs", "mod a; mod b;"), ("a.rs", text), ("b.rs", "")];
            let edges = edges(&files);
            assert!(
                edges.contains(&"house: a > b".to_owned()),
                "{text}: {edges:?}"
            );
        }
    }

    #[test]
    fn other_crates_children_and_tests_are_no_edges() {
        for text in [
            "use std::b::T;",
            "use ::b::T; use b::T as _;",
            "mod c; use c::T; use self::c::U;",
            "#[cfg(test)] mod tests { use crate::b::T; }",
            "pub(in crate::b) fn f() {}",
        ] {
            let files = [
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", text),
                ("a/c.rs", ""),
                ("b.rs", ""),
            ];
            assert_eq!(edges(&files), [""; 0], "{text}");
        }
    }

    #[test]
    fn folders_and_programs_have_graphs_of_their_own() {
        let edges = edges(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod c; mod d;"),
            ("a/c.rs", "use super::d::T;"),
            ("a/d.rs", ""),
            ("undeclared.rs", "use crate::a::T;"),
            ("bin/tool/main.rs", "mod show; mod call;"),
            ("bin/tool/show.rs", "use crate::call::T;"),
            ("bin/tool/call.rs", ""),
        ]);
        let expected = ["house/bin/tool/main: show > call", "house: a::c > a::d"];
        assert_eq!(edges, expected);
    }
}
