//! The program itself: proxy variables, logs at trace, a start that fails in words, an end on SIGTERM.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use proto::broker::v1::{FetchRequest, broker_service_client::BrokerServiceClient};

use crate::{
    doors::{exchange, minting, take_records_over},
    rig::{CANARY, holds_secret, open},
    upstream::{self, Upstream, echo, ok},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_broker-svc");

/// A running broker-svc; killed with this.
pub struct Process {
    child: Child,
    log: std::sync::mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    pub fn start(config: &str, variables: &[(&str, &str)]) -> (Self, tempfile::TempDir) {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("broker.toml");
        std::fs::write(&path, config).unwrap();
        let mut child = Command::new(PROGRAM)
            .args(["--listen", "127.0.0.1:0", "--egress-listen", "127.0.0.1:0", "--admin-listen", "off"])
            .args(["--log", "trace", "--log-format", "json", "--config"])
            .arg(&path)
            .arg("--upstream-ca")
            .arg(upstream::authority())
            .env_clear()
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (lines, log) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        (Self { child, log, seen: Vec::new() }, files)
    }

    /// The address that a log line with this message names.
    pub fn address(&mut self, message: &str) -> String {
        loop {
            let line = self.log.recv_timeout(Duration::from_secs(30)).expect("the broker logs its addresses");
            let parsed: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            self.seen.push(line);
            if parsed["message"] == message {
                return parsed["address"].as_str().unwrap().to_owned();
            }
        }
    }

    /// A number that the system keeps of it in `/proc/<pid>/<file>`, behind a word.
    pub fn kept(&self, file: &str, word: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with(word)).unwrap();
        line[word.len()..].split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Ends it as an operator would; answers everything it logged.
    pub fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "the broker ends on SIGTERM"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{status}");
        let mut log = std::mem::take(&mut self.seen);
        log.extend(self.log.iter());
        log.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[tokio::test]
async fn u13_s1_s2_proxy_variables_are_ignored_and_the_log_at_trace_holds_no_secret() {
    let proxy = Upstream::plain(|_, out| ok(out, "through the proxy"));
    let (plain, tls) = (Upstream::plain(echo), Upstream::tls(echo));
    let (url, secure) = (plain.http(), tls.https("127.0.0.1"));
    let policy =
        open(&url).replace("$a", "env:SECRET").replace(&format!("[\"{url}\"]"), &format!("[\"{url}\", \"{secure}\"]"));
    let at = proxy.http();
    let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let mut variables: Vec<_> = proxies.iter().map(|name| (*name, at.as_str())).collect();
    variables.extend([("SECRET", CANARY), ("NO_PROXY", "example.com")]);
    let (mut process, _files) = Process::start(&policy, &variables);
    let egress = process.address("egress port: POST /");
    let grpc = process.address("listening");
    let mut client = BrokerServiceClient::connect(format!("http://{grpc}")).await.unwrap();
    let token = client.mint_token(minting("n")).await.unwrap().into_inner().token;
    let _taking = take_records_over(&client).await;
    for place in [&url, &secure] {
        let fetch = FetchRequest {
            token: token.clone(),
            url: format!("{place}/p?key=query-canary"),
            credential: Some("a".into()),
            ..FetchRequest::default()
        };
        let answer = client.fetch(fetch).await.unwrap().into_inner();
        assert!(String::from_utf8_lossy(&answer.body).contains("Bearer [redacted]"));
        let call = format!(r#"{{"url":"{place}/?key=query-canary","credential":"a"}}"#);
        let head = format!("Host: b\r\nX-Areev-Egress-Token: {token}\r\nContent-Length: {}\r\n", call.len());
        let answer = exchange(&egress, &format!("POST / HTTP/1.1\r\n{head}\r\n{call}")).await;
        assert!(answer.contains("Bearer [redacted]"), "{answer}");
    }
    assert!(plain.requests().iter().chain(&tls.requests()).all(|request| request.contains(CANARY)));
    assert_eq!(proxy.connections(), 0);
    assert_eq!(process.kept("limits", "Max core file size"), 0, "no core file shows the secret");
    let log = tokio::task::spawn_blocking(|| process.end()).await.unwrap();
    assert!(log.contains("TRACE"), "the log is at its finest level");
    assert!(!holds_secret(log.as_bytes()), "the secret is in the log");
    assert!(!log.contains(&token), "the token is in the log");
    assert!(!log.contains("query-canary"), "a query is in the log");
}

#[test]
fn p1_a_broken_file_or_a_missing_secret_stops_the_start_in_words() {
    for (config, word) in [
        ("[grants.t]\nmethds = [\"GET\"]\n", "methds"),
        (
            "[credentials.c]\nkind = \"bearer\"\nfrom = \"env:NOT_THERE\"\nhosts = [\"https://a.com\"]\n",
            "env:NOT_THERE",
        ),
        ("egress_listen = \"0.0.0.0:7431\"\n", "--insecure-listen"),
    ] {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("broker.toml");
        std::fs::write(&path, config).unwrap();
        let mut child = Command::new(PROGRAM)
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "off", "--config"])
            .arg(&path)
            .env_clear()
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn print_config_shows_places_and_no_value() {
    let output = Command::new(PROGRAM)
        .args([
            "--print-config",
            "--credential",
            "c=SECRET",
            "--tool-egress",
            "t:c:POST",
            "--allow-host",
            "https://a.com",
        ])
        .env("SECRET", CANARY)
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("from = \"env:SECRET\"") && shown.contains("https://a.com"), "{shown}");
    assert!(!shown.contains(CANARY));
}

#[test]
fn check_and_explain_answer_by_their_exit_code_and_need_no_secret() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("broker.toml");
    std::fs::write(&path, open("https://a.com").replace("$a", "env:NOT_THERE")).unwrap();
    let told = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).env_clear().output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    let file = path.to_str().unwrap();
    let (text, code) = told(&["check", file]);
    assert!(text.contains("fine") && code == Some(0), "{text}");
    let call = ["explain", "--config", file, "--tool", "t", "--credential", "a", "--url"];
    let (text, code) = told(&[&call[..], &["https://a.com/"]].concat());
    assert!(text.starts_with("allowed:") && code == Some(0), "{text}");
    let (text, code) = told(&[&call[..], &["https://b.com/"]].concat());
    assert!(text.starts_with("denied[host_not_allowed]:") && code == Some(1), "{text}");
    std::fs::write(&path, "[policy").unwrap();
    let (text, code) = told(&["check", file]);
    assert!(text.contains("error:") && code == Some(1), "{text}");
}

#[tokio::test]
async fn p7_the_running_program_takes_other_rules_from_its_file_and_on_sighup() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let policy = open(&upstream.http()).replace("$a", "env:SECRET");
    let (mut process, files) = Process::start(&policy, &[("SECRET", CANARY)]);
    let grpc = process.address("listening");
    let mut client = BrokerServiceClient::connect(format!("http://{grpc}")).await.unwrap();
    let (path, mut digests) = (files.path().join("broker.toml"), std::collections::BTreeSet::new());
    for (round, hangup) in [(1, false), (2, true)] {
        let digest = client.describe(proto::broker::v1::DescribeRequest {}).await.unwrap().into_inner().policy_digest;
        assert!(digests.insert(digest.clone()));
        std::fs::write(&path, format!("{policy}\n[grants.u{round}]\n")).unwrap();
        if hangup {
            let pid = rustix::process::Pid::from_child(&process.child);
            rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while client.describe(proto::broker::v1::DescribeRequest {}).await.unwrap().into_inner().policy_digest == digest
        {
            assert!(Instant::now() < deadline, "the file is never read again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    tokio::task::spawn_blocking(|| process.end()).await.unwrap();
}
