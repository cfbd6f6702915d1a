//! Calling out: the credential goes out, never in; declared, granted and allowed all have to agree.

use std::path::Path;

use e2e::{
    document::Definition,
    guests,
    process::{PATIENCE, POLL},
    shell_tool::ShellTool,
    stack::Stack,
    upstream::{Answer, Upstream},
};
use proto::broker::v1::{CallRecord, ListCallsRequest};
use proto::runner::v1::RunStatus;
use serde_json::{Value, json};

const SECRET: &str = "areev-canary-Zq7-of-the-bank";

/// Policy for one local upstream; `work` may GET and POST there with `bank`.
fn settings(origin: &str) -> String {
    format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [credentials.bank]\nkind = \"bearer\"\nfrom = \"env:E2E_BANK\"\nhosts = [{origin:?}]\n\
         [credentials.key]\nkind = \"header\"\nheader = \"x-api-key\"\nfrom = \"env:E2E_BANK\"\nhosts = [{origin:?}]\n\
         [grants.work]\ncredentials = [\"bank\", \"key\"]\nmethods = [\"GET\", \"POST\"]\nhosts = [{origin:?}]\n\
         artifacts = {{ max_response_bytes = 1000 }}\n"
    )
}

/// What a module saw that made one call, and the broker's records.
async fn call(upstream: &Upstream, request: Value, http: Value) -> (Value, Vec<CallRecord>) {
    let module = guests::fetch(&request);
    let builder = Stack::builder().unwrap().pin(&module).sandbox();
    let stack = builder.broker(&settings(&upstream.origin()), &[("E2E_BANK", SECRET)]).unwrap().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::io("work", &uri, json!([{"http": http}]))).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let entries = client.entries("r1").await.unwrap();
    assert_eq!((entries.len(), entries[0].exchanges), (1, 1), "the exchange is in the journal");
    assert!(client.verify("r1").await.unwrap().clean);
    let calls = ListCallsRequest { run_id: "r1".into(), ..Default::default() };
    let calls = stack.broker_client().list_calls(calls).await.unwrap().into_inner().calls;
    (serde_json::from_str(&run.output_json).unwrap(), calls)
}

#[tokio::test]
async fn the_secret_goes_to_the_upstream_and_the_answer_comes_back_scrubbed() {
    let echo = |request: &e2e::upstream::Received| {
        let seen = request.header("authorization").join(",");
        Some(Answer::json(201, &json!({"you_sent": seen})))
    };
    let upstream = Upstream::start(echo).await.unwrap();
    let origin = upstream.origin();
    let request = json!({"url": format!("{origin}/pay?id=7"), "method": "POST", "credential": "bank", "body": "hello"});
    let http = json!({"hosts": [origin], "methods": ["POST"], "credentials": ["bank"]});
    let (seen, calls) = call(&upstream, request, http).await;

    let received = upstream.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].header("authorization"), [format!("Bearer {SECRET}")], "exactly one such line");
    assert_eq!(received[0].body_text(), "hello");
    assert!(received[0].head.starts_with("POST /pay?id=7 HTTP/1.1"), "{}", received[0].head);

    assert_eq!(seen["status"], json!(201));
    let body = seen["body"].as_str().unwrap();
    assert!(body.contains("you_sent") && !body.contains(SECRET), "{body}");

    assert_eq!(calls.len(), 1);
    let record = &calls[0];
    assert_eq!((record.run_id.as_str(), record.node.as_str(), record.tool_name.as_str()), ("r1", "work", "work"));
    assert_eq!((record.credential.as_str(), record.method.as_str(), record.status), ("bank", "POST", 201));
    assert_eq!((record.path.as_str(), record.door.as_str()), ("/pay", "grpc"), "no query in a record");
    assert!(!format!("{record:?}").contains(SECRET));
}

#[tokio::test]
async fn a_header_credential_takes_its_own_slot() {
    let upstream = Upstream::answering(Answer::json(200, &json!({}))).await.unwrap();
    let origin = upstream.origin();
    let request = json!({"url": origin, "credential": "key"});
    let (seen, _) = call(&upstream, request, json!({"hosts": [origin], "credentials": ["key"]})).await;
    assert_eq!(seen["status"], json!(200));
    let received = upstream.received();
    assert_eq!(received[0].header("x-api-key"), [SECRET]);
    assert!(received[0].header("authorization").is_empty());
}

