//! Laws of the server: which callers are let in, and what they get.

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
