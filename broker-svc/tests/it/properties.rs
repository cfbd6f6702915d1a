//! What holds of every decision.

use broker_svc::{
    capability::Declaration,
    config::policy_of,
    decide::{Ask, Right, decide},
    method::Method,
    policy::{Grant, Policy},
    refusal::Refusal,
    target::Target,
};
use proptest::{prelude::*, sample::select};

const HOSTS: [&str; 5] = ["https://a.com", "https://b.com", "https://*.a.com", "http://a.com", "https://a.com:8443"];
const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
const CREDENTIALS: [&str; 3] = ["x", "y", "z"];

fn some(items: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(items, 1..=items.len())
}

fn policies() -> impl Strategy<Value = Policy> {
    let lists = (some(&HOSTS), some(&HOSTS), some(&METHODS), some(&CREDENTIALS), some(&HOSTS), any::<bool>());
    lists.prop_map(|(allowed, granted, methods, credentials, own, unrestricted)| {
        let own = format!("kind = \"bearer\"\nfrom = \"env:X\"\nhosts = {own:?}\n");
        let text = format!(
            "[policy]\nallow_hosts = {allowed:?}\nunrestricted = {unrestricted}\n[credentials.x]\n{own}[credentials.y]\n{own}\
             [credentials.z]\n{own}[grants.t]\nhosts = {granted:?}\nmethods = {methods:?}\ncredentials = {credentials:?}\n"
        );
        policy_of(&text).unwrap()
    })
}

fn clauses() -> impl Strategy<Value = String> {
    let prefixes = some(&["/", "/v1", "/v1/users"]);
    (some(&HOSTS), some(&METHODS), prefixes, some(&CREDENTIALS)).prop_map(|(hosts, methods, prefixes, credentials)| {
        format!(
            "{{\"http\":{{\"hosts\":{hosts:?},\"methods\":{methods:?},\"path_prefixes\":{prefixes:?},\"credentials\":{credentials:?}}}}}"
        )
    })
}

type Call = (String, &'static str, Option<&'static str>);

fn calls() -> impl Strategy<Value = Call> {
    let origin = select(vec![
        "https://a.com",
        "https://b.com",
        "https://x.a.com",
        "http://a.com",
        "https://a.com:8443",
        "https://A.com.:443",
        "HTTPS://a.COM",
    ]);
    let path = select(vec![
        "",
        "/",
        "/v1",
        "/v1/users/7",
        "/v1/users%2f7",
        "/v2",
        "/v1 ",
        "/a/../v1",
        "/v1?q=%2f",
        "/v1#f",
        "/%7Ev1",
    ]);
    let credential = prop::option::of(select(CREDENTIALS.to_vec()));
    (origin, path, select(METHODS.to_vec()), credential)
        .prop_map(|(origin, path, method, credential)| (format!("{origin}{path}"), method, credential))
}

fn decided(policy: &Policy, declaration: Option<&Declaration>, call: &Call) -> Result<(), Refusal> {
    let target = Target::parse(&call.0)?;
    let right = Right { tool: "t", definition: "", principal: "p", declaration, own: None };
    decide(policy, right, Ask { target: &target, method: call.1, credential: call.2, headers: &[] }).map(|_| ())
}

fn declaration(clauses: &[String]) -> Declaration {
    Declaration::parse(&format!("[{}]", clauses.join(","))).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_declaration_never_widens(policy in policies(), list in prop::collection::vec(clauses(), 0..3), call in calls()) {
        let declaration = declaration(&list);
        if decided(&policy, Some(&declaration), &call).is_ok() {
            prop_assert!(decided(&policy, None, &call).is_ok());
        }
    }

    #[test]
    fn a_grant_to_one_tool_removes_no_denial_of_another(policy in policies(), list in prop::collection::vec(clauses(), 0..3), call in calls()) {
        let declaration = declaration(&list);
        let mut wider = policy.clone();
        wider.grants.insert("other".to_owned(), Grant {
            credentials: CREDENTIALS.map(str::to_owned).to_vec(),
            methods: Method::ALL.to_vec(),
            ..Grant::default()
        });
        prop_assert_eq!(decided(&wider, None, &call), decided(&policy, None, &call));
        prop_assert_eq!(decided(&wider, Some(&declaration), &call), decided(&policy, Some(&declaration), &call));
    }

    #[test]
    fn what_is_taken_out_of_a_policy_allows_nothing_more(policy in policies(), call in calls(), at in 0..4_usize) {
        let mut narrower = policy.clone();
        let grant = narrower.grants.get_mut("t").unwrap();
        match at {
            0 => { narrower.egress.allow_hosts.pop(); narrower.egress.unrestricted = false; }
            1 => { grant.methods.pop(); }
            2 => { grant.credentials.pop(); }
            _ => { narrower.credentials.pop_last(); }
        }
        if decided(&narrower, None, &call).is_ok() {
            prop_assert!(decided(&policy, None, &call).is_ok());
        }
    }

    #[test]
    fn two_objects_allow_what_one_of_them_allows_and_no_mixture(
        policy in policies(), one in clauses(), other in clauses(), call in calls(),
    ) {
        let alone = |clause: &String| decided(&policy, Some(&declaration(std::slice::from_ref(clause))), &call).is_ok();
        let both = decided(&policy, Some(&declaration(&[one.clone(), other.clone()])), &call).is_ok();
        prop_assert_eq!(both, alone(&one) || alone(&other));
    }

    #[test]
    fn the_normalised_url_is_decided_like_the_url(policy in policies(), list in prop::collection::vec(clauses(), 0..3), call in calls()) {
        let declaration = declaration(&list);
        if let Ok(target) = Target::parse(&call.0) {
            let normal: Call = (target.url().to_string(), call.1, call.2);
            prop_assert_eq!(decided(&policy, Some(&declaration), &call), decided(&policy, Some(&declaration), &normal));
            prop_assert_eq!(&Target::parse(&normal.0).unwrap(), &target);
        }
    }

    #[test]
    fn any_text_is_a_target_or_a_refusal(text in "\\PC{0,40}", scheme in select(vec!["", "https://", "http://", "https:"])) {
        if let Ok(target) = Target::parse(&format!("{scheme}{text}")) {
            prop_assert!(target.url().username().is_empty() && target.url().password().is_none());
            prop_assert!(Target::parse(target.url().as_str()).is_ok_and(|again| again == target));
        }
    }
}
