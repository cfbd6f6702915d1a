//! A small authorization server with the resource server that takes its tokens: client authentication, both grants, rotating
//! refresh tokens of which each is good once.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::{Condvar, Mutex};

use crate::upstream::{Upstream, echo, reply};

/// What the server knows its client by.
pub const CLIENT: (&str, &str) = ("client one", "client-canary-s:cret/8");
/// The refresh token that a person once consented to.
pub const CONSENT: &str = "refresh-canary-0";

/// Status, headers, body.
pub type Reply = (String, Vec<(String, String)>, Vec<u8>);

/// What the server does, and what it saw.
pub struct Behaviour {
    /// `expires_in`, as it stands in the answer; empty leaves it out.
    pub expires_in: Mutex<String>,
    /// While it is shut, token requests wait for their answers.
    pub gate: Gate,
    /// Answers every token request with this instead.
    pub broken: Mutex<Option<Reply>>,
    /// Tokens minted so far.
    pub minted: AtomicUsize,
    /// Requests that were refused for what they said.
    pub refused: Mutex<Vec<String>>,
    /// The one access token that the resource server takes, the one refresh token that is good.
    good: Mutex<(String, String)>,
    rotates: bool,
}

/// What requests wait at; open unless it is shut.
#[derive(Default)]
pub struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Shuts or opens it.
    pub fn shut(&self, shut: bool) {
        *self.shut.lock() = shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.opened.wait_while(&mut self.shut.lock(), |shut| *shut);
    }
}

/// Both servers, over TLS.
pub struct Servers {
    pub behaviour: Arc<Behaviour>,
    pub tokens: Upstream,
    pub resource: Upstream,
}

impl Servers {
    /// Begins with nothing minted. `rotates`: each refresh gives another refresh token and ends the old one.
    pub fn start(rotates: bool) -> Self {
        let behaviour = Arc::new(Behaviour {
            expires_in: Mutex::new("3600".to_owned()),
            gate: Gate::default(),
            broken: Mutex::new(None),
            minted: AtomicUsize::new(0),
            refused: Mutex::default(),
            good: Mutex::new((String::new(), CONSENT.to_owned())),
            rotates,
        });
        let (asked, shown) = (Arc::clone(&behaviour), Arc::clone(&behaviour));
        let tokens = Upstream::tls(move |request, out| asked.token(request, out));
        let resource = Upstream::tls(move |request, out| shown.resource(request, out));
        Self { behaviour, tokens, resource }
    }

    /// A policy with one credential `c`; `$v` is what is shown to the server.
    pub fn policy(&self, kind: &str) -> String {
        let (tokens, resource) = (self.tokens.https("127.0.0.1"), self.resource.https("127.0.0.1"));
        format!(
            r#"
            [policy]
            allow_hosts = ["{tokens}", "{resource}"]
            allow_private = ["127.0.0.0/8"]
            [credentials.c]
            kind = "{kind}"
            token_url = "{tokens}/token"
            client_id = "{}"
            from = "$a"
            hosts = ["{resource}"]
            [grants.t]
            credentials = ["c"]
            methods = ["GET", "POST"]
            hosts = ["{resource}"]
            "#,
            CLIENT.0
        )
    }

    /// Where the resource is.
    pub fn url(&self) -> String {
        self.resource.https("127.0.0.1")
    }

    /// Takes back the access token that is good now.
    pub fn withdraw(&self) {
        self.behaviour.good.lock().0 = "none".to_owned();
    }

    /// Tokens minted so far.
    pub fn minted(&self) -> usize {
        self.behaviour.minted.load(Ordering::SeqCst)
    }
}

impl Behaviour {
    fn token(&self, request: &[u8], out: &mut dyn Write) -> bool {
        self.gate.pass();
        if let Some((status, headers, body)) = &*self.broken.lock() {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            return reply(out, status, &headers, body);
        }
        let text = String::from_utf8_lossy(request).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let form: BTreeMap<String, String> = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let error = |code: &str| {
            self.refused.lock().push(format!("{code}: {text}"));
            let body = format!("{{\"error\":\"{code}\",\"error_description\":\"you said {body}\"}}");
            (false, body)
        };
        let (good, answer) = match self.grant(head, &form) {
            Ok(answer) => (true, answer),
            Err(code) => error(code),
        };
        let status = if good { "200 OK" } else { "400 Bad Request" };
        reply(out, status, &[("Content-Type", "application/json")], answer.as_bytes())
    }

    fn grant(&self, head: &str, form: &BTreeMap<String, String>) -> Result<String, &'static str> {
        if !head.starts_with("POST /token HTTP/1.1") || !head.contains("application/x-www-form-urlencoded") {
            return Err("invalid_request");
        }
        let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        if !(basic(head) || (field("client_id"), field("client_secret")) == CLIENT) {
            return Err("invalid_client");
        }
        let mut good = self.good.lock();
        match field("grant_type") {
            "client_credentials" => {}
            "refresh_token" if field("refresh_token") == good.1 => {}
            "refresh_token" => return Err("invalid_grant"),
            _ => return Err("unsupported_grant_type"),
        }
        let number = self.minted.fetch_add(1, Ordering::SeqCst) + 1;
        good.0 = format!("access-canary-{number}");
        let mut answer = format!("{{\"access_token\":\"{}\",\"token_type\":\"bearer\"", good.0);
        if field("grant_type") == "refresh_token" && self.rotates {
            good.1 = format!("refresh-canary-{number}");
            answer.push_str(&format!(",\"refresh_token\":\"{}\"", good.1));
        }
        let expires_in = self.expires_in.lock();
        if !expires_in.is_empty() {
            answer.push_str(&format!(",\"expires_in\":{expires_in}"));
        }
        Ok(answer + "}")
    }

    fn resource(&self, request: &[u8], out: &mut dyn Write) -> bool {
        let text = String::from_utf8_lossy(request);
        let good = self.good.lock().0.clone();
        if text.contains(&format!("\r\nauthorization: Bearer {good}\r\n")) {
            return echo(request, out);
        }
        reply(out, "401 Unauthorized", &[], b"no good token")
    }
}

/// Client authentication as RFC 6749 has it: both parts form-encoded before they are joined.
fn basic(head: &str) -> bool {
    let Some(line) = head.lines().find_map(|line| line.strip_prefix("authorization: Basic ")) else { return false };
    let Ok(pair) = STANDARD.decode(line) else { return false };
    let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    pair == format!("{}:{}", encode(CLIENT.0), encode(CLIENT.1)).into_bytes()
}
