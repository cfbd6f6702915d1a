//! The hostile cases, and that each is tried by a test that names it: `u1_…`, or several as `u1_u2_…`.

use std::{collections::BTreeSet, fs, path::Path};

/// What is tried, by the prefix of its tests.
const CASES: &[(&str, &str)] = &[
    ("u1", "inner addresses in every spelling of a number"),
    ("u2", "metadata services, whatever names them"),
    ("u4", "NAT64, 6to4, Teredo, reserved and multicast addresses"),
    ("u5", "the neighbours of private ranges"),
    ("u7", "userinfo, and URLs that are not absolute"),
    ("u9", "wildcards and lookalikes of suffixes"),
    ("u10", "lookalike letters"),
    ("u11", "other schemes, and secrets in plain text"),
    ("u12", "answers that change, or mix inner and public addresses"),
    ("u13", "proxy variables"),
    ("u14", "redirects of every kind"),
    ("h1", "Host, authority and forwarding headers"),
    ("h2", "a credential's slot in any spelling, twice"),
    ("h3", "cookies and the slots of other credentials"),
    ("h5", "line breaks, NUL, bad names"),
    ("h6", "framing headers"),
    ("h8", "cookies of an upstream"),
    ("p1", "no policy, an empty or a broken one"),
    ("p2", "methods beside the granted ones, and ways around them"),
    ("p3", "one credential at another one's host"),
    ("p6", "declared and granted hosts that differ"),
    ("p7", "rules that change under running calls"),
    ("p8", "one decision for every way in"),
    ("c1", "unknown and ungranted credentials, told apart by nobody"),
    ("c2", "each kind of credential, once and in its place"),
    ("c3", "user and password with odd letters"),
    ("c5", "secret files with line ends, controls, nothing, too much"),
    ("c7", "a token endpoint that leads astray"),
    ("c8", "lives of tokens that are missing or absurd"),
    ("c9", "many callers at the moment of a refresh"),
    ("r1", "echoes of a secret in every spelling"),
    ("r3", "secrets in headers of an answer"),
    ("r4", "encoded bodies"),
    ("r6", "answers that never end"),
    ("r7", "answers that are too long, too short, or explode"),
    ("r8", "many large answers at once"),
    ("r10", "bodies that are no text"),
    ("t1", "a token in the hands of another tool, run, step, tenant or workload"),
    ("t2", "tokens before and after their time"),
    ("t3", "tokens after revocation, the end of a run, a restart"),
    ("t4", "bent, unsigned and foreign tokens"),
    ("t5", "floods of wrong tokens"),
    ("t6", "tokens for more than was granted"),
    ("s1", "what a sandbox can see"),
    ("s2", "logs at their loudest, metrics, files, core files"),
    ("s3", "errors of the network"),
    ("s4", "a panic beside a secret"),
    ("s5", "descriptions and health"),
    ("o3", "a broker that is lost in the middle of a call"),
    ("o4", "calls in flight when the process is told to end"),
];

/// The prefixes of a test's name: `u1_u02_what_happens` has two.
fn prefixes(name: &str) -> impl Iterator<Item = String> + '_ {
    name.split('_').map_while(|word| {
        let (letter, digits) = word.split_at_checked(1)?;
        let number: u32 = digits.parse().ok().filter(|_| letter.bytes().all(|byte| byte.is_ascii_lowercase()))?;
        Some(format!("{letter}{number}"))
    })
}

fn named(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            named(&entry.path(), found);
        } else if entry.path().extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(entry.path()).unwrap();
            let tests = text.split("#[test]\n").chain(text.split("#[tokio::test")).skip(1);
            for test in tests {
                let name = test.split("fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap_or_default();
                found.extend(prefixes(name));
            }
        }
    }
}

#[test]
fn every_hostile_case_is_tried_by_a_test_that_names_it() {
    let mut found = BTreeSet::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "tests/it", "../tests/e2e"] {
        named(&here.join(folder), &mut found);
    }
    let missing: Vec<_> = CASES.iter().filter(|(case, _)| !found.contains(*case)).collect();
    assert!(missing.is_empty(), "no test names {missing:?}");
    assert!(!found.contains("u99") && prefixes("u1_u02_an_address").eq(["u1", "u2"]));
}
