//! Three servers on one ledger, 64 buyers, three seats and a pool, while something goes wrong.
//!
//! Each fault has a sale of its own ([`round::Round`]), judged by the independent checker from requests and answers
//! alone, and each test fails as well when its fault hit nothing.

mod buyers;
mod gate;
mod gate_connection;
mod late;
mod ledger;
mod moved;
mod processes;
mod replicas;
mod round;
mod together;
