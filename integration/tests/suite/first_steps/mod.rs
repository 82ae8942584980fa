//! What a newcomer meets: `make run`, and the package.

mod bare_root;
mod package;
mod try_oxlet;
