//! `broker-svc explain`: the decision about one call, question by question, with the rule that answers each.

use std::{fmt::Write as _, path::PathBuf};

use super::Shown;
use crate::{
    artifact::{self, ArtifactCeilings, Wanted},
    capability::Declaration,
    config::Places,
    decide::{Ask, Right, Stage, judge},
    destination,
    headers::RequestHeaders,
    origin::{Host, Pattern, Reach, reach},
    policy::{Policy, sorted},
    refusal::{Refusal, Why, quote},
    target::Target,
};

/// Most rules of a list that are shown.
const SHOWN_MAX: usize = 8;

/// One call to be explained.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Question {
    /// The tool's name, as grants have it
    #[arg(long, value_name = "NAME")]
    pub tool: String,
    /// Address of its definition, where the grant is bound to some
    #[arg(long, value_name = "HASH", default_value = "")]
    pub definition: String,
    /// The URL that it would call
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// The method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// The credential that it would name
    #[arg(long = "credential", id = "asked_credential", value_name = "NAME")]
    pub credential: Option<String>,
    /// The principal of the run
    #[arg(long, value_name = "PRINCIPAL", default_value = "")]
    pub principal: String,
    /// A request header that it would set, by name
    #[arg(long = "header", value_name = "NAME")]
    pub headers: Vec<String>,
    /// Bytes of a request body that is an artifact
    #[arg(long, value_name = "BYTES")]
    pub artifact_body: Option<u64>,
    /// It wants the answer as an artifact
    #[arg(long)]
    pub artifact_answer: bool,
    /// What its definition declares: the JSON of `capabilities`; without it the grant alone narrows
    #[arg(long, value_name = "JSON")]
    pub capabilities: Option<String>,
}

/// The rules, and where they stand.
pub struct Rules<'a> {
    /// What the operator allows.
    pub policy: &'a Policy,
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Lines of its keys.
    pub places: Places,
}

/// Explains. Nothing is looked up or sent.
pub fn explain(rules: &Rules<'_>, question: &Question) -> Shown {
    let declaration = match question.capabilities.as_deref().map(Declaration::parse).transpose() {
        Ok(declaration) => declaration,
        Err(cause) => return Shown { text: format!("error: --capabilities: {cause}\n"), good: false },
    };
    // As a call's own headers are looked at: what is asked about is what the decision would be told.
    let given: Vec<_> = question.headers.iter().map(|name| (name.clone(), String::new())).collect();
    let given = match RequestHeaders::check(&given, "") {
        Ok(given) => given,
        Err(refusal) => return denied_at_once(&format!("--header {}", quote(&question.headers.join(", "))), &refusal),
    };
    let target = match Target::parse(&question.url) {
        Ok(target) => target,
        Err(refusal) => return denied_at_once(&format!("--url {}", quote(&question.url)), &refusal),
    };
    let names = given.names();
    let right = Right {
        tool: &question.tool,
        definition: &question.definition,
        principal: &question.principal,
        declaration: declaration.as_ref(),
        own: None,
    };
    let ask =
        Ask { target: &target, method: &question.method, credential: question.credential.as_deref(), headers: &names };
    let wanted = Wanted { body_bytes: question.artifact_body, answer: question.artifact_answer };
    let verdict = judge(rules.policy, right, ask);
    let answers = Answers { rules, question, target: &target, declaration: declaration.as_ref() };
    match &verdict {
        Ok(_) if wanted.any() => match artifact::answer_bytes_max(rules.policy, right, ask, wanted) {
            Ok(answer_bytes_max) => answers.allowed(Some(answer_bytes_max)),
            Err(refusal) => answers.no_artifact(&refusal),
        },
        Ok(_) => answers.allowed(None),
        Err((stage, refusal)) => answers.denied(*stage, refusal),
    }
}

fn denied_at_once(place: &str, refusal: &Refusal) -> Shown {
    let text = format!(
        "denied[{}]: {}\n  --> {place}\n   = note: it is refused before any rule is looked at\n",
        refusal.why.code(),
        refusal.text,
    );
    Shown { text, good: false }
}

struct Answers<'a> {
    rules: &'a Rules<'a>,
    question: &'a Question,
    target: &'a Target,
    declaration: Option<&'a Declaration>,
}

/// The questions in their order, with their names.
const STAGES: [(Stage, &str); 6] = [
    (Stage::Host, "address"),
    (Stage::Policy, "policy"),
    (Stage::Request, "request"),
    (Stage::Declaration, "declaration"),
    (Stage::Grant, "grant"),
    (Stage::Credential, "credential"),
];

