//! A canary for a secret: it reaches the upstream, and nothing else, at any log level.

use e2e::{
    document::Definition,
    guests, search,
    shell_tool::ShellTool,
    stack::{Stack, Who},
    upstream::{Answer, Received, Upstream},
};
use proto::broker::v1::{DescribeRequest, ListCallsRequest};
use serde_json::json;

const CANARY: &str = "CANARY-7f3a91-do-not-find-me";

/// Hands the caller back everything that it sent, in several spellings.
fn reflect(request: &Received) -> Option<Answer> {
    use base64::Engine as _;
    let seen = request.header("authorization").join(",");
    let status = if request.head.contains("/denied") { 401 } else { 200 };
    let body = json!({
        "raw": seen,
        "base64": base64::engine::general_purpose::STANDARD.encode(CANARY),
        "hex": hex::encode(CANARY),
        "head": request.head,
    });
    let mut answer = Answer::json(status, &body);
    answer.headers.push(("x-reflected".to_owned(), seen));
    Some(answer)
}

#[tokio::test]
async fn a_secret_is_in_no_log_journal_file_output_or_error() {
    let upstream = Upstream::start(reflect).await.unwrap();
    let origin = upstream.origin();
    // A port where nobody listens.
    let nowhere = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}, {nowhere:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [credentials.bank]\nkind = \"bearer\"\nfrom = \"env:E2E_CANARY\"\nhosts = [{origin:?}, {nowhere:?}]\n\
         [grants.work]\ncredentials = [\"bank\"]\nmethods = [\"GET\"]\nhosts = [{origin:?}, {nowhere:?}]\n"
    );
    let calls =
        [format!("{origin}/ok"), format!("{origin}/denied"), format!("{nowhere}/"), "https://refused.example/".into()];
    let modules: Vec<_> = calls.iter().map(|url| guests::fetch(&json!({"url": url, "credential": "bank"}))).collect();

    let mut builder = Stack::builder().unwrap();
    for module in &modules {
        builder = builder.pin(module);
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let note = elsewhere.path().join("token");
    let body = format!("cat > /dev/null; printf %s \"$AREEV_EGRESS_TOKEN\" > '{}'; echo '{{}}'", note.display());
    let tool = ShellTool::write(builder.directory(), "tool.sh", &body).unwrap();
    let command = tool.command();
    let builder = builder.sandbox().broker(&settings, &[("E2E_CANARY", CANARY)]).unwrap();
    let builder = builder.runner(|flags| flags.tool_cmd(&command)).all(|flags| flags.variable("RUST_LOG", "trace"));
    let mut stack = builder.start().await.unwrap();
    let client = stack.client();

    let mut outputs = Vec::new();
    let capabilities = json!([{"http": {"hosts": [origin, nowhere], "credentials": ["bank"]}}]);
    for (number, module) in modules.iter().enumerate() {
        let uri = client.put_blob(module).await.unwrap();
        let plan = client.put_work(&Definition::io("work", &uri, capabilities.clone())).await.unwrap();
        let run = client.run(&format!("r{number}"), &plan, &json!({})).await.unwrap();
        outputs.push(format!("{run:?}"));
        outputs.push(format!("{:?}", client.step_actions(&plan).await.unwrap()));
        outputs.push(format!("{:?}", client.events(&run.run_id).await.unwrap()));
    }
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    client.run("tool", &plan, &json!({})).await.unwrap();
    let mut broker = stack.broker_client();
    outputs.push(format!("{:?}", broker.describe(DescribeRequest {}).await.unwrap()));
    outputs.push(format!("{:?}", broker.list_calls(ListCallsRequest::default()).await.unwrap()));

    let sent = upstream.received();
    assert_eq!(sent.len(), 2);
    for request in &sent {
        assert_eq!(request.header("authorization"), [format!("Bearer {CANARY}")], "the upstream alone is told");
    }

    // A clean end, so that everything that is buffered is written.
    assert!(stack.runner.process().terminate().unwrap().success());
    for neighbour in [&mut stack.sandbox, &mut stack.broker] {
        assert!(neighbour.as_mut().unwrap().process().terminate().unwrap().success());
    }
    let canary = search::spellings(CANARY);
    for output in &outputs {
        for needle in &canary {
            assert!(!search::holds(output.as_bytes(), needle), "the secret is in {output}");
        }
    }
    assert_eq!(search::files_with(stack.directory(), &canary).unwrap(), Vec::<std::path::PathBuf>::new());

    // Tokens are secrets too: the callers' and the effects'.
    let egress_token = std::fs::read_to_string(note).unwrap();
    assert!(!egress_token.is_empty());
    let tokens: Vec<_> = Who::ALL
        .map(Who::token)
        .into_iter()
        .chain([egress_token.as_str()])
        .map(|token| token.as_bytes().to_vec())
        .collect();
    for place in ["logs", "data"] {
        let found = search::files_with(&stack.directory().join(place), &tokens).unwrap();
        assert_eq!(found, Vec::<std::path::PathBuf>::new());
    }
    let log = std::fs::read_to_string(stack.broker.as_ref().unwrap().log()).unwrap();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the logs were searched at their loudest");
}