#[tokio::test]
async fn what_is_not_declared_granted_and_allowed_is_refused_and_nothing_is_sent() {
    let upstream = Upstream::answering(Answer::json(200, &json!({}))).await.unwrap();
    let other = Upstream::answering(Answer::json(200, &json!({}))).await.unwrap();
    let (here, there) = (upstream.origin(), other.origin());
    let all = json!({"hosts": [here, there, "http://169.254.169.254"], "methods": ["GET", "POST", "DELETE"], "credentials": ["bank", "ghost"]});
    let narrow = json!({"hosts": [here], "methods": ["GET"]});
    for (request, http) in [
        // not allowed by the policy
        (json!({"url": there}), all.clone()),
        (json!({"url": "http://169.254.169.254/latest/meta-data"}), all.clone()),
        // not granted
        (json!({"url": here, "method": "DELETE"}), all.clone()),
        (json!({"url": here, "credential": "ghost"}), all),
        // not declared
        (json!({"url": here, "method": "POST"}), narrow.clone()),
        (json!({"url": here, "credential": "bank"}), narrow.clone()),
        // malformed
        (json!({"url": "not a url"}), narrow.clone()),
        (json!({"url": here.replace("http://", "http://user:pw@")}), narrow.clone()),
        (json!({"url": here, "method": "get"}), narrow.clone()),
        (json!({"url": here, "headers": {"Authorization": "Bearer mine"}}), narrow),
    ] {
        let shown = request.to_string();
        let (seen, _) = call(&upstream, request, http).await;
        assert!(seen["error"].as_str().is_some_and(|text| !text.is_empty()), "{shown}: {seen}");
        assert_eq!(seen["code"], json!("RUN-E022"), "{shown}: {seen}");
        assert!(seen.get("status").is_none(), "{shown}: {seen}");
    }
    assert!(upstream.received().is_empty() && other.received().is_empty(), "a byte went out");
}

#[tokio::test]
async fn a_redirect_is_followed_where_it_may_go_and_the_secret_stays_at_its_origin() {
    let target = Upstream::answering(Answer::json(200, &json!({"told": SECRET}))).await.unwrap();
    let upstream = Upstream::start({
        let away = format!("{}/elsewhere", target.origin());
        move |request: &e2e::upstream::Received| {
            let place = if request.head.contains("/away") { away.clone() } else { "/there".to_owned() };
            if request.head.contains("/there") {
                return Some(Answer::json(200, &json!({"here": true})));
            }
            Some(Answer { status: 302, headers: vec![("location".to_owned(), place)], body: Vec::new() })
        }
    });
    let upstream = upstream.await.unwrap();
    let origin = upstream.origin();
    let http = json!({"hosts": [origin, target.origin()], "credentials": ["bank"]});
    let (seen, calls) = call(&upstream, json!({"url": origin, "credential": "bank"}), http.clone()).await;
    assert_eq!((&seen["status"], calls[0].redirects.clone()), (&json!(200), vec![origin.clone()]), "{seen}");
    assert!(upstream.received().iter().all(|request| request.header("authorization").len() == 1));

    // The other origin is declared, but neither granted nor allowed.
    let away = json!({"url": format!("{origin}/away"), "credential": "bank"});
    let (seen, calls) = call(&upstream, away, http).await;
    assert_eq!(seen["code"], json!("RUN-E022"), "{seen}");
    assert_eq!((calls[0].reason.as_str(), calls[0].went_out), ("host_not_allowed", true));
    assert_eq!(calls[0].redirects, [target.origin()]);
    assert!(target.received().is_empty());
}

#[tokio::test]
async fn an_answer_over_its_ceiling_is_an_error_and_not_a_shorter_answer() {
    let body = vec![b'a'; 3 * 1024 * 1024];
    let upstream = Upstream::answering(Answer { status: 200, headers: Vec::new(), body }).await.unwrap();
    let origin = upstream.origin();
    let (seen, calls) = call(&upstream, json!({"url": origin}), json!({"hosts": [origin]})).await;
    assert!(seen["error"].as_str().is_some(), "{}", seen.to_string().len());
    assert!(!calls[0].reason.is_empty());
}

