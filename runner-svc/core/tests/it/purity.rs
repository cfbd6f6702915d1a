//! The core stays pure: no I/O, no clock, no randomness, no order that depends on hashing, and few dependencies.

use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(sources(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn no_source_names_a_clock_a_file_a_socket_a_thread_or_a_hash_map() {
    let forbidden = [
        "std::time",
        "SystemTime",
        "Instant",
        "std::fs",
        "std::io",
        "std::env",
        "std::process",
        "std::thread",
        "TcpStream",
        "UdpSocket",
        "HashMap",
        "HashSet",
        "RandomState",
        "rand::",
        "println!",
        "unsafe ",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&root);
    assert!(files.len() > 20, "the sources are where they were");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in forbidden {
            assert!(!text.contains(word), "{} names {word}", file.display());
        }
    }
}

#[test]
fn it_depends_on_nothing_but_data() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let table = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names: Vec<&str> =
        table.lines().filter_map(|line| line.split(['.', ' ']).next()).filter(|name| !name.is_empty()).collect();
    let allowed = ["content-digest", "serde", "serde_json", "thiserror"];
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
}
