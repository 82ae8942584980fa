//! Attacks on a node from where its ports can be reached.

mod serving;
