//! Whether one call may be made: declared ∩ granted ∩ policy, as whole tuples. Pure; the one decision of every door.

use crate::{
    capability::{Declaration, HttpClause},
    destination, headers,
    method::Method,
    origin::{Origin, Reach, Scheme, reach},
    policy::{Credential, Grant, Policy},
    refusal::{Refusal, Why, quote},
    target::Target,
};

/// Whose call it is: what a token stands for.
#[derive(Debug, Clone, Copy)]
pub struct Right<'a> {
    /// The tool that grants are given to.
    pub tool: &'a str,
    /// Address of its definition; empty for none.
    pub definition: &'a str,
    /// The principal of the run.
    pub principal: &'a str,
    /// What the definition declares; absent for code without a declaration: then the grant alone narrows.
    pub declaration: Option<&'a Declaration>,
    /// The grant, where the configuration itself makes the call necessary: for a token or a secret. Then no tool is looked up.
    pub own: Option<&'a Grant>,
}

/// What is asked for. Nothing here is trusted.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The URL.
    pub target: &'a Target,
    /// The method's word.
    pub method: &'a str,
    /// The credential's name.
    pub credential: Option<&'a str>,
    /// Names of the request headers, lower case.
    pub headers: &'a [&'a str],
}

/// A call that may be made, once its addresses are checked.
#[derive(Debug, Clone, Copy)]
pub struct Allowed<'p> {
    /// The method.
    pub method: Method,
    /// The credential to attach.
    pub credential: Option<&'p Credential>,
    /// A credential goes in plain text: every address must be listed in `allow_private`.
    pub listed_addresses_only: bool,
}

/// The questions that a decision asks, in their order, which is part of the contract. (Token, size, JSON and URL come before,
/// budget and resolved addresses after.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// May this host be reached at all, as far as can be told without a lookup?
    Host,
    /// Does the egress policy allow it?
    Policy,
    /// Is it a method, and are all headers and parameters the caller's to set?
    Request,
    /// Does the definition declare it?
    Declaration,
    /// Is it granted to the tool?
    Grant,
    /// May the credential be spent here, by this run?
    Credential,
}

/// Decides.
pub fn decide<'p>(policy: &'p Policy, right: Right<'p>, ask: Ask<'_>) -> Result<Allowed<'p>, Refusal> {
    judge(policy, right, ask).map_err(|(_, refusal)| refusal)
}

/// Decides, and names the question that was answered with no.
pub fn judge<'p>(policy: &'p Policy, right: Right<'p>, ask: Ask<'_>) -> Result<Allowed<'p>, (Stage, Refusal)> {
    let at = |stage| move |refusal| (stage, refusal);
    let origin = ask.target.origin();
    destination::check_host(&origin.host, &policy.egress.allow_private).map_err(at(Stage::Host))?;
    egress(policy, origin).map_err(at(Stage::Policy))?;
    let method = request(policy, ask).map_err(at(Stage::Request))?;
    match right.declaration {
        Some(declaration) => declared(declaration, method, ask),
        None => undeclared(ask.headers),
    }
    .map_err(at(Stage::Declaration))?;
    let grant = grant(policy, right).and_then(|grant| granted(grant, right.tool, method, origin).map(|()| grant));
    let grant = grant.map_err(at(Stage::Grant))?;
    let credential = match ask.credential {
        Some(name) => Some(credential(policy, grant, right, name, origin).map_err(at(Stage::Credential))?),
        None => None,
    };
    let listed_addresses_only = credential.is_some() && origin.scheme == Scheme::Http;
    Ok(Allowed { method, credential, listed_addresses_only })
}

fn request(policy: &Policy, ask: Ask<'_>) -> Result<Method, Refusal> {
    let method = Method::parse(ask.method).ok_or_else(|| {
        let text = format!("method {} is not allowed: write GET, HEAD, POST, PUT, PATCH or DELETE", quote(ask.method));
        Refusal::new(Why::MethodNotAllowed, text)
    })?;
    owned_headers(policy, ask.headers)?;
    owned_parameters(policy, ask.target)?;
    Ok(method)
}

