//! Engines.
