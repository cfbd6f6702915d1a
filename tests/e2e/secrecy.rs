//! A canary for a secret: it reaches the upstream, and nothing else, at any log level. Every test that gives a broker a secret
//! searches all that its services wrote and answered; these go every way that a call can take, and plant what has to be found.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use e2e::{
    canary,
    document::Definition,
    guests,
    process::{PATIENCE, POLL},
    search,
    shell_tool::ShellTool,
    stack::{Stack, Who},
    upstream::{Answer, Received, Upstream},
};
use proto::{
    broker::v1::{CallRecord, DescribeRequest, ListCallsRequest},
    runner::v1::RunStatus,
};
use serde_json::{Value, json};

const CANARY: &str = "areev-canary-Zq7/7f3a91+find-me-not";

/// Hands the caller back everything that it sent, in several spellings, in the way that the path asks for.
fn reflect(request: &Received, elsewhere: &str) -> Option<Answer> {
    use base64::Engine as _;
    let seen = request.header("authorization").join(",");
    let body = json!({
        "raw": seen,
        "base64": base64::engine::general_purpose::STANDARD.encode(CANARY),
        "hex": hex::encode(CANARY),
        "head": request.head,
    });
    let told = |status| {
        let mut answer = Answer::json(status, &body);
        answer.headers.push(("x-reflected".to_owned(), seen.clone()));
        answer.headers.push(("etag".to_owned(), format!("\"{CANARY}\"")));
        answer
    };
    let with = |mut answer: Answer, name: &str, value: String| {
        answer.headers.push((name.to_owned(), value));
        answer
    };
    let path = request.head.split(' ').nth(1).unwrap_or_default();
    Some(match path {
        "/denied" => told(401),
        "/slow" => return None,
        "/away" => with(told(302), "location", format!("{elsewhere}/landing")),
        "/away-with-it" => with(told(307), "location", format!("{elsewhere}/landing?key={CANARY}")),
        "/down" => with(told(302), "location", "http://127.0.0.1:9/".to_owned()),
        "/header" => with(told(200), "x-long", CANARY.repeat(16 * 1024 / CANARY.len())),
        "/gzip" => with(told(200), "content-encoding", "gzip".to_owned()),
        "/over" => Answer { body: CANARY.repeat(64 * 1024).into_bytes(), ..told(200) },
        _ => told(200),
    })
}

/// Every way that a call ends, with the reason that its record gives.
fn calls(origin: &str, nowhere: &str) -> Vec<(Value, &'static str)> {
    let call = |path: &str| json!({"url": format!("{origin}{path}"), "credential": "bank"});
    vec![
        (call("/"), ""),
        (call("/denied"), ""),
        (call("/away"), ""),
        (call("/away-with-it"), "redirect_refused"),
        (call("/down"), "host_not_allowed"),
        (call("/header"), ""),
        (call("/gzip"), "encoded_body"),
        (call("/over"), "response_too_large"),
        (call("/slow"), "deadline_exceeded"),
        (json!({"url": nowhere, "credential": "bank"}), "connect_failed"),
        (json!({"url": "https://refused.example/", "credential": "bank"}), "host_not_allowed"),
    ]
}

