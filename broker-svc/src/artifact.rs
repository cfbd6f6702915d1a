//! Artifacts: bodies that go by their digest, past the guest. How large one may be: declared ∩ granted, as whole tuples. Pure.

use serde::Deserialize;

use crate::{
    decide::{Ask, Right, covering},
    policy::Policy,
    refusal::{Refusal, Why, quote},
};

/// Largest artifact, in bytes, whatever is declared and granted.
pub const ARTIFACT_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// How large artifacts may be. Where nothing is written, none may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArtifactCeilings {
    /// Bytes of one request body.
    pub max_request_bytes: u64,
    /// Bytes of one answer's body.
    pub max_response_bytes: u64,
}

/// What of a call is an artifact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes of the request body, where it is one.
    pub body_bytes: Option<u64>,
    /// Whether the answer is to be one.
    pub answer: bool,
}

impl ArtifactCeilings {
    /// Whether no artifact may be.
    pub fn are_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Checks what was written. The error says what to write.
    pub fn checked(self) -> Result<Self, String> {
        match self.mistakes().into_iter().next() {
            Some(mistake) => Err(mistake),
            None => Ok(self),
        }
    }

    /// Everything that is wrong with what was written, and what to write.
    pub fn mistakes(self) -> Vec<String> {
        if self.are_zero() {
            let rule = "no ceiling: write max_request_bytes, max_response_bytes or both, or leave it out";
            return vec![rule.to_owned()];
        }
        let each = [("max_request_bytes", self.max_request_bytes), ("max_response_bytes", self.max_response_bytes)];
        let over = each.into_iter().filter(|(_, bytes)| *bytes > ARTIFACT_BYTES_MAX);
        over.map(|(name, bytes)| {
            format!("{name} {bytes} is over the {ARTIFACT_BYTES_MAX} bytes that an artifact may have")
        })
        .collect()
    }

    fn narrowed(self, by: Self) -> Self {
        Self {
            max_request_bytes: self.max_request_bytes.min(by.max_request_bytes),
            max_response_bytes: self.max_response_bytes.min(by.max_response_bytes),
        }
    }
}

impl Wanted {
    /// Whether anything is one.
    pub fn any(self) -> bool {
        self.body_bytes.is_some() || self.answer
    }
}

/// The most bytes that the answer of an allowed call may have as an artifact; 0 where it is none.
///
/// # Errors
/// No object of the declaration that allows the call has, together with the grant, a ceiling for what is wanted.
pub fn answer_bytes_max(policy: &Policy, right: Right<'_>, ask: Ask<'_>, wanted: Wanted) -> Result<u64, Refusal> {
    let tool = right.tool;
    let granted = policy.grants.get(tool).map(|grant| grant.artifacts).unwrap_or_default();
    let declared = right.declaration.into_iter().flat_map(|declaration| covering(declaration, ask));
    let declared: Vec<_> = declared.map(|clause| clause.artifacts).collect();
    let fits = |ceilings: &ArtifactCeilings| {
        wanted.body_bytes.is_none_or(|bytes| bytes <= ceilings.max_request_bytes && ceilings.max_request_bytes > 0)
            && (!wanted.answer || ceilings.max_response_bytes > 0)
    };
    let most = declared.iter().map(|ceilings| ceilings.narrowed(granted)).filter(fits);
    if let Some(most) = most.map(|ceilings| ceilings.max_response_bytes).max() {
        return Ok(if wanted.answer { most } else { 0 });
    }
    let place = format!("[grants.{tool}] artifacts");
    let origin = ask.target.origin();
    Err(if !declared.iter().any(|ceilings| fits(&unsized_by(*ceilings, wanted))) {
        let text = format!(
            "artifacts are not declared for {origin}: add \"artifacts\": {{\"max_request_bytes\", \"max_response_bytes\"}} \
             to the `http` object that allows the call"
        );
        Refusal::new(Why::ArtifactNotAllowed, text)
    } else if !fits(&unsized_by(granted, wanted)) {
        let text = format!("artifacts are not granted to tool {}: an operator can add {place}", quote(tool));
        Refusal::new(Why::ArtifactNotAllowed, text)
    } else {
        let declared = declared.iter().map(|ceilings| ceilings.max_request_bytes).max().unwrap_or_default();
        let text = format!(
            "the artifact has {} bytes, over the {} that declaration ({declared}) and {place} ({}) allow: send less",
            wanted.body_bytes.unwrap_or_default(),
            declared.min(granted.max_request_bytes),
            granted.max_request_bytes
        );
        Refusal::new(Why::RequestTooLarge, text)
    })
}

