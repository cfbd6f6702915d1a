//! `check` names every mistake of a file, each with its key and line: none hides another, and none only follows from another.

use crate::cli::checked;

/// The mistakes of a text, each as its words and its line, in the order in which they are told.
fn mistakes(text: &str) -> Vec<(String, usize)> {
    let (told, good) = checked(text);
    assert!(!good, "{told}");
    let mut parts: Vec<_> = told.split("\n\n").collect();
    let count = parts.pop().unwrap();
    let of = |part: &&str| {
        let (words, place) = part.split_once("\n  --> FILE:").unwrap_or_else(|| panic!("no line: {part}"));
        (words.strip_prefix("error: ").unwrap().to_owned(), place.parse().unwrap())
    };
    let found: Vec<_> = parts.iter().map(of).collect();
    let errors = if found.len() == 1 { "error" } else { "errors" };
    assert_eq!(count, format!("FILE: {} {errors}\n", found.len()));
    found
}

/// That these are the mistakes of a text, by the beginnings of their words, in this order, and no others.
fn has_mistakes(text: &str, expected: &[(&str, usize)]) {
    let found = mistakes(text);
    let right = found.len() == expected.len()
        && found.iter().zip(expected).all(|((words, line), (begin, at))| words.starts_with(begin) && line == at);
    assert!(right, "{text}\n{found:#?}");
}

#[test]
fn check_names_every_mistake_of_every_table_with_its_line() {
    has_mistakes(
        "[policy]\nallow_hosts = [\"https://*\", \"a.com\"]\n[credentials.c]\nkind = \"bearer\"\n\
         [credentials.d]\nkind = \"bearer\"\nfrom = \"sk-live-1\"\nhosts = [\"https://a.com\"]\n[grants.t]\nmethods = [\"get\"]\n",
        &[
            ("[policy] allow_hosts: \"https://*\"", 2),
            ("[policy] allow_hosts: \"a.com\"", 2),
            ("[credentials.c] from: missing", 3),
            ("[credentials.c] hosts: missing", 3),
            ("[credentials.d] from: the place of the value, never", 7),
            ("[grants.t] methods: \"get\"", 10),
        ],
    );
    // Several in one table, several in one list, and what is of another kind.
    has_mistakes(
        "[grants.x]\nmethods = [\"get\", \"GET\", \"post\"]\nrate = \"10\"\nhosts = [\"ftp://x.com\", 7]\n\
         definitions = [\"ab\"]\nidempotency_key = \"yes\"\ncredentials = [\"nobody\"]\n\
         artifacts = { max_request_bytes = 99999999, max_response_bytes = -1 }\n[grants.y]\nmethods = []\nrate = 10\nhosts = \"https://a.com\"\n",
        &[
            ("[grants.x] methods: \"get\"", 2),
            ("[grants.x] methods: \"post\"", 2),
            ("[grants.x] rate: \"10\" is no rate", 3),
            ("[grants.x] hosts: \"ftp://x.com\" does not begin with https://", 4),
            ("[grants.x] hosts: is an integer: write a string", 4),
            ("[grants.x] definitions: \"ab\"", 5),
            ("[grants.x] idempotency_key: is a string: write true or false", 6),
            ("[grants.x] credentials: \"nobody\" is no credential", 7),
            ("[grants.x] artifacts max_response_bytes: is no number", 8),
            ("[grants.x] artifacts: max_request_bytes 99999999 is over", 8),
            ("[grants.y] methods: an empty list", 10),
            ("[grants.y] rate: is an integer: write a string", 11),
            ("[grants.y] hosts: is a string: write a list", 12),
        ],
    );
}

#[test]
fn check_names_every_mistake_of_a_credential_whatever_its_kind() {
    has_mistakes(
        "[credentials.z]\nkind = \"beerer\"\nhosts = [\"https://*.com\", \"https://x.com/p\"]\nowner = \"a b\"\nfrom = \"x\"\nuser = \"a:b\"\n",
        &[
            ("[credentials.z] kind: no kind", 2),
            ("[credentials.z] hosts: \"https://*.com\"", 3),
            ("[credentials.z] hosts: \"https://x.com…\"", 3),
            ("[credentials.z] owner: \"a b\"", 4),
            ("[credentials.z] from: the place", 5),
            ("[credentials.z] user: has a `:`", 6),
        ],
    );
    has_mistakes(
        "[credentials.b]\nkind = \"basic\"\nfrom = \"env:1\"\nuser = \"a:b\"\nhosts = []\nrefresh = \"never\"\nheader = \"X\"\nscopes = [\"a b\"]\n",
        &[
            ("[credentials.b] from: the place", 3),
            ("[credentials.b] user: has a `:`", 4),
            ("[credentials.b] hosts: an empty list", 5),
            ("[credentials.b] refresh: \"never\"", 6),
            ("[credentials.b] header: is no key of kind basic", 7),
            ("[credentials.b] scopes: is no key of kind basic", 8),
        ],
    );
    has_mistakes(
        "[credentials.o]\nkind = \"oauth2_refresh\"\ntoken_url = \"http://a.com/t\"\nclient_auth = \"x\"\nscopes = [\"a b\", \"c d\"]\n\
         audience = \"\"\nclient_secret_from = \"x\"\n[credentials.s]\nkind = \"aws_sigv4\"\nfrom = \"env:X\"\nhosts = [\"https://a.com\"]\n\
         region = \"a b\"\nsession_token_from = \"y\"\nrefresh = \"5m\"\n",
        &[
            ("[credentials.o] client_id: missing", 1),
            ("[credentials.o] from: missing", 1),
            ("[credentials.o] hosts: missing", 1),
            ("[credentials.o] token_url: http://a.com is plain http", 3),
            ("[credentials.o] client_auth: write basic", 4),
            ("[credentials.o] scopes: \"a b\"", 5),
            ("[credentials.o] scopes: \"c d\"", 5),
            ("[credentials.o] audience: is empty", 6),
            ("[credentials.o] client_secret_from: the place", 7),
            ("[credentials.s] access_key_id: missing", 8),
            ("[credentials.s] service: missing", 8),
            ("[credentials.s] region: \"a b\" may have", 12),
            ("[credentials.s] session_token_from: the place", 13),
        ],
    );
    has_mistakes(
        "[vault]\naddress = \"http://vault:8200\"\ntoken = \"cmd:/x\"\nnamespace = \"\"\nport = 1\n[credentials]\nx = 7\n\"a b\" = {}\n",
        &[
            ("[vault] address: http://vault:8200 is plain http", 2),
            ("[vault] token: has to be env: or file: here", 3),
            ("[vault] namespace: is empty", 4),
            ("[vault]: unknown field `port`", 5),
            ("[credentials.x]: is an integer: write a table", 7),
            ("[credentials.\"a b\"]: the name may have", 8),
            ("[credentials.\"a b\"] kind: missing", 8),
            ("[credentials.\"a b\"] from: missing", 8),
            ("[credentials.\"a b\"] hosts: missing", 8),
        ],
    );
}

