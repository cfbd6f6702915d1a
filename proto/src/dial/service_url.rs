//! What the URL of a service may hold: where it is and nothing else.

use std::fmt;

use tonic::transport::Uri;

use super::DialError;

/// Most characters of a URL in an error.
const NAMED_CHARS_MAX: usize = 200;

/// Checks a URL; says whether it wants TLS.
///
/// # Errors
/// It is none of a service, or has a part for which there is no use. A password is not repeated.
pub(super) fn check(url: &str) -> Result<bool, DialError> {
    let named = || Named::of(url);
    if let Some(path) = url.strip_prefix("unix:") {
        return if path.trim_start_matches('/').is_empty() { Err(DialError::NoPath(named())) } else { Ok(false) };
    }
    let (secure, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err(DialError::Scheme(named())),
    };
    let extra = |what| Err(DialError::Extra { url: named(), what });
    // By the characters, wherever they are: no reading of the URL can then take a password for something else.
    if rest.contains('@') {
        return extra("a user name or password");
    }
    if rest.contains('#') {
        return extra("a fragment");
    }
    if rest.contains('?') {
        return extra("a query");
    }
    if rest.split_once('/').is_some_and(|(_, path)| !path.is_empty()) {
        return extra("a path");
    }
    match url.parse::<Uri>() {
        Ok(uri) if has_host(&uri) => Ok(secure),
        Ok(_) => Err(DialError::Scheme(named())),
        Err(cause) => Err(DialError::Refused { url: named(), cause: cause.to_string() }),
    }
}

/// A host, and a port that is one or none.
fn has_host(uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else { return false };
    !authority.host().is_empty() && (authority.port_u16().is_some() || authority.as_str() == authority.host())
}

/// A URL as an error may show it: without what comes before an `@`, and without query and fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named(String);

impl Named {
    pub(super) fn of(url: &str) -> Self {
        let shown = match url.rsplit_once('@') {
            Some((before, after)) => {
                let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
                let scheme = if matches!(scheme, "http" | "https") { format!("{scheme}://") } else { String::new() };
                format!("{scheme}…@{after}")
            }
            None => url.to_owned(),
        };
        let end = shown.find(['?', '#']).unwrap_or(shown.len());
        Self(shown[..end].chars().take(NAMED_CHARS_MAX).collect())
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_part_of_a_service_url_is_refused_by_name_and_without_the_secret() {
        for (url, words) in [
            ("http://user:s3cret@h:1", "a user name or password"),
            ("https://user:s3cret@h:1", "a user name or password"),
            ("http://user:s3cret/x@h:1", "a user name or password"),
            ("http://user:x@s3cret@h:1", "a user name or password"),
            ("ftp://user:s3cret@h:1", "no service URL"),
            ("user:s3cret@h:1", "no service URL"),
            ("http://h:1/?token=s3cret", "a query"),
            ("http://h:1?token=s3cret", "a query"),
            ("http://h:1/#s3cret", "a fragment"),
            ("http://h:1/a", "a path"),
            ("http://h:1//", "a path"),
            ("http://h:1/a%20\u{202e}", "a path"),
            ("http://", "cannot use"),
            ("http://:1", "no service URL"),
            ("http://h:x", "no service URL"),
            ("http://h:", "no service URL"),
            ("http://h:65536", "no service URL"),
            ("unix:", "a path"),
            ("unix:/", "a path"),
            ("unix://", "a path"),
        ] {
            let text = check(url).unwrap_err().to_string();
            assert!(text.contains(words) && !text.contains("s3cret") && !text.contains('\u{202e}'), "{url}: {text}");
        }
    }

    #[test]
    fn what_names_a_service_is_taken() {
        for url in ["http://h:1", "http://h:1/", "http://[::1]:1", "http://broker.areev.svc", "unix:/run/a b@c.sock"] {
            assert!(!check(url).unwrap(), "{url}");
        }
        assert!(check("https://h:1").unwrap());
    }
}
