//! The client against servers that misbehave by a script.

mod access;
mod asking;
mod connections;
mod credentials;
mod watches;