impl Answers<'_> {
    fn call(&self) -> String {
        let question = self.question;
        let with =
            question.credential.as_ref().map_or_else(String::new, |name| format!(" with credential {}", quote(name)));
        let (origin, path) = (self.target.origin(), self.target.path());
        format!("{} {origin}{path} by tool {}{with}", question.method, quote(&question.tool))
    }

    fn allowed(&self, artifact_bytes_max: Option<u64>) -> Shown {
        let mut text = format!("allowed: {}\n", self.call());
        for (stage, name) in STAGES {
            let _infallible = writeln!(text, "  {name:<12} {}", self.answer(stage));
        }
        if let Some(bytes) = artifact_bytes_max {
            let body = self.question.artifact_body.map(|bytes| format!("a request body of {bytes} bytes"));
            let answer = self.question.artifact_answer.then(|| format!("an answer of at most {bytes} bytes"));
            let words: Vec<_> = body.into_iter().chain(answer).collect();
            let _infallible = writeln!(text, "  {:<12} {}", "artifacts", words.join(", "));
        }
        text.push_str(
            "   = note: when the call is made, budget and rate are taken and every address of the host is checked\n",
        );
        Shown { text, good: true }
    }

    /// The call may be made, its artifacts may not.
    fn no_artifact(&self, refusal: &Refusal) -> Shown {
        let key = format!("grants.{}", self.question.tool);
        let full = format!("{key}.artifacts");
        let written = if self.rules.places.line(&full).is_some() { full } else { key.clone() };
        let text = format!(
            "denied[{}]: {}\n  --> {}\n   = call: {}\n   = note: without artifacts it may be made\n",
            refusal.why.code(),
            refusal.text,
            self.at(&written, &format!("[{key}] artifacts")),
            self.call()
        );
        Shown { text, good: false }
    }

    fn denied(&self, at: Stage, refusal: &Refusal) -> Shown {
        let mut text = format!("denied[{}]: {}\n", refusal.why.code(), refusal.text);
        let _infallible = writeln!(text, "  --> {}", self.place(at, refusal.why));
        let _infallible = writeln!(text, "   = call: {}", self.call());
        for (stage, name) in STAGES {
            let answer = match stage.cmp(&at) {
                std::cmp::Ordering::Less => self.answer(stage),
                std::cmp::Ordering::Equal => format!("NO: {}", self.rules_of(stage)),
                std::cmp::Ordering::Greater => "not asked any more".to_owned(),
            };
            let _infallible = writeln!(text, "  {name:<12} {answer}");
        }
        if let Some(help) = self.help(at) {
            let _infallible = writeln!(text, "   = help: {help}");
        }
        Shown { text, good: false }
    }

    /// Which rule says yes.
    fn answer(&self, stage: Stage) -> String {
        let policy = self.rules.policy;
        match stage {
            Stage::Host => match &self.target.origin().host {
                Host::Name(_) => "a public name; what it resolves to is checked when the call is made".to_owned(),
                Host::Address(address) if destination::listed(*address, &policy.egress.allow_private) => {
                    format!("inner, and listed in {}", self.at("policy.allow_private", "[policy] allow_private"))
                }
                Host::Address(_) => "public".to_owned(),
            },
            Stage::Policy => match self.pattern(&policy.egress.allow_hosts) {
                Some(pattern) => format!("{pattern} in {}", self.at("policy.allow_hosts", "[policy] allow_hosts")),
                None => self.at("policy.unrestricted", "[policy] unrestricted"),
            },
            Stage::Request => "the method is one, no header or parameter is the broker's own".to_owned(),
            Stage::Declaration => match self.declaration {
                Some(_) => {
                    "one object of the capabilities covers host, method, path, credential and headers".to_owned()
                }
                None => "none: the grant alone narrows".to_owned(),
            },
            Stage::Grant | Stage::Credential => self.rules_of(stage),
        }
    }

    /// The rules that the question is about.
    fn rules_of(&self, stage: Stage) -> String {
        let policy = self.rules.policy;
        match stage {
            Stage::Host if destination::is_metadata(&self.target.origin().host) => "a metadata service".to_owned(),
            Stage::Host => match self.target.origin().host {
                Host::Address(_) => "an inner address".to_owned(),
                Host::Name(_) => "a name that is never looked up".to_owned(),
            },
            Stage::Policy => {
                let hosts = listed(&policy.egress.allow_hosts);
                format!("{} is {hosts}", self.at("policy.allow_hosts", "[policy] allow_hosts"))
            }
            Stage::Request => "no method, or a header or parameter that the broker alone sets".to_owned(),
            Stage::Declaration => "--capabilities".to_owned(),
            Stage::Grant => match policy.grants.get(&self.question.tool) {
                None => format!("no grant; there are {}", names(policy.grants.keys())),
                Some(grant) => {
                    let hosts =
                        grant.hosts.as_ref().map_or_else(|| "what the policy allows".to_owned(), |hosts| listed(hosts));
                    let methods = sorted(&grant.methods).join(", ");
                    let key = format!("grants.{}", self.question.tool);
                    let place = self.at(&key, &format!("[{key}]"));
                    match grant.artifacts {
                        none if none.are_zero() => format!("methods {methods}; hosts {hosts}: {place}"),
                        ArtifactCeilings { max_request_bytes, max_response_bytes } => format!(
                            "methods {methods}; hosts {hosts}; artifacts of {max_request_bytes} bytes out and \
                             {max_response_bytes} back: {place}"
                        ),
                    }
                }
            },
            Stage::Credential => {
                match self.question.credential.as_ref().map(|name| (name, policy.credentials.get(name))) {
                    None => "none is asked for".to_owned(),
                    Some((_, None)) => format!("no such credential; there are {}", names(policy.credentials.keys())),
                    Some((name, Some(credential))) => {
                        let hosts =
                            credential.hosts.as_ref().map_or_else(|| "every host".to_owned(), |hosts| listed(hosts));
                        let owner = credential
                            .owner
                            .as_ref()
                            .map_or_else(String::new, |owner| format!(", for runs of {owner}"));
                        let key = format!("credentials.{name}");
                        let place = self.at(&key, &format!("[{key}]"));
                        format!("{} from {}, for {hosts}{owner}: {place}", credential.kind, credential.source)
                    }
                }
            }
        }
    }

    /// What to write, where it is not in the refusal already: this is for operators, who may know what there is.
    fn help(&self, at: Stage) -> Option<String> {
        let (policy, tool) = (self.rules.policy, &self.question.tool);
        let origin = self.target.origin();
        match at {
            Stage::Policy => Some(format!("add \"{origin}\" to [policy] allow_hosts")),
            Stage::Grant if !policy.grants.contains_key(tool) => {
                Some(format!("add [grants.{tool}] with methods and hosts"))
            }
            Stage::Credential => {
                let name = self.question.credential.as_ref()?;
                let granted = policy.grants.get(tool).is_some_and(|grant| grant.credentials.contains(name));
                match policy.credentials.get(name) {
                    None => Some(format!(
                        "there is no [credentials.{name}]: the tool is told the same as for one that it may not use"
                    )),
                    Some(_) if !granted => Some(format!("it exists: add {name:?} to [grants.{tool}] credentials")),
                    Some(_) => None,
                }
            }
            Stage::Host | Stage::Request | Stage::Declaration | Stage::Grant => None,
        }
    }

    fn pattern<'p>(&self, patterns: &'p [Pattern]) -> Option<&'p Pattern> {
        let here = |pattern: &&Pattern| reach(std::slice::from_ref(*pattern), self.target.origin()) == Reach::Here;
        patterns.iter().find(here)
    }

    /// The key that would have to say otherwise.
    fn place(&self, at: Stage, why: Why) -> String {
        let (tool, credential) = (&self.question.tool, self.question.credential.as_deref().unwrap_or_default());
        let (table, key) = match (at, why) {
            (Stage::Host, _) => match self.target.origin().host {
                Host::Address(_) if !destination::is_metadata(&self.target.origin().host) => {
                    ("policy".to_owned(), "allow_private")
                }
                // No key would make it another one.
                Host::Address(_) | Host::Name(_) => return "--url".to_owned(),
            },
            (Stage::Policy, _) => ("policy".to_owned(), "allow_hosts"),
            (Stage::Request, Why::MethodNotAllowed) => return "--method".to_owned(),
            (Stage::Request, Why::HeaderNotAllowed) => return "--header".to_owned(),
            (Stage::Request, _) => return "--url".to_owned(),
            (Stage::Declaration, _) => return "--capabilities".to_owned(),
            (Stage::Grant, Why::MethodNotAllowed) => (format!("grants.{tool}"), "methods"),
            (Stage::Grant, Why::ToolNotGranted) => {
                return self.at(&format!("grants.{tool}"), &format!("[grants.{tool}]"));
            }
            (Stage::Grant, _) => (format!("grants.{tool}"), "hosts"),
            (Stage::Credential, Why::CredentialNotGranted) => (format!("grants.{tool}"), "credentials"),
            (Stage::Credential, Why::CredentialOwnerMismatch) => (format!("credentials.{credential}"), "owner"),
            (Stage::Credential, _) => (format!("credentials.{credential}"), "hosts"),
        };
        // A key that is left out would stand in its table.
        let full = format!("{table}.{key}");
        let written = if self.rules.places.line(&full).is_some() { full } else { table.clone() };
        self.at(&written, &format!("[{table}] {key}"))
    }

    /// A key with its file and line, where it stands in one.
    fn at(&self, key: &str, shown: &str) -> String {
        let line = self.rules.places.line(key);
        match (&self.rules.file, line) {
            (Some(file), Some(line)) => format!("{}:{line} {shown}", file.display()),
            (Some(file), None) => format!("{} {shown}", file.display()),
            (None, _) => shown.to_owned(),
        }
    }
}

fn listed(patterns: &[Pattern]) -> String {
    names(sorted(patterns).iter())
}

fn names<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<_> = names.map(String::as_str).collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > SHOWN_MAX => format!("{} and {} more", names[..SHOWN_MAX].join(", "), count - SHOWN_MAX),
        _ => names.join(", "),
    }
}
