//! The grammar of declared capabilities: what code says it needs.

use serde_json::{Map, Value};

use crate::catalogue::grain::{BadGrain, shown};

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/// Headers that belong to whoever makes the call.
const FORBIDDEN_HEADERS: [&str; 4] = ["authorization", "cookie", "host", "proxy-authorization"];

/// Checks a declaration: a list of objects with one member each, `http` or `blob`.
pub fn check(declared: &Value) -> Result<(), BadGrain> {
    let entries = declared.as_array().ok_or_else(|| bad("must be a list"))?;
    let mut blobs = 0;
    for entry in entries {
        let members = entry.as_object().filter(|members| members.len() == 1);
        let members = members.ok_or_else(|| bad("each entry is an object with one member, http or blob"))?;
        let (kind, body) = members.iter().next().expect("the object has one member");
        let body = body.as_object().ok_or_else(|| bad("http and blob are objects"))?;
        match kind.as_str() {
            "http" => http(body)?,
            "blob" => {
                blobs += 1;
                if blobs > 1 || body.len() != 1 || !body.get("read").is_some_and(Value::is_boolean) {
                    return Err(bad("blob is {\"read\": true} or {\"read\": false}, once"));
                }
            }
            unknown => return Err(bad(format!("{:?} is no capability: http, blob", shown(unknown.to_owned())))),
        }
    }
    Ok(())
}

fn http(body: &Map<String, Value>) -> Result<(), BadGrain> {
    let mut has_host = false;
    for (member, values) in body {
        let check: fn(&str) -> Option<&'static str> = match member.as_str() {
            "hosts" => host,
            "methods" => method,
            "path_prefixes" => path_prefix,
            "credentials" => credential,
            "headers" => header,
            unknown => return Err(bad(format!("{:?} is no member of http", shown(unknown.to_owned())))),
        };
        let values = values.as_array().ok_or_else(|| bad(format!("{member} must be a list")))?;
        has_host |= member == "hosts" && !values.is_empty();
        for value in values {
            let text = value.as_str().ok_or_else(|| bad(format!("{member} must be a list of texts")))?;
            if let Some(rule) = check(text) {
                return Err(bad(format!("{member} has {:?}: {rule}", shown(text.to_owned()))));
            }
        }
    }
    if has_host { Ok(()) } else { Err(bad("http needs at least one host")) }
}

fn host(text: &str) -> Option<&'static str> {
    let Some(authority) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return Some("a host is https://name or http://name, with :port if need be");
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !name.ends_with(':') && (!name.contains('[') || name.ends_with(']')) => {
            (name, Some(port))
        }
        _ => (authority, None),
    };
    if port.is_some_and(|port| {
        port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) || port.parse::<u16>().is_err()
    }) {
        return Some("the port must be 0 to 65535");
    }
    let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if bracketed.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()) {
        return None;
    }
    let plain = name.strip_prefix("*.").unwrap_or(name);
    if plain.is_empty() || !plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
    {
        return Some(
            "a name has letters, digits, hyphens and dots; *. before it stands for its subdomains, a bare * for nothing",
        );
    }
    None
}

fn method(text: &str) -> Option<&'static str> {
    let known = METHODS.iter().any(|method| text.eq_ignore_ascii_case(method));
    (!known).then_some("a method is GET, HEAD, POST, PUT, PATCH or DELETE")
}

fn path_prefix(text: &str) -> Option<&'static str> {
    (!text.starts_with('/')).then_some("a path prefix begins with /")
}

fn credential(text: &str) -> Option<&'static str> {
    text.trim().is_empty().then_some("a credential has a name")
}

fn header(text: &str) -> Option<&'static str> {
    let is_token =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if !is_token {
        return Some("a header's name is an HTTP token");
    }
    let forbidden = FORBIDDEN_HEADERS.iter().any(|name| text.eq_ignore_ascii_case(name));
    forbidden.then_some("this header belongs to whoever makes the call")
}

fn bad(rule: impl Into<String>) -> BadGrain {
    BadGrain::new("capabilities", rule)
}
