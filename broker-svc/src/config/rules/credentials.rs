//! `[credentials.NAME]` and `[vault]`: each kind has its own keys; a key of another kind is a mistake.

use std::{collections::BTreeMap, time::Duration};

use http::HeaderName;
use serde::Deserialize;
use toml::Spanned;

use super::{BadRule, Reader, kept, words};
use crate::{
    capability::is_name,
    headers,
    policy::{ClientAuth, Credential, Flow, Kind, OAuth, SigV4, Source, VaultServer},
    refusal::quote,
};

/// How long a value from a server or a command is used, unless `refresh` says otherwise.
pub const REFRESH_DEFAULT: Duration = Duration::from_secs(300);

type Text = Option<Spanned<String>>;
type List = Option<Spanned<Vec<Spanned<String>>>>;

/// One table of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialTable {
    kind: Text,
    from: Text,
    hosts: List,
    owner: Text,
    refresh: Text,
    header: Text,
    user: Text,
    parameter: Text,
    token_url: Text,
    client_id: Text,
    client_secret_from: Text,
    client_auth: Text,
    scopes: List,
    audience: Text,
    access_key_id: Text,
    region: Text,
    service: Text,
    session_token_from: Text,
}

/// The table of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultTable {
    address: Text,
    token: Text,
    namespace: Text,
}

/// Which further keys each kind has. The first of a kind's keys that is missing or strange is named.
const KINDS: [(&str, &[&str]); 7] = [
    ("bearer", &[]),
    ("header", &["header"]),
    ("basic", &["user"]),
    ("query", &["parameter"]),
    ("oauth2_client_credentials", &["token_url", "client_id", "client_auth", "scopes", "audience"]),
    ("oauth2_refresh", &["token_url", "client_id", "client_secret_from", "client_auth", "scopes", "audience"]),
    ("aws_sigv4", &["access_key_id", "region", "service", "session_token_from"]),
];

impl Reader<'_> {
    /// Every credential.
    pub fn credentials(
        &self,
        tables: &BTreeMap<String, Spanned<CredentialTable>>,
        mistakes: &mut Vec<BadRule>,
    ) -> BTreeMap<String, Credential> {
        let read = |(name, table): (&String, &Spanned<CredentialTable>)| {
            let table = Table { reader: self, name, table };
            Some((name.clone(), kept(table.credential(), mistakes)?))
        };
        tables.iter().filter_map(read).collect()
    }

    /// The Vault server.
    pub fn vault(&self, table: Option<&Spanned<VaultTable>>) -> Result<Option<VaultServer>, BadRule> {
        let Some(spanned) = table else { return Ok(None) };
        let VaultTable { address, token, namespace } = spanned.get_ref();
        let needed = |key: &str, text: &Text, hint: &str| match text {
            Some(_) => Ok(()),
            None => Err(self.bad(&format!("[vault] {key}"), &spanned.span(), format!("missing: {hint}"))),
        };
        needed("address", address, "write \"https://vault.example.com:8200\"")?;
        needed("token", token, "write \"env:VARIABLE\" or \"file:/absolute/path\"")?;
        let namespace = self.one("[vault] namespace", namespace, words::plain)?;
        let address = self.one("[vault] address", address, words::vault_address)?;
        let token = self.one("[vault] token", token, words::near_source)?;
        Ok(address.zip(token).map(|(address, token)| VaultServer { address, token, namespace }))
    }
}

/// One credential's table under its name.
struct Table<'a> {
    reader: &'a Reader<'a>,
    name: &'a str,
    table: &'a Spanned<CredentialTable>,
}

