//! Against the double of the API server: what it makes of our patches.
