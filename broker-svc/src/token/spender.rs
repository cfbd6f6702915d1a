//! Who may spend a token, and whether the one who shows it is that one.

use std::sync::{Arc, OnceLock};

use super::Binding;
use crate::{
    audit::Door,
    refusal::{Refusal, Why},
};

/// Who spends a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spender {
    /// Whoever has it.
    #[default]
    Anyone,
    /// A sandbox, for a module.
    Sandbox,
    /// The runner, for a model.
    Runner,
    /// A child process, by the HTTP door.
    Child,
}

/// The effect that somebody says to make a call for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The run.
    pub run_id: String,
    /// Path of the fan-out task.
    pub task_path: String,
    /// The node.
    pub node: String,
    /// The attempt.
    pub attempt: u32,
    /// The effect's number.
    pub effect_seq: u32,
    /// The tool.
    pub tool_name: String,
    /// Address of its definition.
    pub definition_hash: String,
    /// Whose effect it is.
    pub tenant: String,
}

/// Whoever shows a token.
#[derive(Debug, Clone)]
pub struct Shower {
    /// The way it came.
    pub door: Door,
    /// Whether it may be the sandbox, and whether it may be the runner.
    pub plays: (bool, bool),
    /// The names in its certificate; absent without one.
    pub certificate: Option<Arc<[String]>>,
    /// For which effect it says to call.
    pub claimed: Option<Claimed>,
}

/// The certificate that a token was first shown with: it serves no other.
#[derive(Debug, Default)]
pub struct Bound(OnceLock<Option<Arc<[String]>>>);

impl Spender {
    /// Refuses whoever is not the spender, or calls for another effect than the token's.
    pub fn check(self, binding: &Binding, bound: &Bound, shower: &Shower) -> Result<(), Refusal> {
        let (sandbox, runner) = shower.plays;
        let (fits, names_effect) = match self {
            Self::Anyone => (true, false),
            Self::Sandbox => (shower.door == Door::Grpc && sandbox, true),
            Self::Runner => (shower.door == Door::Grpc && runner, true),
            Self::Child => (shower.door == Door::Http, false),
        };
        if !fits {
            return Err(mismatch("spender"));
        }
        match &shower.claimed {
            Some(claimed) => claimed.is_of(binding).map_err(mismatch)?,
            None if names_effect => return Err(mismatch("effect")),
            None => {}
        }
        if shower.door == Door::Grpc && bound.0.get_or_init(|| shower.certificate.clone()) != &shower.certificate {
            return Err(mismatch("certificate"));
        }
        Ok(())
    }

    /// The same of a call that the runner makes for a module, with the token that it minted for the module's sandbox: only that
    /// token will do, and no certificate is bound by it.
    pub fn check_relayed(self, binding: &Binding, claimed: Option<&Claimed>) -> Result<(), Refusal> {
        match (self, claimed) {
            (Self::Runner | Self::Child, _) => Err(mismatch("spender")),
            (Self::Sandbox, None) => Err(mismatch("effect")),
            (Self::Anyone, None) => Ok(()),
            (Self::Sandbox | Self::Anyone, Some(claimed)) => claimed.is_of(binding).map_err(mismatch),
        }
    }
}

impl Claimed {
    /// The first part that differs from what the token was minted for.
    fn is_of(&self, binding: &Binding) -> Result<(), &'static str> {
        let parts = [
            ("tenant", self.tenant == binding.tenant),
            ("run", self.run_id == binding.run_id),
            ("node", (&self.node, &self.task_path) == (&binding.node, &binding.task_path)),
            ("attempt", self.attempt == binding.attempt),
            ("effect", self.effect_seq == binding.effect_seq),
            ("tool", self.tool_name == binding.tool_name),
            ("definition", self.definition_hash == binding.definition_hash),
        ];
        match parts.into_iter().find(|(_, same)| !same) {
            Some((part, _)) => Err(part),
            None => Ok(()),
        }
    }
}

