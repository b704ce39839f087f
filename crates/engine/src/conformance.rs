//! One suite of behaviour for every engine.