/// The same ceilings, as if the request body fitted wherever there may be one.
fn unsized_by(ceilings: ArtifactCeilings, wanted: Wanted) -> ArtifactCeilings {
    let bytes = wanted.body_bytes.unwrap_or_default();
    let max_request_bytes = if ceilings.max_request_bytes > 0 { bytes.max(1) } else { 0 };
    ArtifactCeilings { max_request_bytes, ..ceilings }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{capability::Declaration, config::policy_of, target::Target};

    fn allowed(grant: &str, clauses: &str, wanted: Wanted) -> Result<u64, Why> {
        let policy = policy_of(&format!(
            "[policy]\nallow_hosts = [\"https://a.com\"]\n[grants.t]\nmethods = [\"POST\"]\n{grant}"
        ));
        let declaration = Declaration::parse(clauses).unwrap();
        let right = Right { tool: "t", definition: "", principal: "", declaration: Some(&declaration), own: None };
        let target = Target::parse("https://a.com/v1").unwrap();
        let ask = Ask { target: &target, method: "POST", credential: None, headers: &[] };
        answer_bytes_max(&policy.unwrap(), right, ask, wanted).map_err(|refusal| refusal.why)
    }

    const GRANT: &str = "artifacts = { max_request_bytes = 100, max_response_bytes = 1000 }\n";
    const BODY: Wanted = Wanted { body_bytes: Some(100), answer: false };
    const ANSWER: Wanted = Wanted { body_bytes: None, answer: true };

    fn clause(path: &str, artifacts: &str) -> String {
        format!(r#"{{"http":{{"hosts":["https://a.com"],"methods":["POST"],"path_prefixes":["{path}"]{artifacts}}}}}"#)
    }

    #[test]
    fn both_declaration_and_grant_have_to_name_a_ceiling_and_the_lower_one_holds() {
        let both =
            format!("[{}]", clause("/v1", r#","artifacts":{"max_request_bytes":200,"max_response_bytes":2000}"#));
        let none = format!("[{}]", clause("/v1", ""));
        assert_eq!((allowed(GRANT, &both, BODY), allowed(GRANT, &both, ANSWER)), (Ok(0), Ok(1000)));
        for wanted in [BODY, ANSWER] {
            assert_eq!(allowed("", &both, wanted), Err(Why::ArtifactNotAllowed));
            assert_eq!(allowed(GRANT, &none, wanted), Err(Why::ArtifactNotAllowed));
        }
        let one_more = Wanted { body_bytes: Some(101), answer: true };
        assert_eq!(allowed(GRANT, &both, one_more), Err(Why::RequestTooLarge));
        let narrow = format!("[{}]", clause("/v1", r#","artifacts":{"max_request_bytes":99,"max_response_bytes":7}"#));
        assert_eq!(
            (allowed(GRANT, &narrow, BODY), allowed(GRANT, &narrow, ANSWER)),
            (Err(Why::RequestTooLarge), Ok(7))
        );
    }

    #[test]
    fn a_ceiling_holds_for_the_calls_of_its_own_object_alone() {
        let here = clause("/v1", "");
        let elsewhere = clause("/v2", r#","artifacts":{"max_request_bytes":200,"max_response_bytes":2000}"#);
        assert_eq!(allowed(GRANT, &format!("[{here},{elsewhere}]"), ANSWER), Err(Why::ArtifactNotAllowed));
        // And what one object allows for the body, another one does not lend to the answer.
        let up = clause("/v1", r#","artifacts":{"max_request_bytes":200}"#);
        let down = clause("/v1", r#","artifacts":{"max_response_bytes":200}"#);
        let two = format!("[{up},{down}]");
        assert_eq!((allowed(GRANT, &two, BODY), allowed(GRANT, &two, ANSWER)), (Ok(0), Ok(200)));
        let both_at_once = Wanted { body_bytes: Some(1), answer: true };
        assert_eq!(allowed(GRANT, &two, both_at_once), Err(Why::ArtifactNotAllowed));
    }

    #[test]
    fn code_without_a_declaration_has_no_artifacts() {
        let policy = policy_of(&format!("[policy]\nallow_hosts = [\"https://a.com\"]\n[grants.t]\n{GRANT}")).unwrap();
        let right = Right { tool: "t", definition: "", principal: "", declaration: None, own: None };
        let target = Target::parse("https://a.com/").unwrap();
        let ask = Ask { target: &target, method: "GET", credential: None, headers: &[] };
        assert_eq!(answer_bytes_max(&policy, right, ask, ANSWER).unwrap_err().why, Why::ArtifactNotAllowed);
    }
}
