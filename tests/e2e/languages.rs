//! The same tool in four languages: the same outputs, through the whole way and in the one-shot form.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use e2e::{
    binaries,
    client::Client,
    document::Definition,
    guests::{LANGUAGES, reference},
    stack::Stack,
    upstream::{Answer, Upstream},
};
use proto::{broker::v1::ListCallsRequest, runner::v1::RunStatus};
use serde_json::{Value, json};

const SECRET: &str = "areev-canary-Zq7-of-the-reference";

/// What the transform gets and gives.
fn invoice() -> (Value, &'static str) {
    let lines = json!([{"what": "paper é \"A4\"", "cents": 1250}, {"cents": 99}, {"cents": 4_000_000_000_u64}]);
    (json!({"invoice": "2024-117", "lines": lines}), r#"{"total_cents":4000001349,"lines":3}"#)
}

/// Inputs that a tool must not touch.
fn untouchable() -> [Value; 2] {
    [
        json!({"b": [1, 2.5, {}, null], "a": 9_007_199_254_740_993_u64, "é": "\u{0} \" \\ \u{1F980}"}),
        json!({"a": "x".repeat(300_000)}),
    ]
}

/// What the one node of a run gave.
async fn given(client: &Client, plan: &str, run_id: &str) -> String {
    let actions = client.step_actions(plan).await.unwrap();
    let action = actions.into_iter().find(|action| action.run_id == run_id).expect("the run has a row");
    assert_eq!((action.status.as_str(), action.failure_detail.as_str()), ("completed", ""), "{run_id}");
    action.tool_content
}

/// What a language's fetch tool gives for a call that it may make, and for one that it may not.
async fn called_out(client: &Client, language: &str, origin: &str) -> Vec<String> {
    let asked = json!({"url": origin, "method": "POST", "credential": "bank", "body": "héllo"});
    let refused = json!({"url": origin, "method": "DELETE"});
    let uri = client.put_blob(&reference(language, "fetch").unwrap()).await.unwrap();
    let http = json!({"hosts": [origin], "methods": ["POST", "DELETE"], "credentials": ["bank"]});
    let plan = client.put_work(&Definition::io("work", &uri, json!([{"http": http}]))).await.unwrap();
    let mut outputs = Vec::new();
    for (name, input) in [("asked", &asked), ("refused", &refused)] {
        let id = format!("{language}-{name}");
        let run = client.run(&id, &plan, input).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{id}: {}", run.reason);
        outputs.push(given(client, &plan, &id).await);
    }
    outputs
}

#[tokio::test]
async fn a_pure_tool_gives_the_same_in_every_language() {
    let modules: Vec<_> =
        LANGUAGES.iter().flat_map(|language| ["echo", "transform"].map(|tool| (*language, tool))).collect();
    let builder = modules.iter().fold(Stack::builder().unwrap().sandbox(), |builder, (language, tool)| {
        builder.pin(&reference(language, tool).unwrap())
    });
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    for (language, tool) in modules {
        let uri = client.put_blob(&reference(language, tool).unwrap()).await.unwrap();
        let plan = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
        let cases: Vec<(Value, String)> = match tool {
            "echo" => untouchable().into_iter().map(|input| (input.clone(), input.to_string())).collect(),
            _ => vec![(invoice().0, invoice().1.to_owned())],
        };
        for (number, (input, expected)) in cases.into_iter().enumerate() {
            let id = format!("{language}-{tool}-{number}");
            let run = client.run(&id, &plan, &input).await.unwrap();
            assert_eq!(run.status(), RunStatus::Completed, "{id}: {}", run.reason);
            assert_eq!(given(&client, &plan, &id).await, expected, "{id}");
            assert!(run.spent.unwrap().fuel > 0, "{id}");
        }
    }
}

/// Rules by which `work` may POST to an upstream, with its credential `bank`.
fn settings(origin: &str) -> String {
    format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [credentials.bank]\nkind = \"bearer\"\nfrom = \"env:E2E_BANK\"\nhosts = [{origin:?}]\n\
         [grants.work]\ncredentials = [\"bank\"]\nmethods = [\"POST\"]\nhosts = [{origin:?}]\n"
    )
}

#[tokio::test]
async fn a_tool_that_calls_out_gets_the_same_answers_in_every_language() {
    let upstream = Upstream::start(|request| {
        let authorized = request.header("authorization") == [format!("Bearer {SECRET}")];
        Some(Answer::json(201, &json!({"authorized": authorized, "said": request.body_text()})))
    });
    let upstream = upstream.await.unwrap();
    let origin = upstream.origin();
    let settings = settings(&origin);
    let builder = LANGUAGES.iter().fold(Stack::builder().unwrap().sandbox(), |builder, language| {
        builder.pin(&reference(language, "fetch").unwrap())
    });
    let stack = builder.broker(&settings, &[("E2E_BANK", SECRET)]).unwrap().start().await.unwrap();
    let client = stack.client();
    let mut seen = Vec::new();
    for language in LANGUAGES {
        seen.push(called_out(&client, language, &origin).await);
    }
    let body = json!({"authorized": true, "said": "héllo"}).to_string();
    assert_eq!(seen[0][0], format!("{{\"status\":201,\"body\":{}}}", json!(body)));
    assert!(seen[0][1].contains("\"code\":\"RUN-E022\""), "{}", seen[0][1]);
    assert!(seen.iter().all(|outputs| *outputs == seen[0]), "{seen:#?}");
    assert_eq!(upstream.received().len(), LANGUAGES.len(), "one call each went out");
}

