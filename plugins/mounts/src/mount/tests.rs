//! Real mounts, in folders of the tests.
