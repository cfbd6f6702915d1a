//! Where an answer sends its caller next, by which method, with what left. Pure: whether it may go there is decided elsewhere.

use http::{HeaderMap, header};
use url::Url;

use crate::{
    method::Method,
    refusal::{Refusal, Why},
    target::Target,
};

/// Most redirects of one call.
pub const REDIRECTS_MAX: usize = 10;

/// The next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// Where to.
    pub target: Target,
    /// Method.
    pub method: Method,
    /// Whether the body goes along.
    pub with_body: bool,
    /// Whether it is another origin: what was injected stays behind, for good.
    pub crossed: bool,
}

/// The request that was answered.
#[derive(Debug, Clone, Copy)]
pub struct From<'a> {
    /// Where it went.
    pub target: &'a Target,
    /// Method.
    pub method: Method,
    /// Whether it had a body.
    pub had_body: bool,
    /// The query parameter that was injected: it is taken out of what the upstream may have copied.
    pub injected: Option<&'a str>,
}

/// The place that a redirect names; nothing where the answer is none.
pub fn location(status: u16, headers: &HeaderMap) -> Option<&[u8]> {
    match status {
        301 | 302 | 303 | 307 | 308 => headers.get(header::LOCATION).map(|value| value.as_bytes()),
        _ => None,
    }
}

/// The next request. 303, and 301 and 302 after a POST, turn into a GET without a body; the others keep method and body, but no
/// body goes to another origin.
pub fn next(from: From<'_>, status: u16, location: &[u8]) -> Result<Next, Refusal> {
    let target = resolve(from, location)?;
    let reading = match (status, from.method) {
        (_, Method::Get | Method::Head) => None,
        (303, _) | (301 | 302, Method::Post) => Some(Method::Get),
        _ => None,
    };
    let (method, with_body) = (reading.unwrap_or(from.method), reading.is_none() && from.had_body);
    let crossed = target.origin() != from.target.origin();
    if crossed && with_body {
        return Err(refused(format!("{} redirects the request's body to another origin", from.target.origin())));
    }
    Ok(Next { target, method, with_body, crossed })
}

/// What of a place stands before its query: a parameter that was injected may be copied there, and is taken out.
pub fn before_query(location: &str) -> &str {
    location.split('?').next().unwrap_or_default()
}

/// The refusal of a redirect that is not followed.
pub fn refused(text: String) -> Refusal {
    Refusal::new(Why::RedirectRefused, format!("{text}: call the place that is meant"))
}

fn resolve(from: From<'_>, location: &[u8]) -> Result<Target, Refusal> {
    let broken = || refused(format!("{} redirects to something that is no plain URL", from.target.origin()));
    let text = std::str::from_utf8(location).map_err(|_| broken())?;
    let plain = text.is_ascii() && !text.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'\\');
    if !plain || text.is_empty() {
        return Err(broken());
    }
    let mut url: Url = from.target.url().join(text).map_err(|_| broken())?;
    if let Some(injected) = from.injected {
        leave_out(&mut url, injected);
    }
    Target::parse(url.as_str())
}

fn leave_out(url: &mut Url, name: &str) {
    if !url.query_pairs().any(|(found, _)| found == name) {
        return;
    }
    let kept: Vec<_> =
        url.query_pairs().filter(|(found, _)| found != name).map(|(n, v)| (n.into_owned(), v.into_owned())).collect();
    url.set_query(None);
    if !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(method: Method, had_body: bool) -> (Target, Method, bool) {
        (Target::parse("https://a.com/v1/x?q=1").unwrap(), method, had_body)
    }

    fn to(method: Method, had_body: bool, status: u16, location: &str) -> Result<Next, Refusal> {
        let (target, method, had_body) = from(method, had_body);
        next(From { target: &target, method, had_body, injected: Some("key") }, status, location.as_bytes())
    }

    #[test]
    fn methods_and_bodies_follow_the_status() {
        for (method, status, then, with_body) in [
            (Method::Post, 301, Method::Get, false),
            (Method::Post, 302, Method::Get, false),
            (Method::Post, 303, Method::Get, false),
            (Method::Put, 303, Method::Get, false),
            (Method::Put, 302, Method::Put, true),
            (Method::Post, 307, Method::Post, true),
            (Method::Delete, 308, Method::Delete, true),
            (Method::Head, 303, Method::Head, true),
        ] {
            let found = to(method, true, status, "/y").unwrap();
            assert_eq!((found.method, found.with_body, found.crossed), (then, with_body, false), "{method} {status}");
        }
    }

    #[test]
    fn a_body_stays_at_its_origin() {
        for location in ["https://b.com/", "https://a.com:8443/", "http://a.com/"] {
            assert_eq!(to(Method::Post, true, 307, location).unwrap_err().why, Why::RedirectRefused, "{location}");
            assert!(to(Method::Post, false, 307, location).unwrap().crossed, "{location}");
        }
        assert!(!to(Method::Post, true, 307, "https://A.com:443/").unwrap().crossed);
    }

    #[test]
    fn places_are_relative_to_the_request_and_lose_the_injected_parameter() {
        for (location, url) in [
            ("/y", "https://a.com/y"),
            ("y", "https://a.com/v1/y"),
            ("../y", "https://a.com/y"),
            ("//b.com/y", "https://b.com/y"),
            ("?z=2", "https://a.com/v1/x?z=2"),
            ("/y?key=s&z=2", "https://a.com/y?z=2"),
            ("/y?%6bey=s", "https://a.com/y"),
            ("/y#f", "https://a.com/y"),
        ] {
            assert_eq!(to(Method::Get, false, 302, location).unwrap().target.url().as_str(), url, "{location}");
        }
    }

    #[test]
    fn what_is_no_plain_url_is_not_followed() {
        for location in ["", " /x", "/x\ty", "/x y", "\\\\b.com", "/é", "https://"] {
            assert_eq!(to(Method::Get, false, 302, location).unwrap_err().why, Why::RedirectRefused, "{location:?}");
        }
        for (location, why) in [
            ("ftp://b.com/", Why::SchemeNotAllowed),
            ("file:///etc/passwd", Why::SchemeNotAllowed),
            ("https://u:p@b.com/", Why::UserinfoNotAllowed),
        ] {
            assert_eq!(to(Method::Get, false, 302, location).unwrap_err().why, why, "{location}");
        }
    }
}
