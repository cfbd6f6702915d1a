//! The tour of a tool author: it ends well, wherever the compiler has no library for modules too, and what it prints works.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use e2e::{binaries, stack::Stack};

/// The tour on the programs that are there.
fn tour(arguments: &[&Path]) -> Command {
    let directory = binaries::directory().unwrap();
    let mut tour = Command::new(directory.join("guest"));
    tour.arg("--check").args(arguments).env(binaries::DIRECTORY_VARIABLE, directory).stdin(Stdio::null());
    tour
}

/// What it printed; it ended well.
#[track_caller]
fn said(mut tour: Command) -> String {
    let output = tour.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// The commands that it shows.
fn commands(said: &str) -> Vec<&str> {
    said.lines().filter_map(|line| line.strip_prefix("   $ ")).collect()
}

// The lines are tried while the harness only waits, but its connections go on.
#[tokio::test(flavor = "multi_thread")]
async fn the_tour_checks_itself_leaves_the_crate_where_it_was_told_and_every_call_that_it_prints_works() {
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("the total");
    let told = said(tour(&[&into]));
    assert_eq!(told.lines().last(), Some("guest: ok"));
    for word in ["RUN-E018", "--allow-executor", "fuel used", "{\"total_cents\":5049,\"lines\":2}"] {
        assert!(told.contains(word), "{word} is not in\n{told}");
    }
    assert!(!told.contains('\x1b'), "colours are for terminals");
    assert!(!told.contains("of a test") && !told.contains("\"created_at\":500"), "{told}");
    assert!(into.join("src/lib.rs").is_file());

    let commands = commands(&told);
    let runner = commands.iter().find(|command| command.contains("runner-svc --data-dir")).unwrap();
    let digest = runner.split_once("--allow-executor ").unwrap().1.trim_end_matches(" &");
    if Command::new("grpcurl").arg("--version").output().is_ok() {
        let builder = Stack::builder().unwrap().without_tokens().sandbox();
        let stack = builder.runner(|flags| flags.allow_executor(digest)).start().await.unwrap();
        let calls = commands.iter().filter(|command| command.contains("exec --module") || command.contains("grpcurl"));
        let calls: Vec<_> = calls.map(|call| call.replace("127.0.0.1:7410", stack.runner.address())).collect();
        assert_eq!(calls.len(), 5, "the module by itself, blob, tool, plan, run");
        let said = tokio::task::spawn_blocking(move || calls.iter().map(|call| tried(call)).collect::<Vec<_>>());
        let said = said.await.unwrap();
        assert!(said.last().is_some_and(|said| said.contains("RUN_STATUS_COMPLETED")), "{said:?}");
    } else {
        println!("the calls were not tried: there is no grpcurl here");
    }

    let again = tour(&[&into]).output().unwrap();
    let why = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && why.contains("exists"), "nothing is overwritten: {why}");
}

/// What a command says that works.
fn tried(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command}\n{said}");
    said
}

#[test]
fn a_tour_whose_crate_is_gone_afterwards_shows_no_command_that_needs_it() {
    let place = tempfile::tempdir().unwrap();
    let mut tour = tour(&[]);
    tour.env("TMPDIR", place.path());
    let told = said(tour);
    assert!(told.contains("`cargo guest DIR`"), "{told}");
    let gone = place.path().to_str().unwrap();
    assert!(commands(&told).iter().all(|command| !command.contains(gone)), "{told}");
}
