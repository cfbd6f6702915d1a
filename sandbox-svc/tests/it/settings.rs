//! What the program says of its settings.

use std::process::{Command, Output};

fn printed(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_sandbox-svc"));
    program.env_clear().arg("--print-config").args(arguments).output().unwrap()
}

#[test]
fn services_are_named_and_none_is_called() {
    let output = printed(&["--broker-url", "http://broker.invalid:7430", "--allow-native", "--native-read", "/usr"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let shown: toml::Table = toml::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert_eq!(shown["broker_url"][0].as_str(), Some("http://broker.invalid:7430"));
    assert_eq!(shown["native_read"][0].as_str(), Some("/usr"));
    assert_eq!(shown["serve"]["listen"].as_str(), Some("127.0.0.1:7420"));
}

#[test]
fn what_a_start_refuses_is_not_printed_either() {
    let nowhere = "/nonexistent/areev";
    for (arguments, named) in [
        (vec!["--queue", "1000000000"], "--queue"),
        (vec!["--log", "not=a=filter"], "--log"),
        (vec!["--broker-url", "ftp://x"], "--broker-url"),
        (vec!["--cache-dir", nowhere, "--cache-key-file", "/nonexistent/key"], "/nonexistent/key"),
        (vec!["--allow-native", "--native-read", nowhere], "--native-read"),
        (vec!["--allow-native", "--native-read", ""], "--native-read"),
    ] {
        let output = printed(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty() && said.contains(named), "{arguments:?}: {said}");
    }
}
