//! Any text as a declaration: malformed, or one that allows nothing that is not allowed without it.

#![no_main]

use std::sync::LazyLock;

use broker_svc::{
    capability::Declaration,
    config::policy_of,
    decide::{Ask, Right, decide},
    policy::Policy,
    target::Target,
};
use libfuzzer_sys::fuzz_target;

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let text = "[policy]\nallow_hosts = [\"https://a.com\"]\n[grants.t]\nmethods = [\"GET\", \"POST\"]\n";
    policy_of(text).expect("the policy is sound")
});

fuzz_target!(|text: &str| {
    let Ok(declaration) = Declaration::parse(text) else { return };
    for url in ["https://a.com/", "https://a.com/v1/x", "https://b.com/", "http://a.com/"] {
        let target = Target::parse(url).expect("the URL is sound");
        for method in ["GET", "POST", "DELETE"] {
            let ask = Ask { target: &target, method, credential: None, headers: &[] };
            let allowed = |declaration| {
                let right = Right { tool: "t", definition: "", principal: "", declaration, own: None };
                decide(&POLICY, right, ask).is_ok()
            };
            assert!(!allowed(Some(&declaration)) || allowed(None));
        }
    }
});
