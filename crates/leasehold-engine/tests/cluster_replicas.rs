//! Several servers on one ledger.
