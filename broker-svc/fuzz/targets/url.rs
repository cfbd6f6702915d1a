//! Any text as a URL: refused, or decided like its normal form, and never a way to an inner address or around the policy.

#![no_main]

use std::sync::LazyLock;

use broker_svc::{
    config::policy_of,
    decide::{Ask, Right, decide},
    destination::{Kind, kind},
    origin::Host,
    policy::Policy,
    target::Target,
};
use libfuzzer_sys::fuzz_target;

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let text = "[policy]\nallow_hosts = [\"https://*.good.com\", \"https://1.1.1.1\"]\n[grants.t]\n";
    policy_of(text).expect("the policy is sound")
});

fuzz_target!(|text: &str| {
    let Ok(target) = Target::parse(text) else { return };
    let again = Target::parse(target.url().as_str()).expect("a normal form parses");
    assert_eq!(again, target);
    let right = Right { tool: "t", definition: "", principal: "", declaration: None, own: None };
    let decided = |target| {
        let ask = Ask { target, method: "GET", credential: None, headers: &[] };
        decide(&POLICY, right, ask).map(|allowed| allowed.method)
    };
    assert_eq!(decided(&target), decided(&again));
    if decided(&target).is_ok() {
        match &target.origin().host {
            Host::Name(name) => assert!(name.ends_with(".good.com"), "{name}"),
            Host::Address(address) => assert_eq!(kind(*address), Kind::Public),
        }
        // What is sent is what was decided.
        assert_eq!(target.url().scheme(), "https");
        assert_eq!(target.url().host_str(), Some(target.origin().host.to_string().as_str()));
        assert!(target.url().username().is_empty() && target.url().password().is_none());
    }
});
