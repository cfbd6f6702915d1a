//! Any text as a file of rules: mistakes with lines inside the text, or rules that mean the same when they are shown and read again.

#![no_main]

use broker_svc::config::{Places, check_whole, policy_of, shown};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines = text.lines().count() + 1;
    match policy_of(text) {
        Err(mistakes) => {
            assert!(!mistakes.each().is_empty());
            assert!(mistakes.each().iter().all(|mistake| mistake.line.is_none_or(|line| (1..=lines).contains(&line))));
        }
        Ok(policy) => {
            let _may_be_refused = check_whole(&policy).map_err(|mistakes| mistakes.placed(&Places::of(text)));
            let again = policy_of(&shown(&policy).to_string()).expect("what is shown can be read");
            assert_eq!(again.digest(), policy.digest());
        }
    }
});
