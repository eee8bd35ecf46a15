//! Ports for servers, shared fairly among all tests that run on the machine.
//!
//! A port is needed before the server binds it and again when it comes back from a crash. In between nobody
//! listens on it, so asking the kernel what is free is not enough: a [`Port`] also holds a name in the
//! kernel's abstract socket space, which is free again the moment its process ends, however it ends.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range from which the kernel takes ports for outgoing connections: one of those would
/// otherwise sit on the port of a server that is down for a moment.
const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;
/// A node of a cluster talks to the others on this much above its port.
const BUS_OFFSET: u16 = 10_000;

const _: () = assert!(FIRST as u32 + COUNT as u32 + BUS_OFFSET as u32 <= 32_768);
const _: () = assert!(BUS_OFFSET >= COUNT);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A loopback port, with the port of a cluster's bus above it, that no other test takes.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _name: UnixListener,
}

impl Port {
    /// A free port; panics when there is none.
    pub(crate) fn lease() -> Self {
        // Neighbouring processes begin far apart, so they seldom ask for the same port.
        let begin = std::process::id().wrapping_mul(7919);
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let offset = begin.wrapping_add(step) % u32::from(COUNT);
            let number = FIRST + u16::try_from(offset).expect("below COUNT");
            if let Some(port) = Self::claim(number) {
                return port;
            }
        }
        panic!("no free port from {FIRST} to {}", FIRST + COUNT - 1)
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("leasehold-test-port-{number}")).ok()?;
        let name = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind(("127.0.0.1", number)).ok()?;
        TcpListener::bind(("127.0.0.1", number + BUS_OFFSET)).ok()?;
        Some(Self { number, _name: name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_to_one_at_a_time() {
        let first = Port::lease();
        assert!(Port::claim(first.number()).is_none());
        let number = first.number();
        drop(first);
        assert!(Port::claim(number).is_some());
    }

    #[test]
    fn a_port_in_use_is_not_given() {
        let port = Port::lease();
        let number = port.number();
        let _listener = TcpListener::bind(("127.0.0.1", number + BUS_OFFSET)).unwrap();
        drop(port);
        assert!(Port::claim(number).is_none());
    }
}
