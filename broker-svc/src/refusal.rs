//! Why a call was not made or has no answer: a stable reason code and a text that names what to change.

/// What kind of trouble it is: it decides the HTTP status and the gRPC code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The request itself is wrong.
    Malformed,
    /// The token is missing, wrong or dead.
    Token,
    /// Policy, declaration or grant does not allow it.
    Policy,
    /// The effect's calls are spent.
    Calls,
    /// The request is over a size bound.
    RequestSize,
    /// The answer is over its size bound.
    AnswerSize,
    /// The broker is at a bound of its own; another time it may work.
    Busy,
    /// The upstream failed.
    Upstream,
    /// Time ran out.
    Deadline,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal / $class:ident,)+) => {
        /// Reason codes, as audit records and metrics carry them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Why { $($(#[doc = $doc])+ $name,)+ }

        impl Why {
            /// Every reason, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The stable code.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }

            /// The kind of trouble.
            pub const fn class(self) -> Class {
                match self { $(Self::$name => Class::$class,)+ }
            }
        }
    };
}

reasons! {
    /// No token, one that is not ours, or a bent one.
    TokenInvalid = "token_invalid" / Token,
    /// The token came in more than one place.
    TokenRepeated = "token_repeated" / Token,
    /// The token's time is over.
    TokenExpired = "token_expired" / Token,
    /// The token's effect or run is over.
    TokenRevoked = "token_revoked" / Token,
    /// The token was minted by another replica.
    TokenElsewhere = "token_elsewhere" / Token,
    /// Too many wrong tokens are sent.
    AuthLimited = "auth_limited" / Busy,
    /// The token speaks of another effect than it was minted for.
    TokenBindingMismatch = "token_binding_mismatch" / Policy,
    /// The body of the request is over its bound.
    RequestTooLarge = "request_too_large" / RequestSize,
    /// The request is not the JSON document that the door takes.
    MalformedRequest = "malformed_request" / Malformed,
    /// A header's name or value cannot be sent.
    InvalidHeader = "invalid_header" / Malformed,
    /// A response header was asked for that is never returned.
    ResponseHeaderNotAllowed = "response_header_not_allowed" / Malformed,
    /// The URL cannot be taken as it is.
    InvalidUrl = "invalid_url" / Malformed,
    /// The URL carries a user name or password.
    UserinfoNotAllowed = "userinfo_not_allowed" / Malformed,
    /// The scheme is not https, nor an http that a grant spells.
    SchemeNotAllowed = "scheme_not_allowed" / Policy,
    /// The host is not in the egress policy, the declaration or the grant.
    HostNotAllowed = "host_not_allowed" / Policy,
    /// The method is not in the declaration or the grant.
    MethodNotAllowed = "method_not_allowed" / Policy,
    /// The path is under none of the declared prefixes.
    PathNotAllowed = "path_not_allowed" / Policy,
    /// The header belongs to the broker or is not declared.
    HeaderNotAllowed = "header_not_allowed" / Policy,
    /// The query parameter is a credential's slot.
    ParameterNotAllowed = "parameter_not_allowed" / Policy,
    /// The host grants the tool nothing.
    ToolNotGranted = "tool_not_granted" / Policy,
    /// Declaration or grant names no ceiling for artifacts, or the door has none.
    ArtifactNotAllowed = "artifact_not_allowed" / Policy,
    /// The credential is not in the declaration.
    CredentialNotDeclared = "credential_not_declared" / Policy,
    /// The credential does not exist or is not granted to the tool.
    CredentialNotGranted = "credential_not_granted" / Policy,
    /// The credential may not go to this host.
    CredentialHostMismatch = "credential_host_mismatch" / Policy,
    /// The credential belongs to another principal than the run's.
    CredentialOwnerMismatch = "credential_owner_mismatch" / Policy,
    /// The credential's value cannot be read now.
    CredentialUnavailable = "credential_unavailable" / Upstream,
    /// The effect has made all its calls.
    CallsExhausted = "calls_exhausted" / Calls,
    /// Too many calls or bytes in flight.
    Busy = "busy" / Busy,
    /// The tool's grant has made the calls of its rate.
    RateExceeded = "rate_exceeded" / Busy,
    /// A redirect would repeat a body or a secret to another origin, or there are too many.
    RedirectRefused = "redirect_refused" / Upstream,
    /// The runner did not record the call.
    AuditUnavailable = "audit_unavailable" / Upstream,
    /// The address is private, local, reserved or a metadata service.
    PrivateAddress = "private_address" / Policy,
    /// The name has no address.
    ResolveFailed = "resolve_failed" / Upstream,
    /// No connection.
    ConnectFailed = "connect_failed" / Upstream,
    /// The exchange broke.
    UpstreamFailed = "upstream_failed" / Upstream,
    /// The answer's body is compressed.
    EncodedBody = "encoded_body" / Upstream,
    /// The answer is over its bound.
    ResponseTooLarge = "response_too_large" / AnswerSize,
    /// The call took too long.
    DeadlineExceeded = "deadline_exceeded" / Deadline,
    /// The token's effect or run ended after the call was sent: whether it was done is not known.
    CallCut = "call_cut" / Deadline,
    /// The caller went away before its answer.
    CallerGone = "caller_gone" / Deadline,
}

/// One refusal or failure. The text is for the caller: never a secret, a resolved address or another tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// The reason.
    pub why: Why,
    /// What to change.
    pub text: String,
}

impl Refusal {
    /// Makes one.
    pub fn new(why: Why, text: impl Into<String>) -> Self {
        Self { why, text: text.into() }
    }
}

/// At most `max` bytes of a text, whole characters.
pub fn cut(text: &str, max: usize) -> String {
    text[..text.floor_char_boundary(max)].to_owned()
}

/// A caller's word as it may be repeated to it: quoted, escaped, at most 64 bytes of it.
pub fn quote(text: &str) -> String {
    let shown = cut(text, 64);
    if shown.len() < text.len() { format!("{shown:?}…") } else { format!("{shown:?}") }
}
