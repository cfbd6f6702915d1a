//! Scheme, host and port: of a URL, and as the patterns that policies, grants and declarations are written in.

use std::{fmt, net::IpAddr};

/// Longest host name in bytes, as DNS has it.
const HOST_BYTES_MAX: usize = 253;

/// Longest word that is repeated as a scheme, in bytes.
const SCHEME_BYTES_MAX: usize = 8;

/// How a call travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Plain text; only where a grant spells it.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// The scheme as a URL has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URL of this scheme means when it names none.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A host in its one normal form: a lower-case A-label name without a trailing dot, or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name to be looked up.
    Name(String),
    /// An address literal.
    Address(IpAddr),
}

impl Host {
    /// Takes a host as the URL parser gave it.
    pub fn of(host: url::Host<&str>) -> Option<Self> {
        match host {
            url::Host::Domain(name) => Self::name(name),
            url::Host::Ipv4(address) => Some(Self::Address(address.into())),
            url::Host::Ipv6(address) => Some(Self::Address(address.into())),
        }
    }

    fn name(name: &str) -> Option<Self> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let sound = name.len() <= HOST_BYTES_MAX && name.split('.').all(|label| (1..=63).contains(&label.len()));
        sound.then(|| Self::Name(name.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Where one call goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The scheme.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

impl Origin {
    /// Host and, if it is not the scheme's own, port: what an audit record shows.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

/// `scheme://host[:port]` or `scheme://*.host[:port]`, in its normal form.
///
/// A pattern without a port means the scheme's own port alone. `*.x.y` means every name below `x.y` at any depth, never `x.y`
/// itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern {
    scheme: Scheme,
    host: HostPattern,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum HostPattern {
    Exactly(Host),
    /// The name behind `*.`.
    Below(String),
}

/// The text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} {rule}")]
pub struct BadPattern {
    /// The text, cut to 128 bytes; without what may be a secret: userinfo, path and query.
    pub found: String,
    /// Which rule it breaks and what to write.
    pub rule: &'static str,
}

/// What of a text is repeated.
fn shown(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if looks_like_a_scheme(scheme) => (scheme, rest),
        _ if text.contains(['@', '/', '?', '#', '\\']) => return "…".to_owned(),
        _ => return crate::refusal::cut(text, 128),
    };
    let (before, host) = rest.rsplit_once('@').map_or(("", rest), |(_, host)| ("…@", host));
    let (host, behind) = host.split_once(['/', '?', '#', '\\']).map_or((host, ""), |(host, _)| (host, "…"));
    format!("{scheme}://{before}{}{behind}", crate::refusal::cut(host, 128))
}

fn looks_like_a_scheme(word: &str) -> bool {
    (1..=SCHEME_BYTES_MAX).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// How far a pattern agrees with an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Another host.
    Nowhere,
    /// The host, by the same scheme but another port.
    OtherPort,
    /// The host, by the other scheme.
    OtherScheme,
    /// The origin.
    Here,
}

impl Pattern {
    /// Reads a pattern. Anything that would need repair is refused.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let bad = |rule| BadPattern { found: shown(text), rule };
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(("http", rest)) => (Scheme::Http, rest),
            _ => return Err(bad("does not begin with https:// or http://: write scheme://host[:port]")),
        };
        if !rest.is_ascii() {
            return Err(bad("has letters outside ASCII: write the host as A-labels (xn--…)"));
        }
        if rest.contains('@') {
            return Err(bad("has userinfo: write scheme://host[:port]"));
        }
        if rest.contains(['/', '?', '#', '\\', '%']) || rest.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(bad("has more than a host: write scheme://host[:port] without path, query or blanks"));
        }
        let (host, port) =
            split_port(rest).ok_or_else(|| bad("has no valid port: write 1 to 65535 or leave it out"))?;
        let host = match host.strip_prefix("*.") {
            Some(base) => match exact(base) {
                Some(Host::Name(name)) if name.contains('.') && !name.contains('*') => HostPattern::Below(name),
                _ => return Err(bad("is too wide: `*.` needs a name of at least two labels behind it")),
            },
            None if host.contains('*') => {
                return Err(bad("has a `*` that is not a whole first label: write *.example.com or the exact host"));
            }
            None => HostPattern::Exactly(exact(host).ok_or_else(|| bad("has no valid host in its normal form"))?),
        };
        Ok(Self { scheme, host, port: port.unwrap_or(scheme.default_port()) })
    }

    /// The pattern that means this origin alone.
    pub fn exactly(origin: &Origin) -> Self {
        Self { scheme: origin.scheme, host: HostPattern::Exactly(origin.host.clone()), port: origin.port }
    }

    /// The one origin that it means, unless it is a wildcard.
    pub fn only(&self) -> Option<Origin> {
        match &self.host {
            HostPattern::Exactly(host) => Some(Origin { scheme: self.scheme, host: host.clone(), port: self.port }),
            HostPattern::Below(_) => None,
        }
    }

