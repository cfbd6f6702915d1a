//! Settings: every mistake stops the start and is named.

use std::{fs, process::Command};

use e2e::{binaries, flags::Flags, service};

fn starts() -> [(tempfile::TempDir, Flags); 3] {
    let directory = || tempfile::tempdir().unwrap();
    let runner = directory();
    let flags = Flags::runner(&runner.path().join("data"));
    [(runner, flags), (directory(), Flags::sandbox()), (directory(), Flags::broker())]
}

fn refused(flags: &Flags) -> String {
    let output = service::refused_start(flags).unwrap();
    assert!(!output.status.success(), "{} started", flags.kind.program());
    assert!(output.stdout.is_empty());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_unknown_key_in_a_settings_file_stops_the_start_and_is_named() {
    for (directory, flags) in starts() {
        let file = directory.path().join("settings.toml");
        fs::write(&file, "no_such_key = true\n").unwrap();
        let said = refused(&flags.config(&file));
        assert!(said.contains("no_such_key") && said.contains("settings.toml"), "{said}");
        fs::write(&file, "[no_such_section]\nkey = 1\n").unwrap();
    }
}

#[test]
fn a_settings_file_that_is_missing_or_no_toml_stops_the_start() {
    for (directory, flags) in starts() {
        let file = directory.path().join("settings.toml");
        let said = refused(&flags.clone().config(&file));
        assert!(said.contains("settings.toml"), "{said}");
        fs::write(&file, "this is no toml").unwrap();
        let said = refused(&flags.config(&file));
        assert!(said.contains("settings.toml"), "{said}");
    }
}

#[test]
fn an_address_that_others_can_reach_needs_tls_or_a_word() {
    for (_directory, flags) in starts() {
        let program = binaries::directory().unwrap().join(flags.kind.program());
        let output = Command::new(program)
            .args(&flags.arguments)
            .args(["--listen", "0.0.0.0:0", "--admin-listen", "off"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("--insecure-listen") && said.contains("--tls-cert"),
            "{said}"
        );
    }
}

#[test]
fn a_flag_that_does_not_exist_stops_the_start() {
    for (_directory, flags) in starts() {
        let said = refused(&flags.flag("--no-such-flag"));
        assert!(said.contains("--no-such-flag"), "{said}");
    }
}

#[test]
fn a_pin_that_is_no_digest_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let said = refused(&Flags::runner(&directory.path().join("data")).allow_executor("crm.lookup@v3"));
    assert!(said.contains("crm.lookup@v3"), "{said}");
}

#[test]
fn a_broken_policy_stops_the_broker_and_names_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("broker.toml");
    for (settings, named) in [
        ("[policy]\nallow_hosts = [\"https://*\"]\n", "allow_hosts"),
        ("[policy]\nallow_private = [\"10.0.0.0/99\"]\n", "allow_private"),
        ("[credentials.bank]\nkind = \"bearer\"\nfrom = \"env:E2E_NOWHERE\"\n", "hosts"),
        (
            "[credentials.bank]\nkind = \"telepathy\"\nfrom = \"env:X\"\nhosts = [\"https://a.example\"]\n",
            "[credentials.bank] kind",
        ),
        ("[grants.work]\ncredentials = [\"ghost\"]\n", "ghost"),
        ("[grants.work]\nmethods = [\"TELEPORT\"]\n", "TELEPORT"),
        ("[grants.work]\nmethod = [\"GET\"]\n", "method"),
    ] {
        fs::write(&file, settings).unwrap();
        let said = refused(&Flags::broker().config(&file));
        assert!(said.contains(named), "{named:?} is not in {said}");
    }
}

#[test]
fn help_and_version_end_well() {
    for (_directory, flags) in starts() {
        let program = binaries::directory().unwrap().join(flags.kind.program());
        for word in ["--help", "--version"] {
            let output = Command::new(&program).arg(word).output().unwrap();
            assert!(output.status.success());
            assert!(String::from_utf8_lossy(&output.stdout).contains(flags.kind.program()));
        }
    }
}
