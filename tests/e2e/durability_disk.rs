//! Durable means that the disk has said so: a system-call trace shows the order.

use std::{process::Command, time::Instant};

use e2e::{
    document::Definition,
    process::{PATIENCE, POLL},
    shell_tool::ShellTool,
    stack::Stack,
};
use serde_json::json;

/// The calls that put bytes into files, the one that makes them durable, and the one that starts a tool.
const TRACED: &str = "trace=write,pwrite64,writev,pwritev,fdatasync,fsync,execve";

#[tokio::test]
async fn nothing_of_the_journal_is_unsynced_when_a_tool_is_started() {
    let probe = Command::new("strace").args(["-D", "-f", "-o", "/dev/null", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("not checked: strace cannot trace here");
        return;
    }
    let builder = Stack::builder().unwrap();
    let trace = builder.directory().join("trace");
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let wrapper = ["strace", "-D", "-f", "-y", "-q", "-s", "16", "-e", TRACED, "-o"].map(str::to_owned);
    let wrapper = wrapper.into_iter().chain([trace.display().to_string()]).collect();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).runner_under(wrapper).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    client.run("r1", &plan, &json!({})).await.unwrap();
    // The tracer is a process of its own (-D), so that the one that is ended is the runner.
    let pid = stack.runner.process().pid();
    stack.runner.process().terminate().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let ended =
        |text: &str| text.lines().any(|line| line.starts_with(&format!("{pid} ")) && line.contains("+++ exited"));
    let text = loop {
        let text = std::fs::read_to_string(&trace).unwrap();
        if ended(&text) {
            break text;
        }
        assert!(Instant::now() < deadline, "the trace has no end");
        tokio::time::sleep(POLL).await;
    };

    let journal = stack.data().join("journal").display().to_string();
    let script = tool.path().display().to_string();
    let dispatch = text.lines().position(|line| line.contains("execve(") && line.contains("/bin/sh"));
    let dispatch = dispatch.unwrap_or_else(|| panic!("the trace does not show {script}"));
    let before: Vec<_> = text.lines().take(dispatch).collect();
    let last_write = before
        .iter()
        .rposition(|line| line.contains("write") && line.contains(&journal))
        .expect("the journal was written");
    let synced = before[last_write..].iter().any(|line| {
        // Begun and ended in one line, or the end of one that was interrupted by another thread's.
        (line.contains("fdatasync(") || line.contains("fsync(")) && line.contains(&journal) && line.ends_with("= 0")
            || line.contains("sync resumed") && line.ends_with("= 0")
    });
    assert!(synced, "no sync between the intent and its dispatch:\n{}", before[last_write..].join("\n"));
}