    /// The scheme.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Compares with an origin.
    pub fn reach(&self, origin: &Origin) -> Reach {
        let host = match (&self.host, &origin.host) {
            (HostPattern::Exactly(host), found) => host == found,
            (HostPattern::Below(base), Host::Name(name)) => {
                name.strip_suffix(base.as_str()).is_some_and(|below| below.len() > 1 && below.ends_with('.'))
            }
            (HostPattern::Below(_), Host::Address(_)) => false,
        };
        if !host {
            Reach::Nowhere
        } else if self.scheme != origin.scheme {
            Reach::OtherScheme
        } else if self.port != origin.port {
            Reach::OtherPort
        } else {
            Reach::Here
        }
    }
}

/// The best that any of the patterns does for an origin.
pub fn reach(patterns: &[Pattern], origin: &Origin) -> Reach {
    patterns.iter().map(|pattern| pattern.reach(origin)).max().unwrap_or(Reach::Nowhere)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        match &self.host {
            HostPattern::Exactly(host) => write!(f, "{host}")?,
            HostPattern::Below(base) => write!(f, "*.{base}")?,
        }
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

fn split_port(rest: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match rest.find(']') {
        Some(end) => (&rest[..=end], &rest[end + 1..]),
        None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
    };
    if port.is_empty() {
        return Some((host, None));
    }
    let digits = port.strip_prefix(':')?;
    let plain = (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|port| plain && *port != 0)?;
    Some((host, Some(port)))
}

/// A host that is written in its normal form already, letter case aside.
fn exact(text: &str) -> Option<Host> {
    let parsed = url::Host::parse(text).ok()?;
    let normal = parsed.to_string();
    let host = match parsed {
        url::Host::Domain(name) => Host::name(&name)?,
        url::Host::Ipv4(address) => Host::Address(address.into()),
        url::Host::Ipv6(address) => Host::Address(address.into()),
    };
    (normal == text.to_ascii_lowercase() && !text.ends_with('.')).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Origin {
        crate::target::Target::parse(url).unwrap().origin().clone()
    }

    fn reaches(pattern: &str, url: &str) -> Reach {
        Pattern::parse(pattern).unwrap().reach(&origin(url))
    }

    #[test]
    fn a_wildcard_means_names_below_and_never_the_apex_or_a_lookalike() {
        let pattern = "https://*.googleapis.com";
        for url in ["https://gmail.googleapis.com/", "https://a.b.googleapis.com", "https://GMAIL.googleapis.com./x"] {
            assert_eq!(reaches(pattern, url), Reach::Here, "{url}");
        }
        for url in ["https://evilgoogleapis.com", "https://googleapis.com.evil.com", "https://googleapis.com"] {
            assert_eq!(reaches(pattern, url), Reach::Nowhere, "{url}");
        }
    }

    #[test]
    fn a_pattern_without_port_means_the_schemes_own_port_alone() {
        assert_eq!(reaches("https://api.good.com", "https://api.good.com:443/"), Reach::Here);
        assert_eq!(reaches("https://api.good.com:443", "https://api.good.com/"), Reach::Here);
        assert_eq!(reaches("https://api.good.com", "https://api.good.com:8443/"), Reach::OtherPort);
        assert_eq!(reaches("https://api.good.com", "http://api.good.com/"), Reach::OtherScheme);
        assert_eq!(reaches("http://[::1]:8080", "http://[0:0::1]:8080/"), Reach::Here);
    }

    #[test]
    fn patterns_that_are_too_wide_or_need_repair_are_refused() {
        for text in [
            "*",
            "https://*",
            "https://*.com",
            "https://a*.x.com",
            "https://*.*.x.com",
            "https://x.*.com",
            "https://*.",
            "https://api.good.com/",
            "https://api.good.com/v1",
            "https://user@api.good.com",
            "https://api.good.com:0",
            "https://api.good.com:99999",
            "https://api.good.com:+1",
            "https://api.good.com:",
            "api.good.com",
            "ftp://x.com",
            "https://аpi.good.com",
            "https://xn--example-.org",
            "https://2130706433",
            "https://0x7f.1",
            "https://api.good.com.",
            "https://",
            "https:// x.com",
            "https://a..com",
            "https://*.10.0.0.1",
            "HTTPS://x.com",
            "https://[::1",
            "https://api.good.com?x",
            "https://%61pi.good.com",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_refused_pattern_is_repeated_without_what_may_be_a_secret() {
        for (text, shown) in [
            ("ftp://x.com", "\"ftp://x.com\" does not begin with https://"),
            ("HTTPS://x.com", "\"HTTPS://x.com\" does not begin"),
            ("ws://u:sk-1@x.com/sk-1?sk-1", "\"ws://…@x.com…\" does not begin"),
            ("x.com", "\"x.com\" does not begin"),
            ("https://u:sk-1@x.com", "\"https://…@x.com\" has userinfo"),
            ("sk-1://x.com", "\"…\" does not begin"),
            ("mailto:sk-1@x.com", "\"…\" does not begin"),
        ] {
            let said = Pattern::parse(text).unwrap_err().to_string();
            assert!(said.starts_with(shown) && !said.contains("sk-1"), "{said}");
        }
    }

    #[test]
    fn a_pattern_is_shown_in_its_normal_form() {
        for (text, shown) in [
            ("https://API.Good.com:443", "https://api.good.com"),
            ("http://*.x.com:8080", "http://*.x.com:8080"),
            ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
        ] {
            assert_eq!(Pattern::parse(text).unwrap().to_string(), shown);
        }
    }
}
