//! The static token file: which token or certificate is which principal, and what it may do in which namespace.

use std::{collections::BTreeMap, io::Read as _, path::Path};

use content_digest::Digest;
use proto::{
    fault::{Fault, Reason},
    identity::Peer,
};
use serde::Deserialize;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use tonic::{Extensions, metadata::MetadataMap};

use super::{Access, Permission, Principal, refused};

/// Largest token file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest bearer token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 4096;
/// The namespace that stands for every one.
const EVERY_NAMESPACE: &str = "*";

/// Callers known by a bearer token, or by the URI name of their certificate.
///
/// ```toml
/// [[principal]]
/// name = "user:runner"
/// token_sha256 = "…64 hex digits…"     # or `token = "…"`; neither: known by a certificate's URI, which is then the name
/// [principal.permissions]
/// ops = ["run.execute", "run.read", "catalog.write"]
/// "*" = ["run.read"]                   # every namespace
/// ```
pub struct StaticAccess {
    /// SHA-256 of each token, with the index of its principal.
    tokens: Vec<([u8; 32], u32)>,
    names: Vec<Principal>,
    permissions: BTreeMap<String, BTreeMap<String, Vec<Permission>>>,
}

/// The token file cannot be used; the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum BadAccessFile {
    /// It cannot be read.
    #[error("token file {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no TOML of the right shape, or over its size. The text never holds a line of the file.
    #[error("token file: {0}")]
    Malformed(String),
    /// An entry is wrong.
    #[error("token file, principal {name:?}: {problem}")]
    Entry {
        /// The entry's principal.
        name: String,
        /// What is wrong and what to write.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    principal: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    token: Option<String>,
    token_sha256: Option<String>,
    #[serde(default)]
    permissions: BTreeMap<String, Vec<String>>,
}

impl StaticAccess {
    /// Reads a token file, at most 1 MiB.
    pub fn load(path: &Path) -> Result<Self, BadAccessFile> {
        let unreadable = |source| BadAccessFile::Unreadable { path: path.display().to_string(), source };
        let mut text = String::new();
        let file = proto::files::open(path).map_err(unreadable)?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(BadAccessFile::Malformed("over 1 MiB".to_owned()));
        }
        Self::parse(&text)
    }

    /// Reads a token file's text.
    pub fn parse(text: &str) -> Result<Self, BadAccessFile> {
        // Only the parser's own words: its rendering quotes the line, and the line may be a token.
        let document: Document = toml::from_str(text).map_err(|error| malformed(text, &error))?;
        let mut access = Self { tokens: Vec::new(), names: Vec::new(), permissions: BTreeMap::new() };
        for entry in document.principal {
            access.add(entry)?;
        }
        Ok(access)
    }

    fn add(&mut self, entry: Entry) -> Result<(), BadAccessFile> {
        let name = entry.name;
        let wrong = |problem: String| BadAccessFile::Entry { name: name.clone(), problem };
        if name.trim().is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
            return Err(wrong("the name must have 1 to 256 bytes without control characters".to_owned()));
        }
        if self.permissions.contains_key(&name) {
            return Err(wrong("named twice".to_owned()));
        }
        let hash = match (entry.token, entry.token_sha256) {
            (Some(_), Some(_)) => return Err(wrong("give token or token_sha256, not both".to_owned())),
            (Some(token), None) if (16..=TOKEN_BYTES_MAX).contains(&token.len()) => Some(Digest::of(token)),
            (Some(_), None) => return Err(wrong("a token must have 16 to 4096 bytes".to_owned())),
            (None, Some(hex)) => Some(hex.parse().map_err(|_| wrong("token_sha256 must be 64 hex digits".to_owned()))?),
            (None, None) => None,
        };
        if let Some(hash) = hash {
            if self.tokens.iter().any(|(known, _)| known == hash.as_bytes()) {
                return Err(wrong("its token is another principal's too".to_owned()));
            }
            let index = u32::try_from(self.names.len()).expect("a 1 MiB file has fewer than 2^32 entries");
            self.tokens.push((*hash.as_bytes(), index));
        }
        let mut permissions = BTreeMap::new();
        for (namespace, words) in entry.permissions {
            let mut granted = Vec::new();
            for word in words {
                let known = Permission::ALL.map(Permission::as_str).join(", ");
                let unknown = || wrong(format!("unknown permission {word:?} in namespace {namespace:?}: {known}"));
                granted.push(Permission::of(&word).ok_or_else(unknown)?);
            }
            permissions.insert(namespace, granted);
        }
        self.names.push(Principal::new(name.clone()));
        self.permissions.insert(name, permissions);
        Ok(())
    }

    /// Finds a token's principal, in the same time for every token that is shown.
    fn known(&self, token: &[u8]) -> Option<&Principal> {
        let shown = Digest::of(token);
        let (mut found, mut index) = (Choice::from(0), 0_u32);
        for (hash, of) in &self.tokens {
            let same = hash.ct_eq(shown.as_bytes());
            index.conditional_assign(of, same);
            found |= same;
        }
        if bool::from(found) { self.names.get(index as usize) } else { None }
    }

    fn holds(&self, principal: &Principal, namespace: &str, permission: Permission) -> bool {
        let Some(namespaces) = self.permissions.get(principal.as_str()) else { return false };
        [namespace, EVERY_NAMESPACE]
            .into_iter()
            .filter_map(|key| namespaces.get(key))
            .any(|granted| granted.contains(&permission))
    }
}

