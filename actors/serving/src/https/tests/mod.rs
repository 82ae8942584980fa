//! Laws of the server: who gets in, and what they get.

mod auth;
mod hostile;
mod http2;
mod journal;
mod logs;
mod paths;
mod rig;
mod streams;
mod websockets;
