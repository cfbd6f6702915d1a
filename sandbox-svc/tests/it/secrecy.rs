//! An egress token gets into no log at any level, no error and no record; tested against the real process.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

use proto::{
    broker::v1::FetchResponse,
    dial::dial,
    sandbox::v1::{Egress, Runtime, Start, sandbox_service_client::SandboxServiceClient},
};

use crate::{
    broker::FakeBroker,
    guests,
    rig::{Rig, start},
};

const CANARY: &str = "canary-c0ffee-token";

#[tokio::test(flavor = "multi_thread")]
async fn s2_a_token_is_in_no_log_line_at_the_loudest_level() {
    let (broker, url) = FakeBroker::serve(|_| {
        Some(Ok(FetchResponse { status: 200, body: b"ok".to_vec(), ..FetchResponse::default() }))
    })
    .await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_sandbox-svc"))
        .args(["--listen", "127.0.0.1:0", "--admin-listen", "off", "--allow-native", "--log", "trace"])
        .args(["--broker-url", &url])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let (mut seen, mut address) = (String::new(), None);
    while address.is_none() {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended: {seen}");
        let listening = line.contains("listening").then(|| line.split("address=").nth(1)).flatten();
        address = listening.map(|rest| rest.split_whitespace().next().unwrap().to_owned());
        seen += &line;
    }
    let reading = std::thread::spawn(move || {
        let mut rest = Vec::new();
        log.read_to_end(&mut rest).unwrap();
        rest
    });

    let client = SandboxServiceClient::new(dial(&format!("http://{}", address.unwrap()), None).unwrap());
    let rig = Rig::new().await.speaking_to(client);
    let egress = Egress { token: CANARY.to_owned(), url: "http://127.0.0.1:1/".to_owned(), ..Egress::default() };
    let module = rig.put(&wat::parse_str(guests::fetches(&["{\"url\":\"https://x\"}"])).unwrap()).await;
    let message = Start { egress: Some(egress.clone()), ..start(&module, Runtime::Wasm32AreevIo, "null") };
    let (outcome, _) = rig.execute(message).await.unwrap();
    assert_eq!(outcome.output_json, "{\"status\":200,\"body\":\"ok\"}", "{outcome:?}");
    assert_eq!(broker.asked.lock()[0].token, CANARY);
    let native = rig.put(b"#!/bin/sh\nexit 1\n").await;
    let message = Start { egress: Some(egress), ..start(&native, Runtime::Native, "null") };
    let (outcome, _) = rig.execute(message).await.unwrap();
    assert!(!format!("{outcome:?}").contains(CANARY));

    child.kill().unwrap();
    child.wait().unwrap();
    let rest = String::from_utf8_lossy(&reading.join().unwrap()).into_owned();
    assert!(rest.contains("effect ended"), "the log was loud enough to prove something");
    assert!(!rest.contains(CANARY), "{}", rest.lines().find(|line| line.contains(CANARY)).unwrap());
}