impl Access for StaticAccess {
    fn principal(&self, extensions: &Extensions, metadata: &MetadataMap) -> Result<Principal, Fault> {
        if let Some(header) = metadata.get("authorization") {
            let text = header.to_str().unwrap_or_default();
            let token = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let token = token.map(|(_, token)| token.trim()).filter(|token| token.len() <= TOKEN_BYTES_MAX);
            let known = token.and_then(|token| self.known(token.as_bytes()));
            return known.cloned().ok_or_else(|| unauthenticated("the bearer token is not known"));
        }
        if let Some(Peer::Certified(uris)) = extensions.get::<Peer>() {
            let known = uris.iter().find(|uri| self.permissions.contains_key(uri.as_str()));
            return known
                .map(Principal::new)
                .ok_or_else(|| unauthenticated("the certificate names no known principal"));
        }
        Err(unauthenticated("no credential: send `authorization: Bearer <token>`"))
    }

    fn allow(&self, principal: &Principal, namespace: &str, permission: Permission) -> Result<(), Fault> {
        // `*` is a word of the file, never a namespace that a request may name.
        let held = namespace != EVERY_NAMESPACE && self.holds(principal, namespace, permission);
        if held { Ok(()) } else { Err(refused(principal, namespace, permission)) }
    }

    fn holders(&self, namespace: &str, permission: Permission) -> Vec<String> {
        let holding = self.names.iter().filter(|principal| self.holds(principal, namespace, permission));
        let mut names: Vec<String> = holding.map(|principal| principal.as_str().to_owned()).collect();
        names.sort_unstable();
        names
    }

    fn allow_anywhere(&self, principal: &Principal, permission: Permission) -> Result<(), Fault> {
        let namespaces = self.permissions.get(principal.as_str());
        let held = namespaces.is_some_and(|all| all.values().any(|granted| granted.contains(&permission)));
        if held { Ok(()) } else { Err(refused(principal, EVERY_NAMESPACE, permission)) }
    }
}

fn malformed(text: &str, error: &toml::de::Error) -> BadAccessFile {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
    BadAccessFile::Malformed(format!(
        "line {line}: not of the form [[principal]] name, token or token_sha256, permissions"
    ))
}

