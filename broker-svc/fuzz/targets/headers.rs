//! Any names and values as request headers: refused, or each once, sendable in one line, and none of the broker's own.

#![no_main]

use broker_svc::{
    config::policy_of,
    decide::{Ask, Right, decide},
    headers::{RequestHeaders, is_brokers},
    target::Target,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|given: (Vec<(String, String)>, String)| {
    let (lines, content_type) = given;
    let Ok(checked) = RequestHeaders::check(&lines, &content_type) else { return };
    let names = checked.names();
    for (name, value) in &checked.lines {
        assert_eq!(names.iter().filter(|other| **other == name.as_str()).count(), 1);
        assert!(value.as_bytes().iter().all(|byte| *byte == b'\t' || (b' '..0x7f).contains(byte)));
    }
    let policy = policy_of("[policy]\nunrestricted = true\n[grants.t]\n").expect("the policy is sound");
    let target = Target::parse("https://api.good.com/").expect("the URL is sound");
    let right = Right { tool: "t", definition: "", principal: "", declaration: None, own: None };
    let ask = Ask { target: &target, method: "GET", credential: None, headers: &names };
    if decide(&policy, right, ask).is_ok() {
        assert!(names.iter().all(|name| !is_brokers(name)));
    }
});
