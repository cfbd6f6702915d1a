//! A torn tail of the journal's log, through the real program: it starts with all that was acknowledged, or says by name why
//! it does not.

use std::{fs, os::unix::fs::FileExt as _, path::Path};

use e2e::{document::Definition, stack::Stack};
use serde_json::json;

/// Runs that are there before.
const RUNS: usize = 6;

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copied(&entry.path(), &target),
            kind if kind.is_file() => drop(fs::copy(entry.path(), target).unwrap()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn the_program_starts_on_a_torn_tail_with_all_that_was_acknowledged_or_refuses_by_name() {
    let mut stack = Stack::builder().unwrap().runner(|flags| flags.tool_cmd("cat")).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let mut heads = Vec::new();
    for number in 0..RUNS {
        let run = client.run(&format!("r{number}"), &plan, &json!({"n": number})).await.unwrap();
        heads.push(run.head_hash);
    }
    stack.runner.process().kill().unwrap();
    let kept = stack.directory().join("kept");
    copied(&stack.data(), &kept);
    let (mut refused, mut started) = (0, 0);
    for (bytes, cut) in [(1, true), (1, false), (700, true), (700, false), (4096, true), (4096, false)] {
        fs::remove_dir_all(stack.data()).unwrap();
        copied(&kept, &stack.data());
        let log = fs::OpenOptions::new().read(true).write(true).open(stack.data().join("journal/db")).unwrap();
        let content = fs::read(stack.data().join("journal/db")).unwrap();
        let end = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let from = (end - bytes) as u64;
        if cut {
            log.set_len(from).unwrap()
        } else {
            log.write_all_at(&[content[end - bytes] ^ 0x10], from).unwrap()
        }
        drop(log);
        match stack.runner.restart().await {
            Err(cause) => {
                let said = cause.to_string();
                assert!(said.contains("RUN-E020") && !said.contains("panicked"), "{bytes}, cut {cut}: {said}");
                refused += 1;
            }
            Ok(()) => {
                for (number, head) in heads.iter().enumerate() {
                    let run_id = format!("r{number}");
                    let told = match stack.client().get(&run_id).await {
                        Ok(run) => run.head_hash == *head || run.reason.contains("RUN-E020"),
                        // Whoever asks is told which run lost something.
                        Err(lost) => lost.code() == tonic::Code::DataLoss && lost.message().contains(&run_id),
                    };
                    assert!(told, "{bytes}, cut {cut}: {run_id} was lost in silence");
                }
                started += 1;
                stack.runner.process().kill().unwrap();
            }
        }
    }
    println!("{started} started with everything, {refused} refused by name");
    fs::remove_dir_all(stack.data()).unwrap();
    copied(&kept, &stack.data());
    stack.runner.restart().await.expect("the copy that nobody touched");
}