#[test]
fn check_names_what_rules_say_of_each_other_beside_what_is_wrong_with_them() {
    // A credential that is there and wrong is there; one that is not is named beside other mistakes of its grant.
    has_mistakes(
        "[policy]\nallow_hosts = [\"https://a.com\"]\n[credentials.c]\nkind = \"oauth2_client_credentials\"\nclient_id = \"me\"\n\
         token_url = \"https://b.com/token\"\nfrom = \"vault:secret/data/x#y\"\n[grants.t]\ncredentials = [\"c\", \"d\"]\nrate = \"10\"\n",
        &[
            ("[credentials.c] hosts: missing", 3),
            ("[credentials.c] token_url: https://b.com is not in [policy] allow_hosts", 6),
            ("[credentials.c] from: vault: needs a [vault]", 7),
            ("[grants.t] credentials: \"d\" is no credential", 9),
            ("[grants.t] rate: \"10\"", 10),
        ],
    );
    // Of a policy that cannot be read nothing is said to be outside, and a [vault] that is wrong is there.
    has_mistakes(
        "[policy]\nallow_hosts = [\"b.com\"]\n[vault]\naddress = \"https://v.com\"\n[credentials.c]\nkind = \"oauth2_client_credentials\"\n\
         client_id = \"me\"\ntoken_url = \"https://b.com/token\"\nfrom = \"vault:secret/data/x#y\"\nhosts = [\"https://a.com\"]\n",
        &[("[policy] allow_hosts: \"b.com\"", 2), ("[vault] token: missing", 3)],
    );
}

#[test]
fn check_names_every_mistake_of_the_settings_beside_the_rules() {
    has_mistakes(
        "call_timeout = \"0s\"\nreplica = \"a b\"\negress_listen = \"0.0.0.0:7431\"\n[grants.t]\nrate = \"10\"\n",
        &[
            ("--call-timeout is not between", 1),
            ("--replica may have", 2),
            ("--egress-listen 0.0.0.0:7431 can be reached", 3),
            ("[grants.t] rate", 5),
        ],
    );
    has_mistakes(
        "max_calls_in_flight = \"x\"\nreplica = 7\npolcy = 1\n[serve]\ndrain = 7\nlissen = \"x\"\nlisten = 7\n[telemetry]\nlog = 7\n[grants.t]\nrate = \"10\"\n",
        &[
            ("invalid type: string, expected u32 in `max_calls_in_flight`", 1),
            ("invalid type: integer, expected a string in `replica`", 2),
            ("unknown field `polcy`, expected one of `policy`, `vault`, `credentials`, `grants`", 3),
            ("invalid type: integer, expected a string in `serve.drain`", 5),
            ("unknown field `lissen`, expected one of `listen`", 6),
            ("invalid type: integer, expected ", 7),
            ("invalid type: integer, expected a string in `telemetry.log`", 9),
            ("[grants.t] rate", 11),
        ],
    );
}

#[test]
fn check_reads_over_keys_that_nobody_knows_and_over_keys_that_come_twice() {
    has_mistakes(
        "[policy]\nallow_host = [\n\"https://a.com\",\n]\nallow_private = [\"10.0.0.0/33\"]\n[grants.t]\nmethds = [\"GET\"]\n\
         methods = [\"get\"]\nmethods = [\"GET\"]\nsk-1 = 1\n[polcy]\nallow_hosts = 1\n[grants.u]\nrate = \"x\"\n\
         credentials = [\"nobody\"]\n",
        &[
            ("[policy]: unknown field `allow_host`, expected `unrestricted`, `allow_hosts`, `allow_private`", 2),
            ("[policy] allow_private: \"10.0.0.0/33\"", 5),
            ("[grants.t]: unknown field `methds`", 7),
            ("[grants.t] methods: \"get\"", 8),
            ("duplicate key", 9),
            ("[grants.t]: unknown field, expected", 10),
            ("unknown field `polcy`", 11),
            ("[grants.u] rate", 14),
            ("[grants.u] credentials: \"nobody\" is no credential", 15),
        ],
    );
    // Of a text that is no TOML its mistakes of form are told, and nothing that would be guessed.
    has_mistakes(
        "[policy\nallow_hosts = [\"a\"]\n[grants.t]\nrate = \n",
        &[("unclosed table", 1), ("string values must be quoted", 4)],
    );
}