#[tokio::test]
async fn the_door_for_child_processes_takes_a_live_token_once_it_is_minted_and_never_after_the_effect() {
    let upstream = Upstream::answering(Answer::json(200, &json!({"balance": 5}))).await.unwrap();
    let origin = upstream.origin();
    let builder = Stack::builder().unwrap();
    let (note, gate) = (builder.directory().join("note"), builder.directory().join("gate"));
    let body = noting(&note, &gate);
    let tool = ShellTool::write(builder.directory(), "tool.sh", &body).unwrap();
    let command = tool.command();
    let builder = builder.broker(&settings(&origin), &[("E2E_BANK", SECRET)]).unwrap();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    let (url, token) = noted(&note).await;
    let (url, token) = (url.as_str(), token.as_str());
    let request = json!({"url": format!("{origin}/balance"), "credential": "bank"});

    let (status, answer) = post(url, Some(token), &request).await;
    assert_eq!((status, &answer["status"]), (200, &json!(200)), "{answer}");
    assert_eq!(upstream.received()[0].header("authorization"), [format!("Bearer {SECRET}")]);
    for wrong in [None, Some("not-a-token"), Some(&token[..token.len() - 1])] {
        let (status, answer) = post(url, wrong, &request).await;
        assert_eq!((status, &answer["code"]), (401, &json!("RUN-E022")), "{answer}");
    }
    let refused = json!({"url": "https://elsewhere.example/"});
    assert_eq!(post(url, Some(token), &refused).await.0, 403);

    std::fs::write(gate, "").unwrap();
    assert_eq!(client.wait("r1").await.unwrap().status(), RunStatus::Completed);
    let entries = client.entries("r1").await.unwrap();
    assert_eq!((entries.len(), entries[0].exchanges), (1, 2), "the call and the refusal are in the journal");
    assert_eq!(post(url, Some(token), &request).await.0, 401, "the token died with its effect");
    assert_eq!(upstream.received().len(), 1);
    assert!(client.verify("r1").await.unwrap().clean);
}

/// The body of a tool that notes the door's address and its token, and ends when a gate is there.
pub fn noting(note: &Path, gate: &Path) -> String {
    format!(
        "cat > /dev/null; printf '%s %s' \"$AREEV_EGRESS_URL\" \"$AREEV_EGRESS_TOKEN\" > '{0}.part'; mv '{0}.part' '{0}'\n\
         while [ -e \"$0\" ] && [ ! -e '{1}' ]; do sleep 0.02; done; echo '{{}}'",
        note.display(),
        gate.display()
    )
}

/// What such a tool noted.
pub async fn noted(note: &Path) -> (String, String) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !note.exists() {
        assert!(std::time::Instant::now() < deadline, "the tool was never started");
        tokio::time::sleep(POLL).await;
    }
    let text = std::fs::read_to_string(note).unwrap();
    let (url, token) = text.split_once(' ').unwrap();
    (url.to_owned(), token.to_owned())
}

/// One POST to the HTTP door, by hand: status and JSON.
async fn post(url: &str, token: Option<&str>, body: &Value) -> (u16, Value) {
    let answer = exchange(url, token, body).await;
    let status = answer.split_whitespace().nth(1).unwrap().parse().unwrap();
    let json = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let start = json.find('{').unwrap_or(0);
    let end = json.rfind('}').map_or(0, |end| end + 1);
    (status, serde_json::from_str(&json[start..end]).unwrap_or_else(|_| panic!("no JSON: {answer}")))
}

/// The same, and the answer as it came.
pub async fn exchange(url: &str, token: Option<&str>, body: &Value) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let body = body.to_string();
    let token = token.map(|token| format!("x-areev-egress-token: {token}\r\n")).unwrap_or_default();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{token}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(!e2e::canary::is_in(answer.as_bytes()), "a secret is in an answer of the door");
    answer
}

#[tokio::test]
async fn a_module_is_given_the_headers_of_the_answer_that_it_asks_for_scrubbed_and_no_others() {
    let headers = [("etag", "v7"), ("link", "<one>"), ("link", SECRET), ("set-cookie", "a=b"), ("x-other", "c")];
    let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let answer = Answer { status: 200, headers, body: b"whole".to_vec() };
    let upstream = Upstream::answering(answer).await.unwrap();
    let origin = upstream.origin();
    let artifacts = json!({"max_response_bytes": 1000});
    let http = json!({"hosts": [origin], "credentials": ["bank"], "artifacts": artifacts});
    let asks = |mode: &str, names: Value| json!({"url": origin, "credential": "bank", "response_mode": mode, "response_headers": names});
    for mode in ["inline", "artifact"] {
        let (seen, _) = call(&upstream, asks(mode, json!(["ETag", "link", "retry-after"])), http.clone()).await;
        assert_eq!(seen["headers"], json!({"etag": "v7", "link": "<one>, [redacted]"}), "{seen}");
        let (seen, calls) = call(&upstream, asks(mode, json!(["set-cookie"])), http.clone()).await;
        assert!(seen["error"].as_str().unwrap().contains("\"set-cookie\" is never returned"), "{seen}");
        assert_eq!((calls[0].reason.as_str(), calls[0].went_out), ("response_header_not_allowed", false));
    }
    assert_eq!(upstream.received().len(), 2);
}
