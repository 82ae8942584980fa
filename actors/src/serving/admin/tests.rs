//! Laws of the admin socket.
