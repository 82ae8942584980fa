//! Laws of the server: who gets in, and what they get.

mod auth;
mod files;
mod hostile;
mod http2;
mod journal;
mod logs;
mod paths;
mod rig;
mod scrapes;
mod streams;
mod websockets;
