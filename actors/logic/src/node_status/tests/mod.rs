//! Laws of the node's status.
