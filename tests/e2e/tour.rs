//! The tour of a tool author: it ends well, wherever the compiler has no library for modules too.

use std::process::{Command, Stdio};

use e2e::binaries;

#[test]
fn the_tour_checks_itself_and_leaves_the_crate_where_it_was_told() {
    let directory = binaries::directory().unwrap();
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("total");
    let tour = || {
        let mut tour = Command::new(directory.join("guest"));
        tour.arg("--check").arg(&into).env(binaries::DIRECTORY_VARIABLE, directory).stdin(Stdio::null());
        tour.output().unwrap()
    };
    let output = tour();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().last(), Some("guest: ok"));
    for word in ["RUN-E018", "--allow-executor", "fuel used", "{\"total_cents\":5049,\"lines\":2}"] {
        assert!(said.contains(word), "{word} is not in\n{said}");
    }
    assert!(!said.contains('\x1b'), "colours are for terminals");
    assert!(into.join("src/lib.rs").is_file());
    let again = tour();
    assert!(
        !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("exists"),
        "nothing is overwritten"
    );
}
