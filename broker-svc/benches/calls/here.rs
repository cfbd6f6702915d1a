//! A broker in this process, and the same client without it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use broker_svc::{
    audit::Door,
    broker::{Broker, CallBounds, Parts, Request},
    config::policy_of,
    in_force::InForce,
    resolve::SystemResolver,
    send::{Clients, Courier, Pinned, client_tls},
    target::Target,
    token::{Binding, Ceilings, Permit, TokenBounds, Tokens},
};

use crate::{ANSWER_BYTES, upstream};

/// The value of the credential; it does not matter here.
pub const TOKEN: &str = "a-token-of-the-bench";

/// A policy for one upstream, with so many grants. The credential is a file, as in a deployment.
pub fn policy(url: &str, grants: usize) -> String {
    let file = std::env::temp_dir().join(format!("areev-bench-token-{}", std::process::id()));
    std::fs::write(&file, TOKEN).unwrap();
    let others: String = (1..grants)
        .map(|n| format!("[grants.t{n}]\ncredentials = [\"a\"]\nhosts = [\"{url}\", \"https://h{n}.example.com\"]\n"))
        .collect();
    format!(
        "[policy]\nallow_hosts = [\"{url}\"]\nallow_private = [\"127.0.0.0/8\"]\n[credentials.a]\nkind = \"bearer\"\n\
         from = \"file:{}\"\nhosts = [\"{url}\"]\n[grants.t]\ncredentials = [\"a\"]\nhosts = [\"{url}\"]\n{others}",
        file.display()
    )
}

/// A broker with that policy.
pub fn broker(url: &str, grants: usize) -> Arc<Broker> {
    let tls = client_tls(Some(&upstream::authority())).unwrap();
    let in_force = InForce::open(policy_of(&policy(url, grants)).unwrap(), None).ok().unwrap();
    Arc::new(Broker::new(Parts {
        in_force,
        tokens: Tokens::new(Arc::new(SystemTime::now), TokenBounds::default()),
        courier: Courier::new(Box::new(SystemResolver), Clients::new(tls)),
        bounds: CallBounds::default(),
    }))
}

/// A token of an effect of its own.
pub fn token(broker: &Broker, node: usize) -> String {
    let binding = Binding { run_id: "r".into(), node: format!("n{node}"), tool_name: "t".into(), ..Binding::default() };
    let ceilings = Ceilings { max_calls: 1_000_000, max_response_bytes: 64 * 1024, ..Ceilings::default() };
    let permit = Permit::new(binding, None, ceilings, SystemTime::now() + Duration::from_secs(3000));
    broker.tokens.mint(permit).ok().unwrap().token
}

/// One call, the token looked at first.
pub async fn brokered(broker: &Broker, token: &str, url: &str) {
    let request = Request { url: url.to_owned(), credential: Some("a".into()), ..Request::default() };
    let done = broker.call(broker.admit(token, Door::Grpc).ok().unwrap(), request).await.ok().unwrap();
    assert_eq!(done.status, 200);
}

/// The client that the broker itself would use.
pub fn client(url: &str) -> reqwest::Client {
    let target = Target::parse(url).unwrap();
    let clients = Clients::new(client_tls(Some(&upstream::authority())).unwrap());
    let addresses = vec![[127, 0, 0, 1].into()];
    clients.get(&Pinned { origin: target.origin().clone(), credential: None, addresses }).ok().unwrap()
}

/// The same request without a broker, the answer read whole.
pub async fn direct(client: &reqwest::Client, url: &str) {
    let answer = client.get(url).header("authorization", format!("Bearer {TOKEN}")).send().await.unwrap();
    assert_eq!(answer.bytes().await.unwrap().len(), ANSWER_BYTES);
}
