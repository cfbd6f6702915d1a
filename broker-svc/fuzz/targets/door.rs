//! Any bytes at the HTTP door, with a good token wherever they say `$TOKEN`: an answer or a closed connection, and no call but to
//! where the token's tool may go.

#![no_main]

use std::{
    io,
    net::IpAddr,
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};

use broker_svc::{
    broker::{Broker, CallBounds, Parts},
    config::policy_of,
    egress_http::{DoorBounds, connection},
    in_force::InForce,
    resolve::Resolver,
    send::{Clients, Courier, client_tls},
    token::{Binding, Ceilings, Permit, TokenBounds, Tokens},
};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

/// Longest that one input may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The stream that takes the records, without which the door refuses.
const WATCHER: &str = "fuzz";
/// What stands for the token in an input.
const TOKEN: &[u8] = b"$TOKEN";

struct NoNames;

impl Resolver for NoNames {
    fn resolve<'a>(
        &'a self,
        name: &'a str,
    ) -> std::pin::Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        assert!(name.ends_with(".good.com"), "{name} is looked up");
        Box::pin(std::future::ready(Err(io::Error::other("there are no names"))))
    }
}

static BROKER: LazyLock<Arc<Broker>> = LazyLock::new(|| {
    let text = "[policy]\nallow_hosts = [\"https://*.good.com\"]\n[grants.t]\nmethods = [\"GET\", \"POST\"]\n";
    let policy = policy_of(text).expect("the policy is sound");
    Arc::new(Broker::new(Parts {
        in_force: InForce::open(policy, None).ok().expect("there is no credential to read"),
        tokens: Tokens::new(Arc::new(SystemTime::now), TokenBounds::default()),
        courier: Courier::new(Box::new(NoNames), Clients::new(client_tls(None).expect("the roots are built in"))),
        bounds: CallBounds::default(),
    }))
});

fn token() -> String {
    let binding = Binding { tool_name: "t".to_owned(), ..Binding::default() };
    let ceilings = Ceilings { max_request_bytes: 4096, ..Ceilings::MAX };
    let permit = Permit::new(binding, None, ceilings, SystemTime::now() + PATIENCE).watched_by(WATCHER.to_owned());
    BROKER.tokens.mint(permit).expect("the effect's former token ends").token
}

fn with_token(bytes: &[u8]) -> Vec<u8> {
    let Some(at) = bytes.windows(TOKEN.len()).position(|word| word == TOKEN) else { return bytes.to_vec() };
    [&bytes[..at], token().as_bytes(), &bytes[at + TOKEN.len()..]].concat()
}

fuzz_target!(|bytes: &[u8]| {
    let bytes = with_token(bytes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut watch = BROKER.watchers.open(WATCHER).expect("there is room for one stream");
        tokio::spawn(async move {
            while let Some(record) = watch.next().await {
                watch.settle(record.sequence, true);
            }
        });
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let served =
            tokio::spawn(connection(far, Arc::clone(&BROKER), DoorBounds::default(), CancellationToken::new()));
        let talk = async {
            let _may_be_closed = near.write_all(&bytes).await;
            let _may_be_closed = near.shutdown().await;
            let mut answer = Vec::new();
            let _may_be_closed = near.read_to_end(&mut answer).await;
            assert!(!answer.starts_with(b"HTTP/1.1 200"), "a call was made");
            served.await
        };
        tokio::time::timeout(PATIENCE, talk).await.expect("the door lets go").expect("the door does not panic");
    });
});
