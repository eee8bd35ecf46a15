//! The promises of a lock store, kept in memory.

use leasehold_lock::Memory;

leasehold_testkit::lock_suite!(async { ((), Memory::new()) });
