//! The agent link on loopback TLS: the round trip of a trivial request, and the rate of a large
//! answer. Prints `figure NAME VALUE UNIT` lines; the target of the round trip's p50 is 250 µs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use wingman::wire::frame::Protocol;
use wingman::wire::framed::Framed;
use wingman::wire::peer::{Peer, Side};
use wingman::wire::rawkey::{self, LinkKey};
use wingman::wire::{Answer, Blob, BoxFuture, Call, Fault, Handler, Origin};

const WARM_UP: usize = 500;
const ROUNDS: usize = 5_000;
const BLOB_LEN: usize = 64 * 1024 * 1024;
const BODY_LEN_MAX: usize = 64 * 1024;
const ORIGIN: Origin = Origin::Server { epoch: 1 };

struct Echo;

impl Handler for Echo {
    fn call(&self, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        Box::pin(async move {
            let mut answer = Answer::of(&call.params)?;
            if call.method == "bench.blob" {
                answer.blob = Some(Blob {
                    content_type: "application/octet-stream".into(),
                    bytes: vec![7; BLOB_LEN].into(),
                    field: "bytes",
                });
            }
            Ok(answer)
        })
    }

    fn disconnected(&self, _origin: Origin) {}
}

/// Both ends of a live link, the server's first.
async fn link() -> (Peer, Peer) {
    let (server_key, agent_key) = (LinkKey::generate(), LinkKey::generate());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("an address");
    let acceptor = TlsAcceptor::from(rawkey::server_config(&server_key).expect("TLS"));
    let accepting = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("accept");
        stream.set_nodelay(true).expect("nodelay");
        let stream = acceptor.accept(stream).await.expect("handshake");
        let framed = Framed::new(stream, Protocol::V2, BODY_LEN_MAX);
        Peer::start(framed, Side::Accepting, ORIGIN, Arc::new(Echo)).0
    });
    let config = rawkey::client_config(&agent_key, server_key.public()).expect("TLS");
    let stream = TcpStream::connect(address).await.expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let connector = TlsConnector::from(config);
    let stream = connector
        .connect(rawkey::server_name(), stream)
        .await
        .expect("handshake");
    let framed = Framed::new(stream, Protocol::V2, BODY_LEN_MAX);
    let agent = Peer::start(framed, Side::Connecting, ORIGIN, Arc::new(Echo)).0;
    (accepting.await.expect("the server's end"), agent)
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len() - 1);
    sorted[index].as_secs_f64() * 1e6
}

#[tokio::main]
async fn main() {
    let (server, _agent) = link().await;
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        let call = Call::new("bench.echo", json!({"n": round}), ORIGIN);
        let started = Instant::now();
        server.request(call).await.expect("an answer");
        if round >= WARM_UP {
            times.push(started.elapsed());
        }
    }
    times.sort();
    println!(
        "figure request_round_trip_p50 {:.1} us",
        percentile(&times, 50)
    );
    println!(
        "figure request_round_trip_p99 {:.1} us",
        percentile(&times, 99)
    );
    let mut call = Call::new("bench.blob", json!({}), ORIGIN);
    call.timeout_ms = Some(0);
    let started = Instant::now();
    let blob = server.request(call).await.expect("an answer").blob;
    assert_eq!(blob.map(|blob| blob.bytes.len()), Some(BLOB_LEN));
    let rate = BLOB_LEN as f64 / started.elapsed().as_secs_f64() / 1e6;
    println!("figure blob_rate {rate:.0} MB/s");
}
