//! Twenty-five kinds of bad input on every endpoint: each is refused as documented, and changes nothing.
//!
//! The kinds and their numbers are those of the research notes on reliability, section 5.1. Not here: 1 and 2
//! (API keys, which there are none of yet) and 24 (slow clients, which have a file of their own).

mod bodies;
mod framing;
mod identifiers;
mod numbers;
mod ownership;
mod protocol;
mod states;
mod venue;
