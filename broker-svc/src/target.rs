//! A URL, parsed once: this one value drives policy, credential, lookup, TLS name, `Host` and audit.

use url::Url;

use crate::{
    origin::{Host, Origin, Scheme},
    refusal::{Refusal, Why},
};

/// Longest URL in bytes.
pub const URL_BYTES_MAX: usize = 8 * 1024;

/// A URL that needed no repair. The fragment, which is never sent, and a host's trailing dot are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    origin: Origin,
}

impl Target {
    /// Parses a caller's URL and refuses what another parser could read differently.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > URL_BYTES_MAX {
            return Err(invalid("is longer than 8 KiB"));
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(invalid("has blanks, control characters or a backslash: percent-encode them"));
        }
        let (scheme, rest) = split_scheme(text)?;
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        if authority.contains('@') {
            return Err(Refusal::new(
                Why::UserinfoNotAllowed,
                "the URL carries userinfo (`user@`): leave it out, name a credential instead",
            ));
        }
        if authority.is_empty() || authority.contains('%') || !authority.is_ascii() {
            return Err(invalid("has no plain host: write it in ASCII letters or A-labels, without percent signs"));
        }
        let path = &rest[authority.len()..];
        let path = &path[..path.find(['?', '#']).unwrap_or(path.len())];
        if path.split('/').any(is_dot_segment) {
            return Err(invalid("has `.` or `..` in its path: write the path that is meant"));
        }
        Self::normal(text, scheme)
    }

    fn normal(text: &str, scheme: Scheme) -> Result<Self, Refusal> {
        let mut url = Url::parse(text).map_err(|cause| invalid(&format!("does not parse: {cause}")))?;
        url.set_fragment(None);
        let host = url.host().and_then(Host::of).ok_or_else(|| invalid("has no valid host"))?;
        let port = url.port().unwrap_or(scheme.default_port());
        if port == 0 {
            return Err(invalid("has port 0"));
        }
        if let Host::Name(name) = &host {
            url.set_host(Some(name)).map_err(|cause| invalid(&format!("has no valid host: {cause}")))?;
        }
        Ok(Self { url, origin: Origin { scheme, host, port } })
    }

    /// The URL to send.
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Scheme, host and port.
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The path as it is sent, without the query.
    pub fn path(&self) -> &str {
        self.url.path()
    }
}

/// Whether a path could mean another one to a server that decodes it: an encoded slash or backslash, once or twice encoded, or
/// a twice-encoded dot. Such a path is under no prefix.
pub fn hides_separators(path: &str) -> bool {
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        let code = rest.strip_prefix("25").unwrap_or(rest).get(..2).unwrap_or("").to_ascii_lowercase();
        if matches!(code.as_str(), "2f" | "5c") || (code == "2e" && rest.starts_with("25")) {
            return true;
        }
    }
    false
}

/// Whether a path segment is `.` or `..`, in any spelling, with or without `;parameters`.
pub fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".").replace("%3b", ";");
    matches!(plain.split(';').next(), Some("." | ".."))
}

fn split_scheme(text: &str) -> Result<(Scheme, &str), Refusal> {
    let absolute = "is not absolute: write https://host/path";
    let (word, rest) = text.split_once(':').ok_or_else(|| invalid(absolute))?;
    let is_scheme = word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !is_scheme {
        return Err(invalid(absolute));
    }
    let scheme = match word.to_ascii_lowercase().as_str() {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        _ => {
            let text = format!("scheme {} is not allowed: write https://", crate::refusal::quote(word));
            return Err(Refusal::new(Why::SchemeNotAllowed, text));
        }
    };
    match rest.strip_prefix("//") {
        Some(rest) if !rest.starts_with('/') => Ok((scheme, rest)),
        _ => Err(invalid("has no `//host` behind its scheme: write https://host/path")),
    }
}

fn invalid(rule: &str) -> Refusal {
    Refusal::new(Why::InvalidUrl, format!("the URL {rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(url: &str) -> Why {
        Target::parse(url).unwrap_err().why
    }

    #[test]
    fn userinfo_is_refused_and_never_dropped() {
        for url in
            ["https://api.good.com@evil.com/", "https://user:pw@api.good.com/", "https://api.good.com:443@evil.com"]
        {
            assert_eq!(why(url), Why::UserinfoNotAllowed, "{url}");
        }
        assert!(Target::parse("https://api.good.com/@x?a=b@c#d@e").is_ok());
    }

    #[test]
    fn what_would_need_repair_is_refused() {
        for url in [
            "",
            "//evil.com/x",
            "/x",
            "x",
            "https:/evil.com",
            "https:evil.com",
            "https:///evil.com",
            "https://",
            "https://a b.com/",
            " https://a.com",
            "https://a.com/\n",
            "https://a.com\\@b.com",
            "https://a.com/\u{7f}",
            "https://%61.com/",
            "https://аpi.good.com/",
            "https://ａ.com/",
            "https://xn--example-.org",
            "https://a..com/",
            "https://a.com:0/",
            "https://a.com:99999/",
            "https://a.com/../b",
            "https://a.com/b/%2E%2e/c",
            "https://a.com/.",
            "https://a.com/..;x/y",
            "https://[::1",
            "https://a.com../",
            "https://1.2.3.256/",
        ] {
            assert_eq!(why(url), Why::InvalidUrl, "{url}");
        }
        assert_eq!(why(&format!("https://a.com/{}", "x".repeat(URL_BYTES_MAX))), Why::InvalidUrl);
    }

    #[test]
    fn other_schemes_are_refused_by_name() {
        for url in ["ftp://a.com/", "file:///etc/passwd", "data:text/plain,x", "ws://a.com/", "javascript:1"] {
            assert_eq!(why(url), Why::SchemeNotAllowed, "{url}");
        }
    }

    #[test]
    fn every_spelling_of_an_address_is_that_address() {
        for url in
            ["https://2130706433/", "https://0x7f000001", "https://0x7f.1", "https://017700000001", "https://127.1"]
        {
            let host = Target::parse(url).unwrap().origin().host.clone();
            assert_eq!(host, Host::Address([127, 0, 0, 1].into()), "{url}");
        }
        let host = Target::parse("https://2852039166").unwrap().origin().host.clone();
        assert_eq!(host, Host::Address([169, 254, 169, 254].into()));
    }

    #[test]
    fn separators_that_hide_are_seen() {
        for path in ["/a%2fb", "/a%5Cb", "/a%252fb", "/a%252E%252e/b", "/%%2f"] {
            assert!(hides_separators(path), "{path}");
        }
        for path in ["/a/b", "/a%20b", "/%2", "/%25", "/é%2é"] {
            assert!(!hides_separators(path), "{path}");
        }
    }
}
