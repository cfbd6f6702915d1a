//! A field of a secret in Vault's KV store, version 2.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::Value;
use zeroize::Zeroizing;

use super::{Shape, Unreadable, read_near};
use crate::{
    method::Method,
    policy::Policy,
    send::{Courier, Own},
    target::Target,
};

/// Asks the server. Its answer is bounded and never repeated.
pub async fn read(
    policy: &Policy,
    courier: &Courier,
    path: &str,
    field: &str,
) -> Result<Zeroizing<Vec<u8>>, Unreadable> {
    let failed = |text: String| Unreadable::Server(text);
    let server = policy.vault.as_ref().ok_or_else(|| failed("there is no [vault] in the configuration".to_owned()))?;
    let token = read_near(&server.token, Shape::Token)
        .map_err(|cause| failed(format!("[vault] token ({}): {cause}", server.token)))?;
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("x-vault-token"), token.line(""));
    headers.insert(HeaderName::from_static("x-vault-request"), HeaderValue::from_static("true"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(namespace) = server.namespace.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(HeaderName::from_static("x-vault-namespace"), namespace);
    }
    let target =
        Target::parse(&format!("{}v1/{path}", server.address.url())).map_err(|refusal| failed(refusal.text))?;
    let shown = [token];
    let own = Own { target: &target, method: Method::Get, headers, body: Zeroizing::default(), shown: &shown };
    let answer = courier.own(policy, own).await.map_err(|refusal| failed(format!("Vault: {}", refusal.text)))?;
    let (status, body) = (answer.status, Zeroizing::new(answer.body));
    if status != 200 {
        return Err(failed(format!("Vault answered with status {status}")));
    }
    // The document is dropped without being wiped: it is parsed to borrow what it can, and its texts are short-lived.
    let document: Value = serde_json::from_slice(&body).map_err(|_| failed("Vault's answer is no JSON".to_owned()))?;
    match document.pointer("/data/data").and_then(|data| data.get(field)) {
        Some(Value::String(value)) => Ok(Zeroizing::new(value.as_bytes().to_vec())),
        Some(_) => Err(failed("the field is no text".to_owned())),
        None => Err(failed("the secret has no such field".to_owned())),
    }
}
