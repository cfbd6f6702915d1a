//! The grammar of a capability declaration: what a definition of runtime `wasm32-areev-io` says it needs.
//!
//! The runner checks the grammar at start and freezes the declaration verbatim; the broker decides by it.

use serde_json::{Map, Value};

use crate::text::shown;

/// Methods that a declaration may name, in any letter case.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/// Headers that belong to the broker.
const BROKER_HEADERS: [&str; 4] = ["authorization", "cookie", "host", "proxy-authorization"];
/// Most entries of one list.
const LIST_MAX: usize = 256;
/// Largest artifact, in bytes: a request body or an answer that goes by its digest.
pub const ARTIFACT_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Ceilings that an `artifacts` object may name.
const ARTIFACT_CEILINGS: [&str; 2] = ["max_request_bytes", "max_response_bytes"];

/// The declaration breaks the grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed capabilities: {problem}")]
pub struct MalformedCapabilities {
    problem: String,
}

type Checked = Result<(), MalformedCapabilities>;

/// Checks a declaration: a list of `{"http": {…}}` and at most one `{"blob": {"read": bool}}`.
///
/// # Errors
/// Names the entry, the value and the form that would be right.
pub fn check(declaration: &Value) -> Checked {
    let Some(entries) = declaration.as_array() else {
        return bad(format!("{} is no list", value_shown(declaration)));
    };
    if entries.len() > LIST_MAX {
        return bad(format!("{} entries, over {LIST_MAX}", entries.len()));
    }
    let mut blobs = 0;
    for entry in entries {
        let Some((kind, body)) =
            entry.as_object().filter(|entry| entry.len() == 1).and_then(|entry| entry.iter().next())
        else {
            return bad(format!("entry {} is no object with exactly one member", value_shown(entry)));
        };
        match kind.as_str() {
            "http" => check_http(body)?,
            "blob" => {
                blobs += 1;
                check_blob(body)?;
            }
            _ => return bad(format!("unknown kind {}; there are `http` and `blob`", shown(kind))),
        }
    }
    if blobs > 1 { bad("`blob` is declared more than once".to_owned()) } else { Ok(()) }
}

/// Whether a declaration that was checked says that blobs are read.
pub fn reads_blobs(declaration: &Value) -> bool {
    let mut entries = declaration.as_array().into_iter().flatten();
    entries.any(|entry| entry.pointer("/blob/read") == Some(&Value::Bool(true)))
}

/// Whether a declaration that was checked names hosts to call.
pub fn calls_out(declaration: &Value) -> bool {
    declaration.as_array().into_iter().flatten().any(|entry| entry.get("http").is_some())
}

fn check_blob(body: &Value) -> Checked {
    match body.as_object() {
        Some(members) if members.len() == 1 && members.get("read").is_some_and(Value::is_boolean) => Ok(()),
        _ => bad(format!("blob is {}; write {{\"read\": true}}", value_shown(body))),
    }
}

fn check_http(body: &Value) -> Checked {
    let Some(members) = body.as_object() else {
        return bad(format!("http is {}; give an object with `hosts`", value_shown(body)));
    };
    for name in members.keys() {
        if !matches!(name.as_str(), "hosts" | "methods" | "path_prefixes" | "credentials" | "headers" | "artifacts") {
            return bad(format!(
                "unknown http member {}; there are hosts, methods, path_prefixes, credentials, headers, artifacts",
                shown(name)
            ));
        }
    }
    if members.get("hosts").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return bad("http needs `hosts`, a list such as [\"https://api.example.com\"]".to_owned());
    }
    each(members, "hosts", check_host)?;
    each(members, "methods", check_method)?;
    each(members, "path_prefixes", check_path_prefix)?;
    each(members, "credentials", check_credential)?;
    each(members, "headers", check_header)?;
    members.get("artifacts").map_or(Ok(()), check_artifacts)
}

/// Ceilings for bodies that go by digest; at least one, none of zero or over [`ARTIFACT_BYTES_MAX`].
fn check_artifacts(value: &Value) -> Checked {
    let ceilings = value.as_object().filter(|ceilings| !ceilings.is_empty());
    let known = |(name, bytes): (&String, &Value)| {
        let within = bytes.as_u64().is_some_and(|bytes| (1..=ARTIFACT_BYTES_MAX).contains(&bytes));
        ARTIFACT_CEILINGS.contains(&name.as_str()) && within
    };
    match ceilings {
        Some(ceilings) if ceilings.iter().all(known) => Ok(()),
        _ => bad(format!(
            "artifacts is {}; write max_request_bytes, max_response_bytes or both, each from 1 to {ARTIFACT_BYTES_MAX}",
            value_shown(value)
        )),
    }
}

fn each(members: &Map<String, Value>, name: &str, check: impl Fn(&str) -> Checked) -> Checked {
    let Some(value) = members.get(name) else { return Ok(()) };
    let Some(items) = value.as_array() else {
        return bad(format!("`{name}` is {}, not a list", value_shown(value)));
    };
    if items.len() > LIST_MAX {
        return bad(format!("`{name}` has {} entries, over {LIST_MAX}", items.len()));
    }
    for item in items {
        match item.as_str() {
            Some(text) => check(text)?,
            None => return bad(format!("{} in `{name}` is not a text", value_shown(item))),
        }
    }
    Ok(())
}

