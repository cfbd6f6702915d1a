//! Backup while the service runs, restore, and a look at what lies in a data directory.

use std::fs;

use e2e::{
    document::Definition,
    evidence::runner_command,
    stack::{Stack, Who},
};
use proto::runner::v1::RunStatus;
use serde_json::{Value, json};

/// A command's report and exit code.
fn command(arguments: &[&str]) -> (i32, Value) {
    let output = runner_command(arguments).unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| json!(error));
    (output.status.code().unwrap(), report)
}

#[tokio::test]
async fn a_backup_of_a_running_service_is_a_data_directory_on_which_its_runs_go_on() {
    let mut stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::client("work")).await.unwrap();
    let large = json!({"text": "x".repeat(100_000)});
    client.run("r1", &plan, &large).await.unwrap();
    let (data, copy) = (stack.data().display().to_string(), stack.directory().join("copy").display().to_string());
    let (code, report) = command(&["backup", "--json", "--from", &data, &copy]);
    assert_eq!((code, &report["runs"]), (0, &json!(1)), "{report}");
    let (code, again) = command(&["backup", "--json", "--from", &data, &copy]);
    assert!(code == 2 && again.as_str().unwrap().contains("not empty"), "{again}");
    let (code, in_use) = command(&["fsck", "--json", &data]);
    assert!(code == 2 && in_use.as_str().unwrap().contains("in use by process"), "{in_use}");
    let (code, report) = command(&["fsck", "--json", &copy]);
    assert_eq!((code, &report["clean"], &report["runs"]), (0, &json!(true), &json!(1)), "{report}");

    // The original is lost; the service starts on the copy.
    stack.runner.process().kill().unwrap();
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&copy, &data).unwrap();
    stack.runner.restart().await.unwrap();
    let ask = stack.client().asks("r1").await.unwrap()[0].clone();
    stack.client_of(Who::Approver).respond(&ask, &json!({"ok": true})).await.unwrap();
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert!(stack.client().verify("r1").await.unwrap().clean);

    // And without a service, the command opens the directory itself.
    stack.runner.process().kill().unwrap();
    let second = stack.directory().join("second").display().to_string();
    let (code, report) = command(&["backup", "--json", "--from", &data, &second]);
    assert_eq!((code, &report["runs"]), (0, &json!(1)), "{report}");
}

#[tokio::test]
async fn fsck_names_a_changed_blob_puts_it_aside_when_told_to_and_forgives_crashing_loads() {
    let mut stack = Stack::builder().unwrap().start().await.unwrap();
    let uri = stack.client().put_blob(b"some bytes").await.unwrap();
    stack.runner.process().kill().unwrap();
    let (data, hex) = (stack.data(), uri.trim_start_matches("cas://sha256:").to_owned());
    let file = data.join("blobs").join(&hex[..2]).join(&hex[2..]);
    fs::write(&file, b"other bytes").unwrap();
    fs::create_dir_all(data.join("loading")).unwrap();
    fs::write(data.join("loading").join("0".repeat(64)), "3\nr9\n").unwrap();
    let path = data.display().to_string();
    let (code, report) = command(&["fsck", "--json", &path]);
    assert_eq!((code, report["problems"].as_array().unwrap().len()), (1, 2), "{report}");
    assert!(report["problems"][0]["what"].as_str().unwrap().contains(&hex), "{report}");
    assert!(file.exists(), "nothing is repaired that nobody asked for");
    let (code, report) = command(&["fsck", "--json", "--repair", &path]);
    assert_eq!((code, &report["clean"]), (0, &json!(true)), "{report}");
    assert!(!file.exists() && data.join("damaged").join(&hex).exists());
    let shown = runner_command(&["fsck", &path]).unwrap();
    assert!(String::from_utf8(shown.stdout).unwrap().ends_with("\nclean\n"));
}
