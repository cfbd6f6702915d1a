//! What is secret around a sandbox gets to no guest, no log at any level, no error and no record; tested against the real process.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use proto::{
    broker::v1::FetchResponse,
    dial::dial,
    sandbox::v1::{Egress, Runtime, Start, sandbox_service_client::SandboxServiceClient},
};

use crate::{
    bombs,
    broker::FakeBroker,
    guests,
    process::Process,
    rig::{PATIENCE, Rig, start},
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

/// A file that holds the secret, for its owner alone or for all to read.
fn file(directory: &Path, name: &str, mode: u32) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, format!("{CANARY}{CANARY}{CANARY}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// A script that says all that it can get at: its environment, everybody's, and the files that it is told of.
fn looks_around(service: u32, files: &[&Path]) -> Vec<u8> {
    let files: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
    let script = format!(
        "#!/bin/sh\n( env; cat /proc/self/environ /proc/$PPID/environ /proc/1/environ /proc/{service}/environ /proc/*/environ
        cat /proc/*/cmdline; cat {} ; ls -R . ) 2>/dev/null | tr -c 'A-Za-z0-9=/._-' ' ' > seen
        printf '\"%s\"' \"$(cat seen)\"",
        files.join(" ")
    );
    script.into_bytes()
}

/// The children of a process that compile.
fn compiling(parent: u32) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let child_of = |path: &Path| {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        status.contains(&format!("PPid:\t{parent}\n")) && line.split(|byte| *byte == 0).any(|word| word == b"compile")
    };
    processes.filter(|path| child_of(path)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_a_secret_in_the_services_environment_and_files_reaches_no_blob_no_module_and_no_compiler() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let (key, native) = (file(directory.path(), "key", 0o600), directory.path().join("native"));
    let cache = directory.path().join("cache");
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let arguments = [
        "--allow-native".to_owned(),
        "--native-dir".to_owned(),
        path(&native),
        "--cache-dir".to_owned(),
        path(&cache),
        "--cache-key-file".to_owned(),
        path(&key),
        "--log".to_owned(),
        "trace".to_owned(),
    ];
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let process = Process::start_with(directory.path(), &arguments, &[("SOME_SECRET", CANARY)]).await;
    let described = process.describe().await;
    // As secrets are mounted: for every user to read. Only Landlock stands before such a file.
    let landlock = described.native_isolation.iter().any(|barrier| barrier == "landlock");
    let mounted = file(directory.path(), "mounted", if landlock { 0o644 } else { 0o600 });

    let blob = process.caller.put(&looks_around(process.id(), &[&key, &mounted])).await;
    let looked = process.caller.execute(start(&blob, Runtime::Native, "null")).await.unwrap().0;
    assert!(looked.output_json.contains("AREEV_EXECUTOR_URI="), "it saw its own environment: {looked:?}");
    let module = process.caller.put(&wat::parse_str(guests::echo()).unwrap()).await;
    let echoed = process.caller.execute(start(&module, Runtime::Wasm32Areev, "1")).await.unwrap().0;

    let bomb = process.caller.put(&wat::parse_str(bombs::hungry()).unwrap()).await;
    let call = process.caller.begin(start(&bomb, Runtime::Wasm32Areev, "null")).await.unwrap();
    let end = std::time::Instant::now() + PATIENCE;
    let (environment, open) = loop {
        let child = compiling(process.id()).pop();
        let seen = child.and_then(|child| Some((std::fs::read(child.join("environ")).ok()?, open_files(&child))));
        // Before it is this program it is a copy of the service.
        if let Some((environment, open)) = seen.filter(|(_, open)| !open.is_empty()) {
            break (environment, open);
        }
        assert!(std::time::Instant::now() < end, "no compiling child was seen");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    };
    drop(call);
    assert_eq!(environment, b"", "a compiler has no environment");
    assert!(open.iter().all(|file| file.starts_with("pipe:")), "and three pipes: {open:?}");

    let stat = process.caller.stat(&blob).await;
    for seen in
        [format!("{looked:?}"), format!("{echoed:?}"), format!("{described:?}"), format!("{stat:?}"), process.log()]
    {
        assert!(!seen.contains(CANARY), "{}", seen.lines().find(|line| line.contains(CANARY)).unwrap());
    }
}

/// What a process has open.
fn open_files(process: &Path) -> Vec<String> {
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files.filter_map(|file| Some(std::fs::read_link(file.path()).ok()?.display().to_string())).collect()
}
