//! What a newcomer meets: `make run`, the package, and what shows how a node does.

mod bare_root;
mod operator;
mod package;
mod package_scripts;
mod try_oxlet;
mod upgrade;
