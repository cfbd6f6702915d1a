//! What a definition declares that it needs. A declaration only narrows. Pure.

use serde::Deserialize;

use crate::{
    artifact::ArtifactCeilings,
    method::Method,
    origin::Pattern,
    refusal::{cut, quote},
    target::{hides_separators, is_dot_segment},
};

/// Largest declaration, in bytes of JSON.
pub const DECLARATION_BYTES_MAX: usize = 64 * 1024;
/// Most clauses in a declaration, and most entries in each list of a clause.
const ENTRIES_MAX: usize = 256;

/// A declaration: `[{"http": {…}}, …, {"blob": {"read": true}}]`. An empty one declares nothing and reaches nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    http: Vec<HttpClause>,
}

/// One `http` object: a set of whole tuples, never mixed with another object's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpClause {
    /// Where it may call.
    pub hosts: Vec<Pattern>,
    /// Methods; GET and HEAD where the declaration has none.
    pub methods: Vec<Method>,
    /// Path prefixes; every path where there are none.
    pub path_prefixes: Vec<String>,
    /// Names of credentials.
    pub credentials: Vec<String>,
    /// Names of request headers, lower case.
    pub headers: Vec<String>,
    /// How large artifacts may be; none may be where none is declared.
    pub artifacts: ArtifactCeilings,
}

/// The declaration is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed capabilities: {0}")]
pub struct BadDeclaration(String);

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Clause {
    Http(RawHttp),
    Blob(RawBlob),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHttp {
    hosts: Vec<String>,
    #[serde(default)]
    methods: Vec<String>,
    #[serde(default)]
    path_prefixes: Vec<String>,
    #[serde(default)]
    credentials: Vec<String>,
    #[serde(default)]
    headers: Vec<String>,
    artifacts: Option<ArtifactCeilings>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBlob {
    read: bool,
}

impl Declaration {
    /// Reads the JSON list. Unknown keys and kinds, duplicate keys and anything that would need repair are malformed.
    pub fn parse(json: &str) -> Result<Self, BadDeclaration> {
        if json.len() > DECLARATION_BYTES_MAX {
            return Err(bad(format!("{} bytes are over {DECLARATION_BYTES_MAX}", json.len())));
        }
        let clauses: Vec<Clause> = serde_json::from_str(json).map_err(|cause| bad(cut(&cause.to_string(), 256)))?;
        if clauses.len() > ENTRIES_MAX {
            return Err(bad(format!("more than {ENTRIES_MAX} objects")));
        }
        let (mut http, mut blobs) = (Vec::new(), 0);
        for clause in clauses {
            match clause {
                Clause::Http(raw) => http.push(HttpClause::check(raw)?),
                Clause::Blob(RawBlob { read: true }) if blobs == 0 => blobs += 1,
                Clause::Blob(RawBlob { read: true }) => return Err(bad("`blob` may stand once".to_owned())),
                Clause::Blob(RawBlob { read: false }) => return Err(bad("`blob` needs `\"read\": true`".to_owned())),
            }
        }
        Ok(Self { http })
    }

    /// The `http` objects.
    pub fn http(&self) -> &[HttpClause] {
        &self.http
    }
}

impl HttpClause {
    fn check(raw: RawHttp) -> Result<Self, BadDeclaration> {
        let lists = [&raw.hosts, &raw.methods, &raw.path_prefixes, &raw.credentials, &raw.headers];
        if lists.iter().any(|list| list.len() > ENTRIES_MAX) {
            return Err(bad(format!("a list has more than {ENTRIES_MAX} entries")));
        }
        let host = |text: &String| Pattern::parse(text).map_err(|cause| bad(format!("host {cause}")));
        let method = |text: &String| {
            Method::parse(text)
                .ok_or_else(|| bad(format!("method {}: write GET, HEAD, POST, PUT, PATCH or DELETE", quote(text))))
        };
        let mut methods = raw.methods.iter().map(method).collect::<Result<Vec<_>, _>>()?;
        if methods.is_empty() {
            methods.extend(Method::READING);
        }
        if let Some(prefix) = raw.path_prefixes.iter().find(|prefix| !is_prefix(prefix)) {
            let rule = "begin with / and write the plain path, without `..`, query or encoded separators";
            return Err(bad(format!("path prefix {}: {rule}", quote(prefix))));
        }
        if let Some(name) = raw.credentials.iter().find(|name| !is_name(name)) {
            return Err(bad(format!("credential {} is no name", quote(name))));
        }
        let header = |name: &String| {
            http::HeaderName::from_bytes(name.as_bytes())
                .map(|name| name.as_str().to_owned())
                .map_err(|_| bad(format!("header {} is no header name", quote(name))))
        };
        let artifacts = raw.artifacts.map(ArtifactCeilings::checked).transpose();
        Ok(Self {
            hosts: raw.hosts.iter().map(host).collect::<Result<_, _>>()?,
            methods,
            headers: raw.headers.iter().map(header).collect::<Result<_, _>>()?,
            artifacts: artifacts.map_err(|rule| bad(format!("artifacts: {rule}")))?.unwrap_or_default(),
            path_prefixes: raw.path_prefixes,
            credentials: raw.credentials,
        })
    }

    /// Whether the path is under one of the prefixes, on segment borders. A path that hides separators is under none.
    pub fn covers(&self, path: &str) -> bool {
        self.path_prefixes.is_empty()
            || (!hides_separators(path) && self.path_prefixes.iter().any(|prefix| is_under(path, prefix)))
    }
}

/// Whether a text can be the name of a credential: 1 to 64 letters, digits, `_`, `-` and `.`.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

fn is_prefix(prefix: &str) -> bool {
    prefix.starts_with('/')
        && prefix.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'\\'))
        && !prefix.split('/').any(is_dot_segment)
        && !hides_separators(prefix)
}

fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
}

fn bad(rule: String) -> BadDeclaration {
    BadDeclaration(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clause(json: &str) -> HttpClause {
        Declaration::parse(&format!("[{{\"http\":{json}}}]")).unwrap().http()[0].clone()
    }

    #[test]
    fn absent_methods_are_get_and_head() {
        assert_eq!(clause(r#"{"hosts":["https://a.com"]}"#).methods, Method::READING);
        assert_eq!(clause(r#"{"hosts":["https://a.com"],"methods":["POST"]}"#).methods, [Method::Post]);
    }

    #[test]
    fn an_empty_list_declares_nothing() {
        assert!(Declaration::parse("[]").unwrap().http().is_empty());
    }

    #[test]
    fn prefixes_match_on_segment_borders() {
        let clause = clause(r#"{"hosts":["https://a.com"],"path_prefixes":["/v1/users","/files/"]}"#);
        for path in ["/v1/users", "/v1/users/7", "/files/x"] {
            assert!(clause.covers(path), "{path}");
        }
        for path in ["/v1/users2", "/v1", "/", "/files", "/filesx", "/v1/users/a%2f..%2fadmin", "/v1/users%2F7"] {
            assert!(!clause.covers(path), "{path}");
        }
    }

    #[test]
    fn malformed_declarations_are_refused() {
        for json in [
            "",
            "{}",
            "null",
            "[null]",
            "[{}]",
            r#"[{"tcp":{"hosts":["https://a.com"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"]},"blob":{"read":true}}]"#,
            r#"[{"http":{}}]"#,
            r#"[{"http":{"hosts":"https://a.com"}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"hosts":["https://b.com"]}}]"#,
            r#"[{"http":{"hosts":["https://*"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"method":["POST"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"methods":["get"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"methods":["CONNECT"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"path_prefixes":["v1"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"path_prefixes":["/v1/../x"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"path_prefixes":["/v1?x"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"credentials":["a b"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"headers":["a: b"]}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"artifacts":{}}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"artifacts":{"max_request_bytes":33554433}}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"artifacts":{"max_response_bytes":33554433}}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"artifacts":{"max_bytes":1}}}]"#,
            r#"[{"http":{"hosts":["https://a.com"],"artifacts":{"max_response_bytes":-1}}}]"#,
            r#"[{"blob":{"read":true}},{"blob":{"read":true}}]"#,
            r#"[{"blob":{"read":false}}]"#,
            r#"[{"blob":{"read":true,"write":true}}]"#,
        ] {
            let text = Declaration::parse(json).map(|_| json).unwrap_err().to_string();
            assert!(text.starts_with("malformed capabilities"), "{text}");
        }
    }
}
