//! What the program says of its settings, and of what it counts.

use std::process::{Command, Output};

fn printed(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_runner-svc"));
    program.env_clear().arg("--print-config").args(arguments).output().unwrap()
}

#[test]
fn the_settings_that_are_printed_are_those_in_force_with_every_default_filled_in() {
    let output = printed(&["--workers", "7"]);
    assert!(output.status.success());
    let shown: toml::Table = toml::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert_eq!(shown["workers"].as_integer(), Some(7));
    assert_eq!(shown["max_concurrent_runs"].as_integer(), Some(1000));
    assert_eq!(shown["lease"].as_str(), Some("15s"));
    assert_eq!(shown["serve"]["listen"].as_str(), Some("127.0.0.1:7410"));
    assert_eq!(shown["serve"]["admin_listen"].as_str(), Some("127.0.0.1:7411"));
    assert_eq!(shown["telemetry"]["log"].as_str(), Some("info"));
}

#[test]
fn services_are_named_and_none_is_called() {
    let output =
        printed(&["--sandbox-url", "http://sandbox.invalid:7420", "--broker-url", "http://broker.invalid:7430"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("http://sandbox.invalid:7420") && shown.contains("http://broker.invalid:7430"), "{shown}");
}

#[test]
fn what_a_start_refuses_is_not_printed_either() {
    for (arguments, named) in [
        (["--workers", "0"], "--workers"),
        (["--lease", "1s"], "--lease"),
        (["--allow-executor", "abc"], "abc"),
        (["--sandbox-url", "ftp://x"], "--sandbox-url"),
        (["--tokens-file", "/nonexistent/tokens"], "/nonexistent/tokens"),
        (["--log", "not=a=filter"], "--log"),
    ] {
        let output = printed(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty() && said.contains(named), "{arguments:?}: {said}");
    }
}

#[test]
fn every_family_is_there_from_the_start_with_its_help() {
    let metrics = proto::telemetry::metrics();
    runner_svc::families::register();
    let shown = metrics.render();
    for line in [
        "# HELP areev_runs_quarantined ",
        "# HELP areev_effects_in_flight ",
        "# HELP areev_tokens_minted_total ",
        "# HELP areev_effect_fuel_total ",
        "areev_runs{place=\"quarantined\"}",
        "areev_runs_finished_total{outcome=\"completed\"}",
        "areev_journal_mended_total",
    ] {
        assert!(shown.contains(line), "{line:?} is not in {shown}");
    }
}

#[test]
fn a_reader_of_the_settings_who_has_had_enough_is_no_error_and_a_full_disk_is_one() {
    let to = |output: std::process::Stdio| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_runner-svc"));
        program.env_clear().arg("--print-config").stdout(output).stderr(std::process::Stdio::piped());
        let ended = program.output().unwrap();
        (ended.status.success(), String::from_utf8(ended.stderr).unwrap())
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (fine, said) = to(writer.into());
    assert!(fine && !said.contains("output"), "{said}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (fine, said) = to(full.into());
    assert!(!fine && said.contains("runner-svc: cannot write to the standard output: "), "{said}");
}