impl Table<'_> {
    fn key(&self, key: &str) -> String {
        format!("[credentials.{}] {key}", self.name)
    }

    fn missing(&self, key: &str, hint: &str) -> BadRule {
        self.reader.bad(&self.key(key), &self.table.span(), format!("missing: {hint}"))
    }

    fn needed<T>(
        &self,
        key: &str,
        text: &Text,
        hint: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, BadRule> {
        self.reader.one(&self.key(key), text, read)?.ok_or_else(|| self.missing(key, hint))
    }

    fn credential(&self) -> Result<Credential, BadRule> {
        if !is_name(self.name) {
            let rule = "the name may have 1 to 64 letters, digits, `_`, `-` and `.`";
            return Err(self.reader.bad(&format!("[credentials.{}]", quote(self.name)), &self.table.span(), rule));
        }
        let raw = self.table.get_ref();
        let kind = self.kind()?;
        let from = "write \"env:VARIABLE\" or \"file:/path\"";
        let source = self.needed("from", &raw.from, from, words::source)?;
        let hosts = raw.hosts.as_ref().ok_or_else(|| self.missing("hosts", "say where this secret may go"))?;
        let credential = Credential {
            name: self.name.to_owned(),
            kind,
            source,
            hosts: Some(self.reader.filled(&self.key("hosts"), hosts, words::pattern)?),
            owner: self.reader.one(&self.key("owner"), &raw.owner, words::owner)?,
            refresh: self.reader.one(&self.key("refresh"), &raw.refresh, words::refresh)?.unwrap_or(REFRESH_DEFAULT),
        };
        let asked = |source: &&Source| matches!(source, Source::Vault { .. } | Source::Command(_));
        match &raw.refresh {
            Some(refresh) if !credential.sources().iter().any(asked) => {
                let rule = "is for values from vault: and cmd: alone: leave the key out";
                Err(self.reader.bad(&self.key("refresh"), &refresh.span(), rule))
            }
            _ => Ok(credential),
        }
    }

    fn kind(&self) -> Result<Kind, BadRule> {
        let raw = self.table.get_ref();
        let words: Vec<_> = KINDS.iter().map(|(kind, _)| *kind).collect();
        let Some(kind) = &raw.kind else {
            return Err(self.missing("kind", &format!("write one of {}", words.join(", "))));
        };
        let Some((_, keys)) = KINDS.iter().find(|(word, _)| word == kind.get_ref()) else {
            // Not repeated: somebody may have put the value itself there.
            let rule = format!("no kind: write one of {}", words.join(", "));
            return Err(self.reader.bad(&self.key("kind"), &kind.span(), rule));
        };
        self.no_strangers(kind.get_ref(), keys)?;
        match kind.get_ref().as_str() {
            "bearer" => Ok(Kind::Bearer),
            "header" => {
                let header = self.needed("header", &raw.header, "name the header, such as \"X-Api-Key\"", slot)?;
                Ok(Kind::Header(header))
            }
            "basic" => Ok(Kind::Basic(self.reader.one(&self.key("user"), &raw.user, words::user)?)),
            "query" => {
                let hint = "name the parameter, such as \"api_key\"";
                Ok(Kind::Query(self.needed("parameter", &raw.parameter, hint, words::parameter)?))
            }
            "oauth2_client_credentials" => self.oauth(Flow::ClientCredentials),
            "oauth2_refresh" => self.oauth(Flow::Refresh),
            _ => self.sigv4(),
        }
    }

    fn oauth(&self, flow: Flow) -> Result<Kind, BadRule> {
        let raw = self.table.get_ref();
        let scopes = raw.scopes.as_ref().map(|list| self.reader.filled(&self.key("scopes"), list, words::scope));
        let auth = |text: &str| match text {
            "basic" => Ok(ClientAuth::Basic),
            "body" => Ok(ClientAuth::Body),
            _ => Err("write basic (in Authorization) or body (in the form)".to_owned()),
        };
        Ok(Kind::OAuth(Box::new(OAuth {
            flow,
            token_url: self.needed("token_url", &raw.token_url, "the token endpoint, https://…", words::token_url)?,
            client_id: self.needed("client_id", &raw.client_id, "the client's id", words::plain)?,
            client_secret: self.reader.one(&self.key("client_secret_from"), &raw.client_secret_from, words::source)?,
            client_auth: self
                .reader
                .one(&self.key("client_auth"), &raw.client_auth, auth)?
                .unwrap_or(ClientAuth::Basic),
            scopes: scopes.transpose()?.unwrap_or_default(),
            audience: self.reader.one(&self.key("audience"), &raw.audience, words::plain)?,
        })))
    }

    fn sigv4(&self) -> Result<Kind, BadRule> {
        let raw = self.table.get_ref();
        Ok(Kind::SigV4(SigV4 {
            access_key_id: self.needed("access_key_id", &raw.access_key_id, "the access key's id", words::label)?,
            region: self.needed("region", &raw.region, "such as \"eu-central-1\"", words::label)?,
            service: self.needed("service", &raw.service, "such as \"s3\" or \"execute-api\"", words::label)?,
            session_token: self.reader.one(&self.key("session_token_from"), &raw.session_token_from, words::source)?,
        }))
    }

    /// Refuses keys that the kind does not have.
    fn no_strangers(&self, kind: &str, keys: &[&str]) -> Result<(), BadRule> {
        let raw = self.table.get_ref();
        let texts = [
            ("header", &raw.header),
            ("user", &raw.user),
            ("parameter", &raw.parameter),
            ("token_url", &raw.token_url),
            ("client_id", &raw.client_id),
            ("client_secret_from", &raw.client_secret_from),
            ("client_auth", &raw.client_auth),
            ("audience", &raw.audience),
            ("access_key_id", &raw.access_key_id),
            ("region", &raw.region),
            ("service", &raw.service),
            ("session_token_from", &raw.session_token_from),
        ];
        let given = texts.iter().filter_map(|(key, text)| Some((*key, text.as_ref()?.span())));
        let given = given.chain(raw.scopes.as_ref().map(|scopes| ("scopes", scopes.span())));
        for (key, span) in given {
            if !keys.contains(&key) {
                let rule = format!("is no key of kind {kind}: leave it out");
                return Err(self.reader.bad(&self.key(key), &span, rule));
            }
        }
        Ok(())
    }
}

fn slot(text: &str) -> Result<HeaderName, String> {
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(slot) if slot == http::header::AUTHORIZATION || !headers::is_brokers(slot.as_str()) => Ok(slot),
        Ok(_) => Err("this header is the broker's own: it cannot carry a credential".to_owned()),
        Err(_) => Err("no header name".to_owned()),
    }
}
