//! The rules of one credential: how it is attached, where its value comes from, where it may go. Never a value.

use std::{fmt, path::PathBuf, time::Duration};

use http::{HeaderName, header};

use super::sorted;
use crate::{origin::Pattern, target::Target};

/// Headers that a signature by AWS' scheme consists of.
static SIGV4_SLOTS: [HeaderName; 4] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-security-token"),
    HeaderName::from_static("x-amz-content-sha256"),
];

/// The rules of one credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its name.
    pub name: String,
    /// How it is attached.
    pub kind: Kind,
    /// Where its value comes from.
    pub source: Source,
    /// Where it may go. Absent only for the command line's form: wherever grant and policy allow, over https.
    pub hosts: Option<Vec<Pattern>>,
    /// The only principal whose runs may spend it.
    pub owner: Option<String>,
    /// How long a value from a server or a command is used before it is asked for again.
    pub refresh: Duration,
}

/// How a credential is attached to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `Authorization: Bearer <value>`.
    Bearer,
    /// `<header>: <value>`.
    Header(HeaderName),
    /// `Authorization: Basic …`; without a user the value is `user:password`.
    Basic(Option<String>),
    /// A parameter of the URL's query.
    Query(String),
    /// A bearer token that an authorization server mints for the value.
    OAuth(Box<OAuth>),
    /// AWS Signature Version 4; the value is the secret access key.
    SigV4(SigV4),
}

/// How tokens are minted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuth {
    /// What the value is: a client's secret or a refresh token.
    pub flow: Flow,
    /// The token endpoint; https.
    pub token_url: Target,
    /// The client.
    pub client_id: String,
    /// The client's secret, where the value is a refresh token and the client has one.
    pub client_secret: Option<Source>,
    /// How the client says who it is.
    pub client_auth: ClientAuth,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// The `audience` parameter that some servers want.
    pub audience: Option<String>,
}

/// The two grants of OAuth 2 that need no person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// `client_credentials`.
    ClientCredentials,
    /// `refresh_token`.
    Refresh,
}

/// Where a client's secret stands in a token request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// In `Authorization`.
    Basic,
    /// In the form.
    Body,
}

/// What a signature is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigV4 {
    /// The access key's id; not a secret.
    pub access_key_id: String,
    /// Such as `eu-central-1`.
    pub region: String,
    /// Such as `s3` or `execute-api`.
    pub service: String,
    /// The session token of temporary keys.
    pub session_token: Option<Source>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An environment variable, read at start.
    Env(String),
    /// A file, read again when it changes.
    File(PathBuf),
    /// A field of a secret in Vault's KV store, version 2.
    Vault {
        /// The API's path behind `/v1/`, such as `secret/data/gmail`.
        path: String,
        /// The field.
        field: String,
    },
    /// What a program prints. The first entry is its absolute path.
    Command(Vec<String>),
}

impl Credential {
    /// Every place that its values come from.
    pub fn sources(&self) -> Vec<&Source> {
        std::iter::once(&self.source).chain(self.kind.further_source()).collect()
    }

    /// Whether its value is at hand in this process or its disk, so that reading it waits for nobody.
    pub fn is_local(&self) -> bool {
        let near = |source: &&Source| matches!(source, Source::Env(_) | Source::File(_));
        !matches!(self.kind, Kind::OAuth(_)) && self.sources().iter().all(near)
    }

    /// Its part of the policy's canonical text.
    pub(super) fn canonical(&self) -> serde_json::Value {
        let slots: Vec<_> = self.kind.slots().iter().map(ToString::to_string).collect();
        serde_json::json!({
            "kind": self.kind.to_string(),
            "slot": slots.join(","),
            "details": self.kind.details(),
            "source": self.source.to_string(),
            "hosts": self.hosts.as_deref().map(sorted),
            "owner": self.owner,
        })
    }
}

impl Kind {
    /// The headers that carry it: nobody else may set them.
    pub fn slots(&self) -> &[HeaderName] {
        match self {
            Self::Bearer | Self::Basic(_) | Self::OAuth(_) => &SIGV4_SLOTS[..1],
            Self::Header(name) => std::slice::from_ref(name),
            Self::Query(_) => &[],
            Self::SigV4(_) => &SIGV4_SLOTS,
        }
    }

    /// Where a second value comes from, where the kind has one.
    pub fn further_source(&self) -> Option<&Source> {
        match self {
            Self::OAuth(oauth) => oauth.client_secret.as_ref(),
            Self::SigV4(signer) => signer.session_token.as_ref(),
            Self::Bearer | Self::Header(_) | Self::Basic(_) | Self::Query(_) => None,
        }
    }

    /// The query parameter that carries it.
    pub fn parameter(&self) -> Option<&str> {
        match self {
            Self::Query(name) => Some(name),
            Self::Bearer | Self::Header(_) | Self::Basic(_) | Self::OAuth(_) | Self::SigV4(_) => None,
        }
    }

    /// The keys beside kind and source, as they stand in the file. Places, never values.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        let place = |source: &Option<Source>| source.as_ref().map(ToString::to_string);
        let keys = match self {
            Self::Bearer => vec![],
            Self::Header(name) => vec![("header", Some(name.to_string()))],
            Self::Basic(user) => vec![("user", user.clone())],
            Self::Query(parameter) => vec![("parameter", Some(parameter.clone()))],
            Self::OAuth(oauth) => vec![
                ("token_url", Some(oauth.token_url.url().to_string())),
                ("client_id", Some(oauth.client_id.clone())),
                ("client_secret_from", place(&oauth.client_secret)),
                ("client_auth", Some(oauth.client_auth.as_str().to_owned())),
                ("scopes", Some(oauth.scopes.join(" ")).filter(|scopes| !scopes.is_empty())),
                ("audience", oauth.audience.clone()),
            ],
            Self::SigV4(signer) => vec![
                ("access_key_id", Some(signer.access_key_id.clone())),
                ("region", Some(signer.region.clone())),
                ("service", Some(signer.service.clone())),
                ("session_token_from", place(&signer.session_token)),
            ],
        };
        keys.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

impl ClientAuth {
    /// The word in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Body => "body",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bearer => "bearer",
            Self::Header(_) => "header",
            Self::Basic(_) => "basic",
            Self::Query(_) => "query",
            Self::OAuth(oauth) => match oauth.flow {
                Flow::ClientCredentials => "oauth2_client_credentials",
                Flow::Refresh => "oauth2_refresh",
            },
            Self::SigV4(_) => "aws_sigv4",
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Vault { path, field } => write!(f, "vault:{path}#{field}"),
            Self::Command(arguments) => write!(f, "cmd:{}", arguments.join(" ")),
        }
    }
}
