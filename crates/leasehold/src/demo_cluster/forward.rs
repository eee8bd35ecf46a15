//! One address for all replicas: passes connections on to them in turn, and past those that are gone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// A replica on this machine that takes longer is not there.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
const BACKLOG: u32 = 1024;

/// An address that is ours; nobody can connect to it yet.
pub(super) struct Reserved {
    socket: TcpSocket,
    pub(super) address: SocketAddr,
}

/// A forwarder. Dropping it closes the address; what was passed on goes on.
pub(super) struct Forwarder {
    task: JoinHandle<()>,
}

impl Reserved {
    pub(super) fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address).with_context(|| format!("cannot listen on {address}"))?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Lets everybody in.
    pub(super) fn open(self, replicas: Vec<SocketAddr>) -> anyhow::Result<Forwarder> {
        let listener =
            self.socket.listen(BACKLOG).with_context(|| format!("cannot listen on {}", self.address))?;
        Ok(Forwarder { task: tokio::spawn(forward(listener, replicas.into())) })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(listener: TcpListener, replicas: Arc<[SocketAddr]>) {
    let mut turn = 0;
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Out of descriptors, for example: some will be given back.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        turn = (turn + 1) % replicas.len();
        tokio::spawn(pass_on(client, Arc::clone(&replicas), turn));
    }
}

/// To the replica whose turn it is, or the next one that is there. Without any, the connection ends.
async fn pass_on(mut client: TcpStream, replicas: Arc<[SocketAddr]>, turn: usize) {
    for step in 0..replicas.len() {
        let replica = replicas[(turn + step) % replicas.len()];
        let connected = tokio::time::timeout(CONNECT_TIME_MAX, TcpStream::connect(replica)).await;
        if let Ok(Ok(mut server)) = connected {
            let _ = client.set_nodelay(true);
            let _ = server.set_nodelay(true);
            // However it ends, both ends are closed.
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A server that says its number to everybody.
    async fn server(number: u8) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                client.write_all(&[number]).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn connections_go_to_all_in_turn_and_past_the_dead() {
        let reserved = Reserved::new("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = reserved.address;
        assert!(TcpStream::connect(address).await.is_err(), "nobody can connect before it is open");
        let dead = Reserved::new("127.0.0.1:0".parse().unwrap()).unwrap();
        let _forwarder = reserved.open(vec![server(1).await, dead.address, server(2).await]).unwrap();
        let mut heard = [0; 3];
        for _ in 0..6 {
            let mut number = [0];
            TcpStream::connect(address).await.unwrap().read_exact(&mut number).await.unwrap();
            heard[usize::from(number[0])] += 1;
        }
        assert_eq!(heard, [0, 2, 4], "the third has the turns of the second");
    }
}