#[tokio::test]
async fn s1_s2_a_secret_is_in_no_log_journal_file_metric_reply_or_error_however_a_call_ends() {
    let other = Upstream::start(|request| Some(Answer::json(200, &json!({"head": request.head})))).await.unwrap();
    let elsewhere = other.origin();
    let upstream = Upstream::start(move |request| reflect(request, &elsewhere)).await.unwrap();
    let (origin, elsewhere) = (upstream.origin(), other.origin());
    // A port where nobody listens.
    let nowhere = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}, {nowhere:?}, {elsewhere:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [credentials.bank]\nkind = \"bearer\"\nfrom = \"env:E2E_CANARY\"\nhosts = [{origin:?}, {nowhere:?}]\n\
         [grants.work]\ncredentials = [\"bank\"]\nmethods = [\"GET\"]\nhosts = [{origin:?}, {nowhere:?}, {elsewhere:?}]\n"
    );
    let calls = calls(&origin, &nowhere);
    let module = guests::fetches(&calls.iter().map(|(call, _)| call.clone()).collect::<Vec<_>>());

    let scratch = tempfile::tempdir().unwrap();
    let (note, gate) = (scratch.path().join("note"), scratch.path().join("gate"));
    let builder = Stack::builder().unwrap().pin(&module);
    let body = crate::egress::noting(&note, &gate);
    let tool = ShellTool::write(builder.directory(), "tool.sh", &body).unwrap();
    let command = tool.command();
    let builder = builder.sandbox().broker(&settings, &[("E2E_CANARY", CANARY)]).unwrap();
    let builder = builder.broker_flags(|flags| flags.value("--call-timeout", "2s"));
    // Everything, the store included.
    let builder = builder.runner(|flags| flags.tool_cmd(&command)).all(|flags| flags.variable("RUST_LOG", "trace"));
    let mut stack = builder.start().await.unwrap();
    let client = stack.client();

    let mut outputs = Vec::new();
    let capabilities = json!([{"http": {"hosts": [origin, nowhere, elsewhere], "credentials": ["bank"]}}]);
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::io("work", &uri, capabilities)).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    outputs.push(format!("{run:?}"));
    outputs.push(format!("{:?}", client.step_actions(&plan).await.unwrap()));
    outputs.push(format!("{:?}", client.events(&run.run_id).await.unwrap()));
    let mut broker = stack.broker_client();
    let listed = broker.list_calls(ListCallsRequest::default()).await.unwrap().into_inner().calls;
    let reasons: Vec<_> = listed.iter().rev().map(|call: &CallRecord| call.reason.as_str()).collect();
    assert_eq!(reasons, calls.iter().map(|(_, reason)| *reason).collect::<Vec<_>>(), "each way was gone");
    outputs.push(format!("{:?} {listed:?}", broker.describe(DescribeRequest {}).await.unwrap()));

    // The same ways by the door for child processes.
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    client.start("tool", &plan, &json!({})).await.unwrap();
    let (url, egress_token) = crate::egress::noted(&note).await;
    let header = (json!({"url": origin, "credential": "bank", "response_headers": ["etag", "location"]}), "");
    for (call, reason) in calls.iter().chain([&header]) {
        let answer = crate::egress::exchange(&url, Some(&egress_token), call).await;
        assert_eq!(answer.starts_with("HTTP/1.1 200"), reason.is_empty(), "{call}: {answer}");
        outputs.push(answer);
    }
    std::fs::write(gate, "").unwrap();
    assert_eq!(client.wait("tool").await.unwrap().status(), RunStatus::Completed);

    for request in upstream.received() {
        assert_eq!(request.header("authorization"), [format!("Bearer {CANARY}")], "the upstream alone is told");
    }
    assert_eq!(other.received().len(), 2);
    for request in other.received() {
        assert!(!canary::is_in(request.head.as_bytes()), "{}", request.head);
    }
    for service in [stack.broker.as_ref().unwrap(), stack.sandbox.as_ref().unwrap(), &stack.runner] {
        let metrics = service.metrics().unwrap();
        assert!(metrics.contains("areev_rpcs_total"), "{metrics}");
        outputs.push(metrics);
    }
    // What a sandbox and a runner could look at of themselves.
    let runner = stack.runner.process().pid();
    for pid in [runner, stack.sandbox.as_mut().unwrap().process().pid()] {
        for file in ["environ", "cmdline"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
            assert!(
                !bytes.is_empty() && !canary::is_in(&bytes),
                "the secret is in {file} of a process that must not have it"
            );
        }
    }
    // A clean end, so that everything that is buffered is written.
    assert!(stack.runner.process().terminate().unwrap().success());
    for neighbour in [&mut stack.sandbox, &mut stack.broker] {
        assert!(neighbour.as_mut().unwrap().process().terminate().unwrap().success());
    }
    for output in &outputs {
        assert!(!canary::is_in(output.as_bytes()), "the secret is in {output}");
    }
    assert_eq!(search::files_with(stack.directory(), canary::spellings()).unwrap(), Vec::<PathBuf>::new());

    // Tokens are secrets too: the callers' and the effects'.
    let tokens: Vec<_> = Who::ALL
        .map(Who::token)
        .into_iter()
        .chain([egress_token.as_str()])
        .map(|token| token.as_bytes().to_vec())
        .collect();
    for place in ["logs", "data"] {
        let found = search::files_with(&stack.directory().join(place), &tokens).unwrap();
        assert_eq!(found, Vec::<PathBuf>::new());
    }
    for service in [stack.broker.as_ref().unwrap(), stack.sandbox.as_ref().unwrap(), &stack.runner] {
        let log = std::fs::read_to_string(service.log()).unwrap();
        assert!(log.contains("\"TRACE\""), "the logs were searched at their loudest");
    }
}

/// What is said when something is dropped that must not be; nothing when all is well.
fn complaint(dropped: impl Send + 'static) -> Option<String> {
    let ended = catch_unwind(AssertUnwindSafe(move || drop(dropped)));
    ended.err().map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn a_planted_secret_is_found_in_every_spelling_wherever_services_write() {
    for place in ["logs/broker-svc.log", "logs/broker-svc.prom", "data/journal/db", "data/blobs/ab/cd", "tmp/core"] {
        for spelling in search::spellings(CANARY).into_iter().chain(canary::spellings().iter().cloned()) {
            let folder = canary::Folder::new().unwrap();
            let file = folder.path().join(place);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, [b"{\"message\":\"before ", &spelling[..], b" after\"}"].concat()).unwrap();
            let said = complaint(folder).unwrap_or_default();
            assert!(said.contains(place), "{place}, {}: {said}", String::from_utf8_lossy(&spelling));
        }
    }
    let clean = canary::Folder::new().unwrap();
    std::fs::write(clean.path().join("log"), "areev-canary of another kind, Zq7").unwrap();
    assert_eq!(complaint(clean), None);
}

#[tokio::test]
async fn a_secret_that_a_service_would_write_or_answer_fails_the_test() {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::write(builder.directory(), "tool.sh", "cat").unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    // A name and an input, as nobody would have to hide them: services log the one and keep the other.
    let run_id = format!("{}-run", canary::WORD);
    let answer = {
        let (client, run_id) = (client.clone(), run_id.clone());
        tokio::spawn(async move { client.run(&run_id, &plan, &json!({"secret": CANARY})).await })
    };
    assert!(answer.await.unwrap_err().is_panic(), "a reply is searched while it is read");
    let deadline = std::time::Instant::now() + PATIENCE;
    while !canary::is_in(&std::fs::read(stack.runner.log()).unwrap()) {
        assert!(std::time::Instant::now() < deadline, "the runner never logged the run's name");
        tokio::time::sleep(POLL).await;
    }
    let said = complaint(stack).unwrap_or_default();
    assert!(said.contains("runner-svc.log") && said.contains("/data/"), "{said}");
}
