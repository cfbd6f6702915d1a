//! Modules by a one-shot command.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use content_digest::Digest;
use runner_core::{
    outcome::FailureCause,
    pinned::{Runtime, RuntimeLimits},
};
use runner_svc::dispatch::{DispatchConfig, Dispatcher, SandboxAt};

use super::{fake_broker::FakeBroker, rig::*};

const SHOW_ARGUMENTS: &str = "printf '{\"argv\":\"%s\"}' \"$*\"; echo 'fuel used 42' >&2";

#[tokio::test]
async fn a_module_is_named_by_its_file_and_limited_by_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let limits = RuntimeLimits { fuel: Some(5000), max_pages: Some(64), ..RuntimeLimits::default() };
    let settled = send(&stub(dir.path(), SHOW_ARGUMENTS, None), code_with(Runtime::Wasm, Some(limits))).await;
    let file = dir.path().join("modules").join(Digest::of(MODULE).to_hex());
    let expected = format!("{{\"argv\":\"--module {} --fuel 5000 --max-pages 64\"}}", file.display());
    assert_eq!((output(&settled), settled.usage.fuel), (expected, 42));
    assert_eq!(std::fs::read(&file).unwrap(), MODULE);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_module_with_brokered_calls_is_allowed_to_fetch_with_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let broker = FakeBroker::granting("token-1").await;
    let show = "printf '[\"%s\",\"%s\",\"%s\",\"%s\"]' \"$*\" \"$AREEV_EGRESS_URL\" \"$AREEV_EGRESS_TOKEN\" \"$AREEV_EXECUTOR_URI\"";
    let limits = RuntimeLimits { fuel: Some(5000), max_response_bytes: Some(4096), ..RuntimeLimits::default() };
    let effect = code_with(Runtime::WasmIo, Some(limits));
    let seen: Vec<String> =
        serde_json::from_str(&output(&send(&stub(dir.path(), show, Some(&broker)), effect).await)).unwrap();
    assert!(seen[0].ends_with("--fuel 5000 --max-response-bytes 4096 --allow-fetch"), "{}", seen[0]);
    assert_eq!((seen[1].as_str(), seen[2].as_str()), ("http://egress.example:7431", "token-1"));
    assert_eq!(seen[3], Digest::of(MODULE).to_uri());
    // It makes its calls itself, so the broker tells of them.
    let asked = &broker.minted()[0];
    assert_eq!(asked.spender(), proto::broker::v1::Spender::Child);
    assert!(!asked.watcher.is_empty());
}

#[tokio::test]
async fn the_input_comes_on_stdin_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(output(&send(&stub(dir.path(), "cat", None), code(Runtime::Wasm)).await), "{\"q\":7}");
}

#[tokio::test]
async fn a_guests_failure_is_told_from_stderr() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo 'guest exhausted its fuel' >&2; echo 'fuel used 5000' >&2; exit 1";
    let settled = send(&stub(dir.path(), script, None), code(Runtime::Wasm)).await;
    assert_eq!((failure(&settled).cause, settled.usage.fuel), (FailureCause::ExecutorError, 5000));
    assert!(detail(&settled).contains("guest exhausted its fuel"), "{}", detail(&settled));
}

#[tokio::test]
async fn a_native_blob_never_runs_beside_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let settled = send(&stub(dir.path(), "echo 1", None), code(Runtime::Native)).await;
    assert!(detail(&settled).contains("--sandbox-url") && detail(&settled).contains("--allow-native"));
    assert!(!dir.path().join("modules").exists());
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Some(SandboxAt::Command("/nonexistent/sandbox exec".to_owned()));
    let settled = send(&dispatcher(DispatchConfig { sandbox, ..config(dir.path()) }), code(Runtime::Wasm)).await;
    assert!(detail(&settled).contains("/nonexistent/sandbox"), "{}", detail(&settled));
}

/// A sandbox command that is a shell script.
fn stub(dir: &Path, script: &str, broker: Option<&FakeBroker>) -> Dispatcher {
    let file = dir.join("stub");
    std::fs::write(&file, script).unwrap();
    let sandbox = Some(SandboxAt::Command(format!("/bin/sh {}", file.display())));
    let broker_urls = broker.iter().map(|broker| broker.url.clone()).collect();
    dispatcher(DispatchConfig { sandbox, broker_urls, ..config(dir) })
}
