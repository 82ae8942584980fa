//! The node's object: registered, reconciled, kept true.
