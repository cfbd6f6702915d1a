//! `[credentials.NAME]` and `[vault]`: each kind has its own keys; a key of another kind is a mistake.

use std::{collections::BTreeMap, time::Duration};

use http::HeaderName;
use toml::{Spanned, de::DeValue};

use super::{Mentions, Reader, Section, words};
use crate::{
    capability::is_name,
    headers,
    policy::{ClientAuth, Credential, Flow, Kind, OAuth, SigV4, Source, VaultServer},
    refusal::quote,
    target::Target,
};

/// How long a value from a server or a command is used, unless `refresh` says otherwise.
pub const REFRESH_DEFAULT: Duration = Duration::from_secs(300);

/// The keys of every kind.
const COMMON: [&str; 5] = ["kind", "from", "hosts", "owner", "refresh"];
/// The keys that some kinds have.
const OF_KINDS: [&str; 13] = [
    "header",
    "user",
    "parameter",
    "token_url",
    "client_id",
    "client_secret_from",
    "client_auth",
    "scopes",
    "audience",
    "access_key_id",
    "region",
    "service",
    "session_token_from",
];

/// Which of them each kind has.
const KINDS: [(&str, &[&str]); 7] = [
    ("bearer", &[]),
    ("header", &["header"]),
    ("basic", &["user"]),
    ("query", &["parameter"]),
    ("oauth2_client_credentials", &["token_url", "client_id", "client_auth", "scopes", "audience"]),
    ("oauth2_refresh", &["token_url", "client_id", "client_secret_from", "client_auth", "scopes", "audience"]),
    ("aws_sigv4", &["access_key_id", "region", "service", "session_token_from"]),
];

/// Every credential.
pub fn all<'a>(
    reader: &'a Reader<'a>,
    value: &'a Spanned<DeValue<'a>>,
    mentions: &mut Mentions,
) -> BTreeMap<String, Credential> {
    let keys = [&COMMON[..], &OF_KINDS[..]].concat();
    let mut read = BTreeMap::new();
    for (name, value) in reader.tables("[credentials]", value) {
        let shown = if is_name(name) { name.to_owned() } else { quote(name) };
        let shown = format!("[credentials.{shown}]");
        if !is_name(name) {
            reader.bad(&shown, &value.span(), "the name may have 1 to 64 letters, digits, `_`, `-` and `.`");
        }
        let Some(section) = reader.section(shown, value, &keys) else {
            mentions.credentials.insert(name.to_owned());
            continue;
        };
        let table = Table::of(section);
        let (kind, source) = (table.kind(), table.source());
        match table.credential(name, kind.clone(), source.clone()) {
            Some(credential) => drop(read.insert(name.to_owned(), credential)),
            None => mentions.credential(name, kind.as_ref(), source.as_ref()),
        }
    }
    read
}

/// The Vault server.
pub fn vault<'a>(
    reader: &'a Reader<'a>,
    value: &'a Spanned<DeValue<'a>>,
    mentions: &mut Mentions,
) -> Option<VaultServer> {
    mentions.has_vault = true;
    let table = reader.section("[vault]".to_owned(), value, &["address", "token", "namespace"])?;
    let address = table.text("address", words::vault_address);
    let address = table.needed("address", address, "write \"https://vault.example.com:8200\"");
    mentions.vault_address = address.as_ref().map(|address| address.origin().clone());
    let token = table.text("token", words::near_source);
    let token = table.needed("token", token, "write \"env:VARIABLE\" or \"file:/absolute/path\"");
    let namespace = table.text("namespace", words::plain);
    Some(VaultServer { address: address?, token: token?, namespace })
}

