//! A native blob with egress: it reaches the broker's door, and no other host, address, port or protocol.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use proto::sandbox::v1::{Cancel, Egress, ExecuteRequest, Runtime, Start, execute_request::Message};
use serde_json::{Value, json};

use crate::{
    native::message,
    native_hostile::{compiled, stand},
    rig::{Rig, start, until},
};

/// Where the broker's door stands in, and a listener on the same port of another of this machine's addresses.
fn door_and_neighbour() -> (TcpListener, TcpListener) {
    loop {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = door.local_addr().unwrap().port();
        if let Ok(neighbour) = TcpListener::bind(("127.0.0.2", port)) {
            return (door, neighbour);
        }
    }
}

/// An address of this machine that others see, as the system would send from; nothing is sent.
fn own_address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // A machine without a network is asked about an address that nobody has.
    let found = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    found.map_or_else(|_| "192.0.2.1".to_owned(), |address| address.ip().to_string())
}

fn with_egress(message: Start, url: String) -> Start {
    Start { egress: Some(Egress { token: "t0".to_owned(), url, ..Egress::default() }), ..message }
}

async fn said(rig: &Rig, message: Start) -> Value {
    let outcome = rig.execute(message).await.unwrap().0;
    serde_json::from_str(&outcome.output_json).unwrap_or_else(|_| panic!("{outcome:?}"))
}

const TRIES: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#define BYTES 1000000
static int dial(const char *host, int port) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &to.sin_addr);
    return s >= 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0 ? s : -1;
}
static int dial6(const char *host, int port) {
    int s = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, host, &to.sin6_addr);
    return s >= 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0 ? s : -1;
}
int main(void) {
    char door[64], own[64], bytes[65536];
    int port, count;
    if (scanf("[\"%63[^\"]\",%d,\"%63[^\"]\"]", door, &port, own) != 3) return 9;
    /* A megabyte to the door and back, in pieces that do not fill what is between. */
    int s = dial(door, port);
    long echoed = 0;
    memset(bytes, 'x', sizeof bytes);
    for (long left = s < 0 ? 0 : BYTES; left > 0;) {
        int part = left < 50000 ? left : 50000;
        if (write(s, bytes, part) != part) break;
        for (int got = 0; got < part; got += count, echoed += count)
            if ((count = read(s, bytes, part - got)) <= 0) return 8;
        left -= part;
    }
    shutdown(s, SHUT_WR);
    int ended = s >= 0 && read(s, bytes, sizeof bytes) == 0;
    const char *hosts[] = {"127.0.0.2", "127.1.2.3", own, "192.0.2.77", "10.0.0.1", "169.254.169.254"};
    int others = 0, ports = 0, raw = 0;
    for (int i = 0; i < 6; i++) others += strcmp(hosts[i], door) != 0 && dial(hosts[i], port) >= 0;
    others += (dial6("::1", port) >= 0) + (dial6("2001:db8::7", port) >= 0) + (dial6("::ffff:127.0.0.2", port) >= 0);
    for (int other = 1; other < 65536; other += 1 + (other > 1024) * 97)
        ports += other != port && (dial(door, other) >= 0 || dial(own, other) >= 0);
    for (int protocol = 0; protocol < 256; protocol++)
        raw += (socket(AF_INET, SOCK_RAW, protocol) >= 0) + (socket(AF_INET6, SOCK_RAW, protocol) >= 0) +
               (socket(AF_PACKET, SOCK_RAW, protocol) >= 0) + (socket(AF_NETLINK, SOCK_RAW, protocol % 32) >= 0);
    printf("{\"echoed\":%ld,\"ended\":%d,\"others\":%d,\"ports\":%d,\"raw\":%d,\"datagrams\":%d}", echoed, ended, others,
           ports, raw, (socket(AF_INET, SOCK_DGRAM, 0) >= 0) + (socket(AF_INET6, SOCK_DGRAM, 0) >= 0));
    return 0;
}"#;

