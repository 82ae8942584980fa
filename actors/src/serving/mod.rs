//! What the outside may ask: health, pods, and the operator's socket.
