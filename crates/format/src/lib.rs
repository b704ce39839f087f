//! Every byte Stonefold keeps.
//!
//! *Promises*: whatever is encoded decodes to the same; whatever was not encoded here fails to decode with an
//! error, and never with a panic or an allocation beyond the input's own size. Each format is drawn once, at the top
//! of its module. *Never*: does I/O. *May be used by*: engine (chunk headers only) and store.

pub mod chunk;
