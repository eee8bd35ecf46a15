//! Locks over encrypted connections, on real servers with certificates made for the test.
//!
//! All promises are kept over TLS as well, and a server that cannot show who it is gets neither a password nor
//! a question.

mod support;

mod epochs;
mod promises;
mod refusals;
mod sentinel;
