//! Backup while the service runs, restore, and a look at what lies in a data directory.

use std::{collections::BTreeSet, fs, path::Path};

use e2e::{
    document::Definition,
    evidence::runner_command,
    shell_tool::ShellTool,
    stack::{Stack, Who},
};
use proto::runner::v1::{ListRunsRequest, RunStatus};
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

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Runs that cannot be verified, after comparing them with what lists, readiness and metrics say.
async fn lost(stack: &Stack, runs: &[&str], case: &str) -> BTreeSet<String> {
    let client = stack.client();
    let mut lost = BTreeSet::new();
    for run_id in runs {
        if !client.verify(run_id).await.is_ok_and(|verified| verified.clean) {
            lost.insert((*run_id).to_owned());
        }
    }
    let request = ListRunsRequest { namespace: e2e::client::NAMESPACE.to_owned(), ..ListRunsRequest::default() };
    let listed = client.runner().list_runs(request).await.unwrap().into_inner().runs;
    assert_eq!(listed.len(), runs.len(), "{case}: {listed:?}");
    for run in listed {
        let expected = if lost.contains(&run.run_id) { RunStatus::Quarantined } else { RunStatus::Completed };
        assert_eq!(run.status(), expected, "{case}: {run:?}");
    }
    let ready = stack.runner.admin("/readyz").unwrap();
    for run_id in &lost {
        assert!(ready.contains(&format!("run {run_id:?} is quarantined")), "{case}: {ready}");
    }
    let (metrics, counted) = (stack.runner.metrics().unwrap(), format!("areev_runs_quarantined {}", lost.len()));
    let is_told = metrics.lines().any(|line| line == counted);
    assert!(is_told || (lost.is_empty() && !metrics.contains("\nareev_runs_quarantined ")), "{case}: {metrics}");
    lost
}

/// Where a text is.
fn places(log: &[u8], text: &str) -> Vec<usize> {
    let found = log.windows(text.len()).enumerate().filter(|(_, window)| *window == text.as_bytes());
    found.map(|(place, _)| place).collect()
}

#[tokio::test]
async fn a_byte_flipped_in_a_backup_costs_at_most_one_run_that_had_ended_and_lists_readiness_metrics_and_fsck_name_it()
{
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::doing(builder.directory()).unwrap().command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&tool)).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let (runs, mut hashes) = (["r1", "r2", "r3"], Vec::new());
    for run_id in runs {
        let run = client.run(run_id, &plan, &json!({"id": run_id})).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
        hashes.extend(client.events(run_id).await.unwrap().into_iter().map(|event| event.previous_hash));
    }
    let (data, backup) = (stack.data(), stack.directory().join("copy"));
    let (code, report) =
        command(&["backup", "--json", "--from", &data.display().to_string(), &backup.display().to_string()]);
    assert_eq!(code, 0, "{report}");
    stack.runner.process().kill().unwrap();
    let log = fs::read(backup.join("journal/db")).unwrap();
    let end = log.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // What sled keeps in a page's newest and in its links is there twice; what is there once is lost with its byte.
    let once: Vec<usize> = hashes
        .iter()
        .filter_map(|hash| places(&log, hash).as_slice().try_into().ok().map(|[place]: [usize; 1]| place))
        .collect();
    let spread = (0..4).map(|step| end * (2 * step + 1) / 8);
    let mut most = 0;
    for (step, place) in spread.chain(once.iter().copied().take(2)).enumerate() {
        let case = format!("byte {place} of {end}");
        let mut flipped = log.clone();
        flipped[place] ^= 0x10;
        let looked = stack.directory().join(format!("looked-{step}"));
        fs::remove_dir_all(&data).unwrap();
        for dir in [&data, &looked] {
            copy(&backup, dir);
            fs::write(dir.join("journal/db"), &flipped).unwrap();
        }
        stack.runner.restart().await.unwrap();
        let lost = lost(&stack, &runs, &case).await;
        assert!(lost.len() <= 1, "{case}: {lost:?}");
        most = most.max(lost.len());
        stack.runner.process().kill().unwrap();
        let (_, report) = command(&["fsck", "--json", "--repair", &looked.display().to_string()]);
        let problems = report["problems"].as_array().unwrap();
        let told = |class: &str| problems.iter().filter(|problem| problem["class"] == class).collect::<Vec<_>>();
        assert_eq!(told("run").len(), lost.len(), "{case}: {report}");
        for store in told("store") {
            let lack = if lost.is_empty() { "no run lacks anything" } else { "one run lacks something" };
            let what = store["what"].as_str().unwrap();
            assert!(what.contains(lack) && what.contains("was damaged in one place"), "{case}: {what}");
        }
    }
    // Without such a byte a run may be lost or not, as sled has laid the pages out.
    assert!(once.is_empty() || most == 1, "bytes that are there once: {once:?}");
}
