//! What the services show to a scraper is Prometheus's text format to the letter, whatever names runs and nodes have.

use e2e::{
    document::{Definition, Plan},
    metrics_text,
    service::Service,
    stack::Stack,
};
use proto::runner::v1::RunStatus;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Where a service's admin port listens, by its log.
fn admin(service: &Service) -> String {
    let log = std::fs::read_to_string(service.log()).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut ports = lines.filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with("admin port:")));
    ports.next_back().and_then(|line| line["address"].as_str().map(str::to_owned)).expect("the admin port is on")
}

/// The body of an answer to a GET.
async fn got(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).expect("metrics are UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    body.to_owned()
}

#[tokio::test]
async fn metrics_of_every_service_parse_strictly_before_and_after_runs_with_unusual_names() {
    let builder = Stack::builder().unwrap().sandbox().broker("", &[]).unwrap();
    let builder = builder.runner(|flags| flags.tool_cmd("cat"));
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let work = client.put_definition(&Definition::tool("work")).await.unwrap();
    let unusual = "a \"quoted\\ {node} = 注文";
    let plan = client.put_plan(&Plan::new().node(unusual, &work)).await.unwrap();
    let mut families = 0;
    for round in 0..2 {
        for service in [Some(&stack.runner), stack.sandbox.as_ref(), stack.broker.as_ref()].into_iter().flatten() {
            let text = got(&admin(service), "/metrics").await;
            let read = metrics_text::read(&text);
            let read = read.unwrap_or_else(|bad| panic!("{:?}: {bad:#}\n{text}", service.flags.kind));
            families += read.len();
        }
        let run = client.run(&format!("r{round} of \"x\""), &plan, &json!({})).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    }
    assert!(families > 0, "nothing is measured");
}
