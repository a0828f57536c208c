//! A way to a server that can be cut: while it is, nothing gets through and nothing is closed.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards every connection to one server for as long as the test's runtime lives.
pub(crate) struct Proxy {
    pub(crate) endpoint: SocketAddr,
    cut: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let endpoint = listener.local_addr().expect("an address");
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let is_cut = is_cut.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else {
                        return;
                    };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::join!(
                        forward(from_client, to_server, is_cut.clone()),
                        forward(from_server, to_client, is_cut),
                    );
                });
            }
        });
        Self { endpoint, cut }
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(crate) fn heal(&self) {
        self.cut.send_replace(false);
    }
}

async fn forward(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut is_cut: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut bytes).await.unwrap_or(0);
        if is_cut.wait_for(|cut| !cut).await.is_err() {
            return;
        }
        if count == 0 || to.write_all(&bytes[..count]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}
