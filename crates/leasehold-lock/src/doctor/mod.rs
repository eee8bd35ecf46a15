//! What a store's grants are really worth where it runs: reads its settings and explains them.
//!
//! Nothing here changes a store, and nothing here is needed to lock.

mod file_system;

pub use file_system::is_on_network;