fn unauthenticated(text: &str) -> Fault {
    Fault::new(Reason::Unauthenticated, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "a-token-of-some-length";

    fn access() -> StaticAccess {
        let file = format!(
            "[[principal]]\nname = \"user:runner\"\ntoken = \"{TOKEN}\"\n[principal.permissions]\nops = [\"run.execute\"]\n\
             \"*\" = [\"run.read\"]\n\
             [[principal]]\nname = \"user:hashed\"\ntoken_sha256 = \"{}\"\n\
             [[principal]]\nname = \"spiffe://areev.example/team\"\npermissions = {{ ops = [\"catalog.write\"] }}\n",
            Digest::of("another-token-of-length").to_hex()
        );
        StaticAccess::parse(&file).unwrap()
    }

    fn bearer(token: &str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", format!("Bearer {token}").parse().unwrap());
        metadata
    }

    #[test]
    fn a_token_names_its_principal_and_no_other() {
        let (access, none) = (access(), Extensions::new());
        assert_eq!(access.principal(&none, &bearer(TOKEN)).unwrap().as_str(), "user:runner");
        assert_eq!(access.principal(&none, &bearer("another-token-of-length")).unwrap().as_str(), "user:hashed");
        for wrong in ["", "a-token-of-some-lengti", "a-token-of-some-lengt"] {
            let fault = access.principal(&none, &bearer(wrong)).unwrap_err();
            assert_eq!(fault.reason(), Reason::Unauthenticated, "{wrong}");
            assert!(wrong.is_empty() || !fault.message().contains(wrong));
        }
    }

    #[test]
    fn a_local_caller_without_a_token_is_nobody_once_tokens_are_configured() {
        let mut extensions = Extensions::new();
        extensions.insert(Peer::Local);
        assert_eq!(access().principal(&extensions, &MetadataMap::new()).unwrap_err().reason(), Reason::Unauthenticated);
    }

    #[test]
    fn a_certificate_that_the_file_names_is_its_principal() {
        let mut extensions = Extensions::new();
        extensions.insert(Peer::Certified(vec!["spiffe://areev.example/team".to_owned()].into()));
        let principal = access().principal(&extensions, &MetadataMap::new()).unwrap();
        assert_eq!(principal.as_str(), "spiffe://areev.example/team");
        extensions.insert(Peer::Certified(vec!["spiffe://areev.example/other".to_owned()].into()));
        assert!(access().principal(&extensions, &MetadataMap::new()).is_err());
    }

    #[test]
    fn a_permission_holds_in_its_namespace_alone() {
        let (access, runner) = (access(), Principal::new("user:runner"));
        access.allow(&runner, "ops", Permission::RunExecute).unwrap();
        access.allow(&runner, "elsewhere", Permission::RunRead).unwrap();
        access.allow_anywhere(&runner, Permission::RunExecute).unwrap();
        for (namespace, permission) in
            [("elsewhere", Permission::RunExecute), ("ops", Permission::CatalogWrite), ("*", Permission::RunRead)]
        {
            let fault = access.allow(&runner, namespace, permission).unwrap_err();
            assert_eq!(fault.reason(), Reason::NotPermitted);
            assert!(fault.message().contains(permission.as_str()), "{}", fault.message());
        }
        assert!(access.allow_anywhere(&runner, Permission::CatalogWrite).is_err());
        assert!(access.allow(&Principal::new("user:hashed"), "ops", Permission::RunRead).is_err());
    }

    #[test]
    fn without_a_file_only_a_local_caller_is_known() {
        use crate::access::{LOCAL_PRINCIPAL, LocalAccess};
        let mut extensions = Extensions::new();
        assert!(LocalAccess.principal(&extensions, &bearer(TOKEN)).is_err());
        extensions.insert(Peer::Insecure);
        assert!(LocalAccess.principal(&extensions, &bearer(TOKEN)).is_err());
        extensions.insert(Peer::Local);
        let local = LocalAccess.principal(&extensions, &MetadataMap::new()).unwrap();
        assert_eq!(local.as_str(), LOCAL_PRINCIPAL);
        LocalAccess.allow(&local, "ops", Permission::CatalogWrite).unwrap();
        assert!(LocalAccess.allow(&Principal::new("user:x"), "ops", Permission::RunRead).is_err());
    }

    #[test]
    fn a_wrong_file_is_refused_without_quoting_a_token() {
        for (text, says) in [
            ("[[principal]]\nname = \"u\"\ntoken = \"short\"", "16 to 4096"),
            ("[[principal]]\nname = \"u\"\ntoken = \"sixteen-bytes-ok\"\ntoken_sha256 = \"00\"", "not both"),
            ("[[principal]]\nname = \"u\"\ntoken_sha256 = \"00\"", "64 hex"),
            ("[[principal]]\nname = \"u\"\npermissions = { ops = [\"run.fly\"] }", "run.fly"),
            ("[[principal]]\nname = \"\"", "1 to 256"),
            ("[[principal]]\nname = \"u\"\n[[principal]]\nname = \"u\"", "twice"),
            ("[[principal]]\nname = \"u\"\nsecret-sauce = \"sixteen-bytes-ok\"", "line 3"),
            ("[[principal]]\nname = \"u\"\ntoken = sixteen-bytes-ok", "line 3"),
        ] {
            let Err(error) = StaticAccess::parse(text) else { panic!("accepted: {text}") };
            assert!(error.to_string().contains(says), "{error}");
            assert!(!format!("{error} {error:?}").contains("sixteen-bytes-ok"), "{error:?}");
        }
    }
}