fn grant<'p>(policy: &'p Policy, right: Right<'p>) -> Result<&'p Grant, Refusal> {
    let tool = quote(right.tool);
    let refuse = |text| Refusal::new(Why::ToolNotGranted, text);
    let grant = right.own.or_else(|| policy.grants.get(right.tool)).ok_or_else(|| {
        refuse(format!("tool {tool} is granted nothing: an operator can add [grants.{}]", right.tool))
    })?;
    if grant.is_for(right.definition) {
        return Ok(grant);
    }
    let text = format!(
        "tool {tool} is granted nothing in this definition, {}: an operator can add it to [grants.{}] definitions",
        quote(right.definition),
        right.tool
    );
    Err(refuse(text))
}

fn egress(policy: &Policy, origin: &Origin) -> Result<(), Refusal> {
    match reach(&policy.egress.allow_hosts, origin) {
        Reach::Here => Ok(()),
        // Plain http then still needs a grant that spells it.
        _ if policy.egress.unrestricted => Ok(()),
        missed => Err(not_reached(missed, origin, "the egress policy", "[policy] allow_hosts")),
    }
}

fn owned_headers(policy: &Policy, names: &[&str]) -> Result<(), Refusal> {
    match names.iter().find(|name| headers::is_brokers(name) || policy.owns_header(name)) {
        Some(name) => {
            let text = format!("request header {} is set by the broker alone: leave it out", quote(name));
            Err(Refusal::new(Why::HeaderNotAllowed, text))
        }
        None => Ok(()),
    }
}

fn owned_parameters(policy: &Policy, target: &Target) -> Result<(), Refusal> {
    match target.url().query_pairs().find(|(name, _)| policy.owns_parameter(target.origin(), name)) {
        Some((name, _)) => {
            let text = format!("query parameter {} is set by the broker alone: leave it out", quote(&name));
            Err(Refusal::new(Why::ParameterNotAllowed, text))
        }
        None => Ok(()),
    }
}

fn undeclared(names: &[&str]) -> Result<(), Refusal> {
    match names.iter().find(|name| !headers::is_harmless(name)) {
        Some(name) => {
            let text = format!("request header {} is not allowed without a declaration: leave it out", quote(name));
            Err(Refusal::new(Why::HeaderNotAllowed, text))
        }
        None => Ok(()),
    }
}

/// The objects of a declaration each of which allows the whole call.
pub fn covering<'d>(declaration: &'d Declaration, ask: Ask<'d>) -> impl Iterator<Item = &'d HttpClause> {
    let method = Method::parse(ask.method);
    let covers = move |clause: &&HttpClause| method.is_some_and(|method| clause_allows(clause, method, ask).is_ok());
    declaration.http().iter().filter(covers)
}

/// One object of the declaration has to allow the whole call; the refusal is that of the object that came furthest.
fn declared(declaration: &Declaration, method: Method, ask: Ask<'_>) -> Result<(), Refusal> {
    let mut furthest: Option<(u8, Refusal)> = None;
    for clause in declaration.http() {
        match clause_allows(clause, method, ask) {
            Ok(()) => return Ok(()),
            Err(found) if furthest.as_ref().is_none_or(|best| found.0 > best.0) => furthest = Some(found),
            Err(_) => {}
        }
    }
    let (_, mut refusal) = furthest.unwrap_or_else(|| {
        (0, not_reached(Reach::Nowhere, ask.target.origin(), "the definition's capabilities", "its `hosts`"))
    });
    let elsewhere = |name: &str| declaration.http().iter().any(|clause| clause.credentials.iter().any(|c| c == name));
    if refusal.why == Why::CredentialNotDeclared && ask.credential.is_some_and(elsewhere) {
        refusal.why = Why::CredentialHostMismatch;
    }
    Err(refusal)
}

