//! JSON lines over a stream: the transport of the servers that fencepost brings along itself (the
//! controller's memory store and the `builtin` lock server). It must not know what the lines say.

pub mod client;
pub mod server;