/// Exit code, stdout and stderr of the one-shot form.
fn exec(module: &Path, arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(binaries::directory().unwrap().join("sandbox-svc"))
        .args(["exec", "--module"])
        .arg(module)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _refused_early = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_one_shot_form_runs_every_reference_guest_alike() {
    let modules = binaries::workspace().join("tests/guests/wasm");
    let (input, total) = invoice();
    for language in LANGUAGES {
        let module = |tool: &str| modules.join(language).join(format!("{tool}.wasm"));
        let (code, out, err) =
            exec(&module("echo"), &["--fuel", "5000000", "--max-pages", "64"], "{ \"a\" : [1, 2] }\n");
        assert_eq!((code, out.as_str()), (Some(0), "{\"a\":[1,2]}\n"), "{language}: {err}");
        let fuel = err.strip_prefix("fuel used ").and_then(|rest| rest.strip_suffix('\n')).map(str::parse::<u64>);
        assert!(matches!(fuel, Some(Ok(1..))), "{language}: one line of fuel, and nothing else: {err:?}");

        let (code, out, _) = exec(&module("transform"), &[], &input.to_string());
        assert_eq!((code, out), (Some(0), format!("{total}\n")), "{language}");

        let (code, out, err) = exec(&module("fetch"), &[], "{}");
        assert_eq!((code, out.as_str()), (Some(1), ""), "{language}");
        assert!(err.contains("`areev::fetch` is refused") && err.contains("--allow-fetch"), "{language}: {err}");
        let arguments = ["--allow-fetch", "--max-response-bytes", "1024", "--fuel", "50000000"];
        let (code, out, err) = exec(&module("fetch"), &arguments, "{\"url\":\"https://example.com/\"}");
        assert_eq!(code, Some(0), "{language}: {err}");
        assert!(out.contains("AREEV_EGRESS_URL") && out.contains("RUN-E022"), "{language}: {out}");

        let (code, out, err) = exec(&module("transform"), &["--fuel", "10"], &input.to_string());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{language}");
        assert!(err.ends_with("fuel used 10\n") && err.contains("guest exhausted its fuel"), "{language}: {err}");
    }
}

#[tokio::test]
async fn the_runners_sandbox_command_is_the_one_shot_form() {
    let program = format!("{} exec", binaries::directory().unwrap().join("sandbox-svc").display());
    let builder = LANGUAGES
        .iter()
        .fold(Stack::builder().unwrap(), |builder, language| builder.pin(&reference(language, "transform").unwrap()));
    let builder = builder.pin(&reference("rust", "read").unwrap());
    let stack = builder.runner(|flags| flags.sandbox_cmd(Path::new(&program))).start().await.unwrap();
    let client = stack.client();
    let (input, total) = invoice();
    for language in LANGUAGES {
        let uri = client.put_blob(&reference(language, "transform").unwrap()).await.unwrap();
        let limits = json!({"fuel": 50_000_000, "max_pages": 64});
        let definition = Definition::pure("work", &uri).with("runtime_limits", limits);
        let plan = client.put_work(&definition).await.unwrap();
        let run = client.run(language, &plan, &input).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{language}: {}", run.reason);
        assert_eq!(given(&client, &plan, language).await, total, "{language}");
        assert!(run.spent.unwrap().fuel > 0, "{language}: the fuel line was read");
    }
    let blob = client.put_blob(b"read by a command").await.unwrap();
    let uri = client.put_blob(&reference("rust", "read").unwrap()).await.unwrap();
    let definition = Definition::io("work", &uri, json!([{"blob": {"read": true}}]));
    let plan = client.put_work(&definition.with("runtime_limits", json!({"max_blob_bytes": 17}))).await.unwrap();
    let run = client.run("read", &plan, &json!({"blob": blob})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(given(&client, &plan, "read").await, r#"{"bytes":17,"begins":"read by a comman"}"#);
}

#[tokio::test]
async fn a_tool_that_calls_out_of_the_one_shot_form_goes_by_the_door_and_sees_no_secret() {
    let upstream = Upstream::start(|request| {
        let shown = request.header("authorization").join(",");
        Some(Answer::json(201, &json!({"you_sent": shown, "said": request.body_text()})))
    });
    let upstream = upstream.await.unwrap();
    let origin = upstream.origin();
    let program = format!("{} exec", binaries::directory().unwrap().join("sandbox-svc").display());
    let builder = LANGUAGES
        .iter()
        .fold(Stack::builder().unwrap(), |builder, language| builder.pin(&reference(language, "fetch").unwrap()));
    let builder = builder.runner(|flags| flags.sandbox_cmd(Path::new(&program)));
    let builder = builder.broker(&settings(&origin), &[("E2E_BANK", SECRET)]).unwrap();
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let body = json!({"you_sent": "Bearer [redacted]", "said": "héllo"}).to_string();
    for language in LANGUAGES {
        let outputs = called_out(&client, language, &origin).await;
        assert_eq!(outputs[0], format!("{{\"status\":201,\"body\":{}}}", json!(body)), "{language}");
        assert!(outputs[1].contains("\"code\":\"RUN-E022\"") && outputs[1].contains("DELETE"), "{}", outputs[1]);

        let calls = ListCallsRequest { run_id: format!("{language}-asked"), ..Default::default() };
        let calls = stack.broker_client().list_calls(calls).await.unwrap().into_inner().calls;
        let seen: Vec<_> =
            calls.iter().map(|call| (call.door.as_str(), call.credential.as_str(), call.status)).collect();
        assert_eq!(seen, [("http", "bank", 201)], "{language}");
    }
    let received = upstream.received();
    assert_eq!(received.len(), LANGUAGES.len(), "one call each went out");
    for request in received {
        assert_eq!(request.header("authorization"), [format!("Bearer {SECRET}")]);
        assert_eq!(request.body_text(), "héllo");
    }
}
