//! The demo, as a newcomer runs it: it ends well, and every line that it prints works.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

use e2e::binaries;
use rustix::process::{Pid, Signal, kill_process};

/// The demo on the programs that are there.
fn demo(argument: &str) -> Command {
    let directory = binaries::directory().unwrap();
    let mut command = Command::new(directory.join("demo"));
    command.arg(argument).env(binaries::DIRECTORY_VARIABLE, directory).stdin(Stdio::null());
    command
}

#[test]
fn the_demo_checks_itself_and_prints_plain_text_into_a_pipe() {
    let output = demo("--check").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().last(), Some("demo: ok"));
    assert!(!said.contains('\x1b'), "colours are for terminals");
    assert!(said.lines().all(|line| line.starts_with("   $ ") || line.chars().count() <= 120), "{said}");
}

#[test]
fn every_line_that_the_demo_prints_works_while_it_keeps_the_services() {
    if Command::new("grpcurl").arg("--version").output().is_err() {
        println!("not checked: there is no grpcurl here");
        return;
    }
    let mut child = demo("--keep").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut commands = Vec::new();
    let kept = lines.by_ref().find(|line| {
        commands.extend(line.strip_prefix("   $ ").map(str::to_owned));
        line.contains("The services go on")
    });
    assert!(kept.is_some(), "the demo ended");
    assert!(commands.len() >= 8, "{commands:?}");
    for (place, command) in commands.iter().enumerate() {
        let output = Command::new("sh").args(["-c", command]).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // The first is the refusal that was shown.
        assert_eq!(output.status.success(), place > 0, "{command}\n{said}");
        assert!(place > 0 || said.contains("RUN-E018"), "{said}");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!(complaints, "");
}
