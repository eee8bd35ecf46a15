//! The web pages in a real browser: what buyers and operators see and do, on the real server.
//!
//! Every test ends with a look into the browser's own log: a script that failed, a violation of the page's policy or a
//! file that was not there fails it, whatever else went well.

mod accessibility;
mod buying;
mod cluster;
mod console;
mod house;
mod keyboard;
mod large;
mod paying;
mod pictures;
mod refusals;
mod restarts;
mod seat_map;
mod serving;