/// Says again what it hears, to everybody who comes.
fn echoes(door: TcpListener) {
    std::thread::spawn(move || {
        for caller in door.incoming() {
            let Ok(mut caller) = caller else { return };
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = caller.read(&mut bytes) {
                    if caller.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_with_egress_reaches_the_brokers_door_and_nothing_else() {
    let rig = Rig::native().await;
    if !stand(&rig, &["private_door", "landlock", "seccomp"]).await {
        return;
    }
    let (door, neighbour) = door_and_neighbour();
    let (port, own) = (door.local_addr().unwrap().port(), own_address());
    echoes(door);
    let uri = rig.put(&compiled(TRIES)).await;
    let input = json!(["127.0.0.1", port, own]).to_string();
    let message = start(&uri, Runtime::Native, &input);
    let nothing = json!({"echoed": 0, "ended": 0, "others": 0, "ports": 0, "raw": 0, "datagrams": 0});
    assert_eq!(said(&rig, message.clone()).await, nothing, "without egress");
    let mut only_the_door = nothing;
    (only_the_door["echoed"], only_the_door["ended"]) = (json!(1_000_000), json!(1));
    let message = with_egress(message, format!("http://127.0.0.1:{port}/"));
    assert_eq!(said(&rig, message).await, only_the_door);
    neighbour.set_nonblocking(true).unwrap();
    assert!(neighbour.accept().is_err(), "nobody came");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_on_an_address_of_the_network_is_found_at_that_address_and_the_host_behind_it_is_not() {
    let rig = Rig::native().await;
    let own = own_address();
    let Ok(door) = TcpListener::bind((own.as_str(), 0)) else { return };
    if !stand(&rig, &["private_door", "landlock", "seccomp"]).await {
        return;
    }
    let port = door.local_addr().unwrap().port();
    echoes(door);
    let uri = rig.put(&compiled(TRIES)).await;
    let message = start(&uri, Runtime::Native, &json!([own, port, "127.0.0.1"]).to_string());
    let said = said(&rig, with_egress(message, format!("http://{own}:{port}/"))).await;
    assert_eq!(
        said,
        json!({"echoed": 1_000_000, "ended": 1, "others": 0, "ports": 0, "raw": 0, "datagrams": 0}),
        "{own}"
    );
}

#[tokio::test]
async fn the_name_of_a_door_with_tls_means_the_blobs_own_address() {
    let rig = Rig::native().await;
    if !stand(&rig, &["private_door"]).await {
        return;
    }
    let script = r#"printf '"%s"' "$(getent ahostsv4 broker.example | head -n 1 | cut -d ' ' -f 1)""#;
    let plain = message(&rig, script, "null").await;
    assert_eq!(said(&rig, plain.clone()).await, json!(""));
    assert_eq!(said(&rig, with_egress(plain, "https://broker.example:7431/".to_owned())).await, json!("127.0.0.1"));
    // Its input comes to it as without a door, and its directory is empty.
    let echo = message(&rig, "cat; ls >&2; test -z \"$(ls)\"", "[1]").await;
    assert_eq!(said(&rig, with_egress(echo, "https://broker.example:7431/".to_owned())).await, json!([1]));
}

const HOLDS: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
    int port;
    if (scanf("%d", &port) != 1) return 9;
    for (int i = 0; i < 100; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
        if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&to, sizeof to) != 0) return 8;
    }
    for (;;) pause();
}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_has_sixteen_connections_at_once_and_none_when_it_has_ended() {
    const CONNECTIONS_MAX: usize = 16;
    let rig = Rig::native().await;
    if !stand(&rig, &["private_door"]).await {
        return;
    }
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = door.local_addr().unwrap().port();
    let (came, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (coming, leaving) = (Arc::clone(&came), Arc::clone(&left));
    std::thread::spawn(move || {
        for caller in door.incoming() {
            let Ok(caller) = caller else { return };
            coming.fetch_add(1, Ordering::SeqCst);
            let leaving = Arc::clone(&leaving);
            std::thread::spawn(move || wait_for_its_end(caller, &leaving));
        }
    });
    let uri = rig.put(&compiled(HOLDS)).await;
    let message = start(&uri, Runtime::Native, &port.to_string());
    let mut call = rig.begin(with_egress(message, format!("http://127.0.0.1:{port}/"))).await.unwrap();
    until("all that fit are through", || came.load(Ordering::SeqCst) == CONNECTIONS_MAX).await;
    call.requests.send(ExecuteRequest { message: Some(Message::Cancel(Cancel {})) }).await.unwrap();
    call.outcome().await;
    until("all are closed", || left.load(Ordering::SeqCst) == CONNECTIONS_MAX).await;
    assert_eq!(came.load(Ordering::SeqCst), CONNECTIONS_MAX, "no more came");
}

fn wait_for_its_end(mut caller: TcpStream, left: &AtomicUsize) {
    while let Ok(1..) = caller.read(&mut [0; 64]) {}
    left.fetch_add(1, Ordering::SeqCst);
}