/// One credential's table, with the word of its kind and the keys that go with it.
struct Table<'a> {
    table: Section<'a>,
    kind: Option<(&'static str, &'static [&'static str])>,
}

impl<'a> Table<'a> {
    /// Names what is wrong with the kind, and the keys that it does not have.
    fn of(table: Section<'a>) -> Self {
        let words = KINDS.map(|(kind, _)| kind).join(", ");
        // Not repeated: somebody may have put the value itself there.
        let kind = |text: &str| {
            let known = KINDS.iter().find(|(word, _)| *word == text).copied();
            known.ok_or_else(|| format!("no kind: write one of {words}"))
        };
        let kind = table.needed("kind", table.text("kind", kind), &format!("write one of {words}"));
        let read = Self { table, kind };
        if let Some((kind, _)) = read.kind {
            for key in OF_KINDS.into_iter().filter(|key| read.table.has(key) && !read.is_own(key)) {
                read.table.bad(key, format!("is no key of kind {kind}: leave it out"));
            }
        }
        read
    }

    /// Whether the kind has the key; every key may be one of a kind that is not known.
    fn is_own(&self, key: &str) -> bool {
        self.kind.is_none_or(|(_, keys)| keys.contains(&key))
    }

    /// A text of a kind's own. One that is no key of the kind is not looked at.
    fn own<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.is_own(key).then(|| self.table.text(key, read))?
    }

    fn source(&self) -> Option<Source> {
        let source = self.table.text("from", words::source);
        self.table.needed("from", source, "write \"env:VARIABLE\" or \"file:/path\"")
    }

    fn credential(&self, name: &str, kind: Option<Kind>, source: Option<Source>) -> Option<Credential> {
        let table = &self.table;
        let hosts = table.needed("hosts", table.filled("hosts", words::pattern), "say where this secret may go");
        let owner = table.text("owner", words::owner);
        let refresh = table.text("refresh", words::refresh);
        let asked = |source: &Source| matches!(source, Source::Vault { .. } | Source::Command(_));
        let (kind, source) = (kind?, source?);
        if table.has("refresh") && !std::iter::once(&source).chain(kind.further_source()).any(asked) {
            table.bad("refresh", "is for values from vault: and cmd: alone: leave the key out");
        }
        let (name, refresh) = (name.to_owned(), refresh.unwrap_or(REFRESH_DEFAULT));
        Some(Credential { name, kind, source, hosts: Some(hosts?), owner, refresh })
    }

    /// The kind with its own keys, each of which is looked at whatever the others are.
    fn kind(&self) -> Option<Kind> {
        let header = self.own("header", slot);
        let user = self.own("user", words::user);
        let parameter = self.own("parameter", words::parameter);
        let oauth = self.oauth();
        let sigv4 = self.sigv4();
        match self.kind?.0 {
            "bearer" => Some(Kind::Bearer),
            "header" => self.table.needed("header", header, "name the header, such as \"X-Api-Key\"").map(Kind::Header),
            "basic" => Some(Kind::Basic(user)),
            "query" => {
                let hint = "name the parameter, such as \"api_key\"";
                self.table.needed("parameter", parameter, hint).map(Kind::Query)
            }
            "oauth2_client_credentials" => oauth.of(self, Flow::ClientCredentials),
            "oauth2_refresh" => oauth.of(self, Flow::Refresh),
            _ => sigv4.of(self),
        }
    }

    fn oauth(&self) -> OAuthKeys {
        let auth = |text: &str| match text {
            "basic" => Ok(ClientAuth::Basic),
            "body" => Ok(ClientAuth::Body),
            _ => Err("write basic (in Authorization) or body (in the form)".to_owned()),
        };
        OAuthKeys {
            token_url: self.own("token_url", words::token_url),
            client_id: self.own("client_id", words::plain),
            client_secret: self.own("client_secret_from", words::source),
            client_auth: self.own("client_auth", auth),
            scopes: self.is_own("scopes").then(|| self.table.filled("scopes", words::scope)).flatten(),
            audience: self.own("audience", words::plain),
        }
    }

    fn sigv4(&self) -> SigV4Keys {
        SigV4Keys {
            access_key_id: self.own("access_key_id", words::label),
            region: self.own("region", words::place),
            service: self.own("service", words::place),
            session_token: self.own("session_token_from", words::source),
        }
    }
}

/// The keys of the two OAuth kinds, as far as they could be read.
struct OAuthKeys {
    token_url: Option<Target>,
    client_id: Option<String>,
    client_secret: Option<Source>,
    client_auth: Option<ClientAuth>,
    scopes: Option<Vec<String>>,
    audience: Option<String>,
}

impl OAuthKeys {
    fn of(self, table: &Table<'_>, flow: Flow) -> Option<Kind> {
        let token_url = table.table.needed("token_url", self.token_url, "the token endpoint, https://…");
        let client_id = table.table.needed("client_id", self.client_id, "the client's id");
        Some(Kind::OAuth(Box::new(OAuth {
            flow,
            token_url: token_url?,
            client_id: client_id?,
            client_secret: self.client_secret,
            client_auth: self.client_auth.unwrap_or(ClientAuth::Basic),
            scopes: self.scopes.unwrap_or_default(),
            audience: self.audience,
        })))
    }
}

/// The keys of a signature, as far as they could be read.
struct SigV4Keys {
    access_key_id: Option<String>,
    region: Option<String>,
    service: Option<String>,
    session_token: Option<Source>,
}

impl SigV4Keys {
    fn of(self, table: &Table<'_>) -> Option<Kind> {
        let access_key_id = table.table.needed("access_key_id", self.access_key_id, "the access key's id");
        let region = table.table.needed("region", self.region, "such as \"eu-central-1\"");
        let service = table.table.needed("service", self.service, "such as \"s3\" or \"execute-api\"");
        let session_token = self.session_token;
        Some(Kind::SigV4(SigV4 { access_key_id: access_key_id?, region: region?, service: service?, session_token }))
    }
}

fn slot(text: &str) -> Result<HeaderName, String> {
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(slot) if slot == http::header::AUTHORIZATION || !headers::is_brokers(slot.as_str()) => Ok(slot),
        Ok(_) => Err("this header is the broker's own: it cannot carry a credential".to_owned()),
        Err(_) => Err("no header name".to_owned()),
    }
}