/// Names the part alone: what the token is for is not told to whoever should not have it.
fn mismatch(part: &str) -> Refusal {
    let text =
        format!("the egress token was minted for another {part}: call with the token that came with this effect");
    Refusal::new(Why::TokenBindingMismatch, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding() -> Binding {
        Binding {
            run_id: "run-a".into(),
            node: "post".into(),
            attempt: 1,
            tool_name: "tool-a".into(),
            definition_hash: "ab".repeat(32),
            tenant: "tenant-a".into(),
            ..Binding::default()
        }
    }

    fn claimed() -> Claimed {
        Claimed {
            run_id: "run-a".into(),
            node: "post".into(),
            attempt: 1,
            tool_name: "tool-a".into(),
            definition_hash: "ab".repeat(32),
            tenant: "tenant-a".into(),
            ..Claimed::default()
        }
    }

    fn sandbox(claimed: Option<Claimed>) -> Shower {
        Shower { door: Door::Grpc, plays: (true, false), certificate: None, claimed }
    }

    fn checked(spender: Spender, shower: &Shower) -> Result<(), Why> {
        spender.check(&binding(), &Bound::default(), shower).map_err(|refusal| refusal.why)
    }

    #[test]
    fn what_the_runner_makes_for_a_module_needs_that_modules_token_and_effect() {
        let check = |spender: Spender, claimed: Option<&Claimed>| {
            spender.check_relayed(&binding(), claimed).map_err(|refusal| refusal.why)
        };
        let other = Claimed { node: "other".into(), ..claimed() };
        assert_eq!(check(Spender::Sandbox, Some(&claimed())), Ok(()));
        for (spender, claimed) in [
            (Spender::Sandbox, None),
            (Spender::Sandbox, Some(&other)),
            (Spender::Anyone, Some(&other)),
            (Spender::Runner, Some(&claimed())),
            (Spender::Child, Some(&claimed())),
        ] {
            assert_eq!(check(spender, claimed), Err(Why::TokenBindingMismatch), "{spender:?} {claimed:?}");
        }
    }

    #[test]
    fn t01_a_token_serves_its_own_effect_and_no_other_tool_run_step_or_tenant() {
        assert_eq!(checked(Spender::Sandbox, &sandbox(Some(claimed()))), Ok(()));
        type Spoil = fn(&mut Claimed);
        let others: [Spoil; 8] = [
            |claimed| claimed.tool_name = "tool-b".into(),
            |claimed| claimed.definition_hash = "cd".repeat(32),
            |claimed| claimed.run_id = "run-b".into(),
            |claimed| claimed.node = "other".into(),
            |claimed| claimed.task_path = "0".into(),
            |claimed| claimed.attempt = 2,
            |claimed| claimed.effect_seq = 1,
            |claimed| claimed.tenant = "tenant-b".into(),
        ];
        for (place, spoil) in others.into_iter().enumerate() {
            let mut other = claimed();
            spoil(&mut other);
            for spender in [Spender::Sandbox, Spender::Runner, Spender::Anyone] {
                let shower = Shower { plays: (true, true), ..sandbox(Some(other.clone())) };
                assert_eq!(checked(spender, &shower), Err(Why::TokenBindingMismatch), "{place} {spender:?}");
            }
        }
        assert_eq!(checked(Spender::Sandbox, &sandbox(None)), Err(Why::TokenBindingMismatch), "it has to say");
    }

    #[test]
    fn t01_each_spender_comes_by_its_own_way() {
        let by = |door, plays| Shower { door, plays, certificate: None, claimed: Some(claimed()) };
        let ways = [
            by(Door::Grpc, (true, false)),
            by(Door::Grpc, (false, true)),
            Shower { claimed: None, ..by(Door::Http, (false, false)) },
        ];
        for (spender, fits) in [
            (Spender::Sandbox, [true, false, false]),
            (Spender::Runner, [false, true, false]),
            (Spender::Child, [false, false, true]),
            (Spender::Anyone, [true, true, true]),
        ] {
            assert_eq!(ways.each_ref().map(|way| checked(spender, way).is_ok()), fits, "{spender:?}");
        }
    }

    #[test]
    fn t01_a_token_serves_the_first_workload_certificate_alone() {
        let bound = Bound::default();
        let with = |names: Option<&[&str]>| {
            let certificate = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            Shower { certificate, ..sandbox(Some(claimed())) }
        };
        let one = ["spiffe://areev.local/sandbox", "spiffe://areev.local/node/1"];
        let other = ["spiffe://areev.local/sandbox", "spiffe://areev.local/node/2"];
        let check = |shower: &Shower| Spender::Sandbox.check(&binding(), &bound, shower).is_ok();
        assert!(check(&with(Some(&one))) && check(&with(Some(&one))));
        assert!(!check(&with(Some(&other))) && !check(&with(None)));
        assert!(check(&with(Some(&one))));
        // A refused effect binds nothing.
        let fresh = Bound::default();
        let wrong = Shower { claimed: Some(Claimed::default()), ..with(Some(&other)) };
        assert!(Spender::Sandbox.check(&binding(), &fresh, &wrong).is_err());
        assert!(Spender::Sandbox.check(&binding(), &fresh, &with(Some(&one))).is_ok());
    }
}
