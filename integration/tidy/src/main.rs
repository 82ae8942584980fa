//! Checks that no lint makes, as rust-lang/rust's tidy: circles between modules, retired words, trees of files
//! that are removed, copied or walked by hand, and what pages for operators must have.
//!
//! Standard library only, and a parser of exactly what is needed: it builds within a second or two and reads the
//! whole workspace in one.

mod bounds;
mod circles;
mod file_trees;
mod lexer;
mod modules;
mod operate;
mod proofs;
mod references;
mod retired;
mod tree;

use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match check(&root) {
        Ok(errors) if errors.is_empty() => ExitCode::SUCCESS,
        Ok(errors) => {
            for error in errors {
                eprintln!("tidy: {error}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: cannot read the workspace: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns what is wrong in the workspace at `root`.
fn check(root: &Path) -> io::Result<Vec<String>> {
    let tree = tree::Tree::read(root)?;
    let words = fs::read_to_string(root.join("integration/tidy/retired-names"))?;
    let mut errors = circles::check(&tree);
    errors.extend(file_trees::check(&tree));
    errors.extend(retired::check(&tree, &words));
    let page = fs::read_to_string(root.join("docs/operate.md"))?;
    let upstream = fs::read_to_string(root.join("integration/tidy/upstream-reasons"))?;
    errors.extend(operate::check(&tree, &page, &upstream));
    if std::env::var_os("OXLET_GENERATE").is_some() {
        fs::write(root.join(bounds::PAGE), bounds::page(&tree))?;
    }
    let bounds = fs::read_to_string(root.join(bounds::PAGE))?;
    errors.extend(bounds::check(&tree, &bounds));
    errors.extend(bounds::check_operators_page(&tree, &page));
    let proofs = fs::read_to_string(root.join(proofs::PAGE))?;
    errors.extend(proofs::check(&tree, &proofs));
    Ok(errors)
}