/// `scheme://host[:port]`, http or https; `*.x.y` for subdomains; a trailing `/` is tolerated.
fn check_host(text: &str) -> Checked {
    let refuse =
        |why: &str| bad(format!("host {} {why}; write `https://host[:port]` or `https://*.domain.tld`", shown(text)));
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return refuse("does not begin with https:// or http://");
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#', '\\']) {
        return refuse("has a path");
    }
    if authority.contains('@') {
        return refuse("has user information");
    }
    let (host, port) = split_port(authority);
    if port.is_some_and(|port| port.is_empty() || port.len() > 5 || port.parse::<u16>().unwrap_or(0) == 0) {
        return refuse("has no valid port");
    }
    if host.starts_with('[') {
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        return match address.map(str::parse::<std::net::Ipv6Addr>) {
            Some(Ok(_)) => Ok(()),
            _ => refuse("is no IPv6 address"),
        };
    }
    let (wildcard, name) = host.strip_prefix("*.").map_or((false, host), |name| (true, name));
    if name.contains('*') {
        return refuse("has a `*` that is not the first label of at least three");
    }
    if wildcard && !name.contains('.') {
        return refuse("has fewer than two labels behind its `*.`");
    }
    if name.len() > 253 || !name.split('.').all(is_label) {
        return refuse("is no host name (write international names as `xn--…`)");
    }
    Ok(())
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    let after_brackets = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[after_brackets..].find(':') {
        Some(colon) => (&authority[..after_brackets + colon], Some(&authority[after_brackets + colon + 1..])),
        None => (authority, None),
    }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn check_method(text: &str) -> Checked {
    if METHODS.contains(&text.to_ascii_uppercase().as_str()) {
        return Ok(());
    }
    bad(format!("method {}; there are {}", shown(text), METHODS.join(", ")))
}

fn check_path_prefix(text: &str) -> Checked {
    if text.starts_with('/') && !text.chars().any(char::is_control) {
        return Ok(());
    }
    bad(format!("path prefix {} does not begin with `/`", shown(text)))
}

fn check_credential(text: &str) -> Checked {
    if !text.trim().is_empty() && text.len() <= 256 && !text.chars().any(char::is_control) {
        return Ok(());
    }
    bad(format!("credential {} is no name", shown(text)))
}

fn check_header(text: &str) -> Checked {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() || text.len() > 256 || !text.bytes().all(is_token) {
        return bad(format!("header {} is no HTTP header name", shown(text)));
    }
    if BROKER_HEADERS.contains(&text.to_ascii_lowercase().as_str()) {
        return bad(format!("header {} belongs to the broker", shown(text)));
    }
    Ok(())
}

fn value_shown(value: &Value) -> String {
    shown(&value.to_string())
}

fn bad(problem: String) -> Checked {
    Err(MalformedCapabilities { problem })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn declarations_of_the_grammar_are_accepted() {
        for declaration in [
            json!([]),
            json!([{"http": {"hosts": ["https://gmail.googleapis.com"], "methods": ["POST"], "credentials": ["gmail"]}}]),
            json!([{"http": {"hosts": ["http://localhost:8080", "https://*.zoho.com/", "https://[::1]:1", "https://10.0.0.1"]}}]),
            json!([{"http": {"hosts": ["https://a.b"], "artifacts": {"max_response_bytes": 33_554_432}}}]),
            json!([{"http": {"hosts": ["https://a.b"], "methods": ["get"], "path_prefixes": ["/v1"], "headers": ["X-A"]}},
                   {"http": {"hosts": ["https://c.d"]}}, {"blob": {"read": true}}]),
        ] {
            assert_eq!(check(&declaration), Ok(()), "{declaration}");
        }
    }

    #[test]
    fn everything_else_is_malformed_by_name() {
        let http = |member: &str, value: Value| {
            let mut body = json!({"hosts": ["https://a.b"]});
            body[member] = value;
            json!([{ "http": body }])
        };
        let mut cases = vec![
            json!({}),
            json!("x"),
            json!([1]),
            json!([{}]),
            json!([{"http": {}, "blob": {}}]),
            json!([{"ftp": {}}]),
            json!([{"http": []}]),
            json!([{"http": {}}]),
            json!([{"blob": {}}]),
            json!([{"blob": {"read": 1}}]),
            json!([{"blob": {"read": true}}, {"blob": {"read": true}}]),
            http("methods", json!(["TRACE"])),
            http("methods", json!("GET")),
            http("path_prefixes", json!(["v1"])),
            http("headers", json!(["Authorization"])),
            http("headers", json!(["a b"])),
            http("credentials", json!([""])),
            http("credentials", json!([7])),
            http("extra", json!(1)),
            http("artifacts", json!(true)),
            http("artifacts", json!({})),
            http("artifacts", json!({"max_bytes": 1})),
            http("artifacts", json!({"max_request_bytes": 0})),
            http("artifacts", json!({"max_request_bytes": 33_554_433})),
            http("artifacts", json!({"max_response_bytes": "1"})),
            http("hosts", json!([])),
            http("hosts", json!("https://a.b")),
        ];
        for host in [
            "https://*",
            "*",
            "gmail.com",
            "ftp://a.b",
            "https://a.b/path",
            "https://a.b?x",
            "https://u@a.b",
            "https://*.com",
            "https://a.*.b",
            "https://",
            "https://a..b",
            "https://größe.de",
            "https://a.b:0",
            "https://a.b:99999",
            "https://a.b:x",
            "https://a.b:",
            "https://[::1",
            "https://[zz]",
            "https://-a.b",
            "https://a b.c",
            "HTTPS://a.b",
        ] {
            cases.push(http("hosts", json!([host])));
        }
        for declaration in cases {
            let error = check(&declaration).unwrap_err().to_string();
            assert!(error.starts_with("malformed capabilities: "), "{declaration}: {error}");
            assert!(error.len() < 700, "{error}");
        }
    }
}