fn clause_allows(clause: &HttpClause, method: Method, ask: Ask<'_>) -> Result<(), (u8, Refusal)> {
    let origin = ask.target.origin();
    let refuse = |stage, why, text| Err((stage, Refusal::new(why, text)));
    match reach(&clause.hosts, origin) {
        Reach::Here => {}
        missed => {
            let stage = u8::from(missed != Reach::Nowhere);
            return Err((stage, not_reached(missed, origin, "the definition's capabilities", "its `hosts`")));
        }
    }
    if !clause.methods.contains(&method) {
        let text =
            format!("method {method} at {} is not in the definition's capabilities: add it to `methods`", origin);
        return refuse(2, Why::MethodNotAllowed, text);
    }
    if !clause.covers(ask.target.path()) {
        let text = format!("the path is under none of the `path_prefixes` declared for {origin}");
        return refuse(3, Why::PathNotAllowed, text);
    }
    if let Some(name) = ask.credential.filter(|name| !clause.credentials.iter().any(|c| c == name)) {
        let text = format!("credential {} is not declared for {origin}: add it to `credentials`", quote(name));
        return refuse(4, Why::CredentialNotDeclared, text);
    }
    if let Some(name) = ask.headers.iter().find(|name| !clause.headers.iter().any(|header| header == *name)) {
        let text = format!("request header {} is not declared for {origin}: add it to `headers`", quote(name));
        return refuse(5, Why::HeaderNotAllowed, text);
    }
    Ok(())
}

fn granted(grant: &Grant, tool: &str, method: Method, origin: &Origin) -> Result<(), Refusal> {
    let place = format!("[grants.{tool}] hosts");
    match &grant.hosts {
        Some(hosts) => match reach(hosts, origin) {
            Reach::Here => {}
            missed => return Err(not_reached(missed, origin, "the grant", &place)),
        },
        None if origin.scheme == Scheme::Http => {
            let text = format!(
                "plain http is reached only where a grant spells it: an operator can write {place} = [\"{origin}\"]"
            );
            return Err(Refusal::new(Why::SchemeNotAllowed, text));
        }
        None => {}
    }
    if grant.methods.contains(&method) {
        return Ok(());
    }
    let text = format!(
        "method {method} is not granted to tool {}: an operator can add it to [grants.{tool}] methods",
        quote(tool)
    );
    Err(Refusal::new(Why::MethodNotAllowed, text))
}

fn credential<'p>(
    policy: &'p Policy,
    grant: &Grant,
    right: Right<'_>,
    name: &str,
    origin: &Origin,
) -> Result<&'p Credential, Refusal> {
    let granted = grant.credentials.iter().any(|granted| granted == name);
    // The same words whether it exists or not: a tool must not be able to find out what others have.
    let Some(credential) = policy.credentials.get(name).filter(|_| granted) else {
        let text = format!("credential {} is not granted to tool {}", quote(name), quote(right.tool));
        return Err(Refusal::new(Why::CredentialNotGranted, text));
    };
    if credential.owner.as_deref().is_some_and(|owner| owner != right.principal) {
        let text = format!("credential {} is not for runs of this principal", quote(name));
        return Err(Refusal::new(Why::CredentialOwnerMismatch, text));
    }
    let reached = match &credential.hosts {
        Some(hosts) => reach(hosts, origin),
        None if origin.scheme == Scheme::Http => Reach::OtherScheme,
        None => Reach::Here,
    };
    match reached {
        Reach::Here => Ok(credential),
        Reach::OtherScheme => {
            let text = format!("credential {} may not go to {origin} in plain text: call https://", quote(name));
            Err(Refusal::new(Why::SchemeNotAllowed, text))
        }
        Reach::OtherPort | Reach::Nowhere => {
            let text = format!(
                "credential {} may not go to {origin}: an operator can add it to [credentials.{name}] hosts",
                quote(name)
            );
            Err(Refusal::new(Why::CredentialHostMismatch, text))
        }
    }
}

fn not_reached(missed: Reach, origin: &Origin, by: &str, place: &str) -> Refusal {
    match missed {
        Reach::OtherScheme => {
            let text = format!(
                "{}:// to {} is not allowed by {by}: {place} names it with another scheme or none",
                origin.scheme.as_str(),
                origin.host
            );
            Refusal::new(Why::SchemeNotAllowed, text)
        }
        Reach::OtherPort => {
            let text =
                format!("port {} of {} is not allowed by {by}: {place} names another port", origin.port, origin.host);
            Refusal::new(Why::HostNotAllowed, text)
        }
        Reach::Nowhere | Reach::Here => Refusal::new(
            Why::HostNotAllowed,
            format!("{origin} is not allowed by {by}: it would have to be in {place}"),
        ),
    }
}
