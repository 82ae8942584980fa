//! Placeholder until the first lines land.
