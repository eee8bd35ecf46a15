//! Ports of this machine that nobody uses at the moment.

use std::net::TcpListener;

use anyhow::Context;

/// So many ports, all different.
pub(super) fn free<const COUNT: usize>() -> anyhow::Result<[u16; COUNT]> {
    // All are open at once: one that was closed could be given again.
    let mut listeners = Vec::with_capacity(COUNT);
    let mut ports = [0; COUNT];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
