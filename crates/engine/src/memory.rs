//! An engine in memory.
#![allow(missing_docs)]
#[derive(Default)]
pub struct MemoryEngine(());
