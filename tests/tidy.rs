//! The tree keeps its own rules: a check of style that runs with the tests.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use e2e::{
    binaries::workspace,
    guests::{LANGUAGES, built},
    tree::{Source, is_test, sources},
};
use proto::fault::Reason;

/// Longest source file.
const LINES_MAX: usize = 400;
/// Files that may be longer, with the reason.
const LONG: [(&str, &str); 0] = [];

/// What may lie at the top of the repository; hidden files and folders are free, `target` is a product.
const TOP: [&str; 14] = [
    "ARCHITECTURE.md",
    "Cargo.lock",
    "Cargo.toml",
    "Dockerfile",
    "LICENSE",
    "README.md",
    "broker-svc",
    "deny.toml",
    "helm",
    "proto",
    "runner-svc",
    "sandbox-svc",
    "target",
    "tests",
];

/// What the pure core may depend on, directly: values and digests; no clock, no disk, no network, no runtime.
const PURE_DEPENDENCIES: [&str; 10] = [
    "content-digest",
    "hex",
    "jsonschema",
    "regex",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "unicode-normalization",
    "url",
];

/// Text that no source may hold, with the reason. Split, so that this file does not find itself.
const FORBIDDEN: [(&str, &str, &str); 7] = [
    ("todo", "!(", "finish it or leave it out"),
    ("unimplemented", "!(", "answer with a typed refusal"),
    ("dbg", "!(", "log a field"),
    ("FIX", "ME", "mend it or open an issue"),
    ("TO", "DO", "do it or open an issue"),
    ("#[ig", "nore", "a test runs or goes"),
    ("X", "XX:", "say what it is"),
];

fn rust() -> Vec<Source> {
    let sources = sources(&["rs"]).unwrap();
    assert!(sources.len() > 50, "the walk found only {} files", sources.len());
    sources
}

/// The part of a file that is not its unit tests.
fn without_tests(source: &Source) -> &str {
    source.text.split("#[cfg(test)]").next().unwrap_or_default()
}

/// Fails with every finding at once.
#[track_caller]
fn none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

fn findings(problem: impl Fn(&Source) -> Option<String>) -> Vec<String> {
    rust().iter().filter_map(|source| Some(format!("{}: {}", source.path.display(), problem(source)?))).collect()
}

#[test]
fn a_file_is_one_noun_and_short() {
    none(&findings(|source| {
        let lines = source.text.lines().count();
        let excused = LONG.iter().any(|(path, _)| source.path == Path::new(path));
        (lines > LINES_MAX && !excused).then(|| format!("{lines} lines, over {LINES_MAX}"))
    }));
}

#[test]
fn a_file_says_in_its_first_line_what_it_is() {
    none(&findings(|source| (!source.text.starts_with("//! ")).then(|| "begins without `//!`".to_owned())));
}

#[test]
fn modules_lie_beside_their_folders() {
    none(&findings(|source| source.path.ends_with("mod.rs").then(|| "name it after its folder, beside it".to_owned())));
}

#[test]
fn nothing_is_left_to_be_done() {
    let found = findings(|source| {
        let hit = FORBIDDEN.iter().find(|(start, end, _)| source.text.contains(&format!("{start}{end}")));
        hit.map(|(start, end, what)| format!("`{start}{end}`: {what}"))
    });
    none(&found);
}

#[test]
fn services_do_not_unwrap() {
    none(&findings(|source| {
        let hit = !is_test(&source.path) && without_tests(source).contains(".unwrap()");
        hit.then(|| "`.unwrap()` outside tests: `expect` says why it cannot fail".to_owned())
    }));
}

/// Where code is that the compiler cannot check: how many blocks, and the reason.
const UNSAFE: [(&str, usize, &str); 3] = [
    ("sandbox-svc/src/artefact.rs", 1, "loads machine code that this program compiled: the engine asks for a promise"),
    ("sandbox-svc/src/compile/child/turns.rs", 1, "the handler of a signal: it makes one system call"),
    ("sandbox-svc/guest/src/abi/on_wasm.rs", 2, "the guest's side of the ABI: what crosses it are addresses"),
];

#[test]
fn unsafe_code_is_in_its_three_places() {
    // Split, so that this file does not find itself.
    let word = ["unsafe", " {"].concat();
    none(&findings(|source| {
        let known =
            UNSAFE.iter().find(|(path, _, _)| source.path == Path::new(path)).map_or(0, |(_, blocks, _)| *blocks);
        let found = source.text.matches(&word).count();
        (found != known).then(|| format!("{found} blocks of code that the compiler cannot check, not {known}"))
    }));
}

#[test]
fn grpc_types_stay_at_the_border() {
    none(&findings(|source| {
        let path = source.path.to_str().unwrap();
        let border = ["proto/", "tests/"].iter().any(|start| path.starts_with(start))
            || is_test(&source.path)
            || path.contains("/api")
            || path.contains("_client")
            || ["app.rs", "main.rs", "/build.rs"].iter().any(|end| path.ends_with(end))
            || GRPC_ELSEWHERE.iter().any(|(allowed, _)| path.starts_with(allowed));
        (!border && without_tests(source).contains("tonic::")).then(|| "tonic outside the border".to_owned())
    }));
}

/// Where tonic is also at home, with the reason.
const GRPC_ELSEWHERE: [(&str, &str); 1] =
    [("runner-svc/src/access", "callers are found out from a request's metadata and connection")];

#[test]
fn the_engine_is_the_sandboxs_alone() {
    none(&findings(|source| {
        // Split, so that this file does not find itself.
        let code = source.text.contains(&["wasm", "time::"].concat());
        (code && !source.path.starts_with("sandbox-svc")).then(|| "wasmtime outside the sandbox".to_owned())
    }));
    for manifest in sources(&["toml"]).unwrap() {
        let elsewhere = manifest.path.ends_with("Cargo.toml") && manifest.path.components().count() > 1;
        let named = manifest.text.contains("\nwasmtime");
        assert!(!elsewhere || !named || manifest.path.starts_with("sandbox-svc"), "{}", manifest.path.display());
    }
}

#[test]
fn the_tests_know_the_services_as_processes() {
    none(&findings(|source| {
        let inside = ["runner", "sandbox", "broker"].iter().find(|name| source.text.contains(&format!("{name}_svc::")));
        let hit = inside.filter(|_| source.path.starts_with("tests"));
        hit.map(|name| format!("{name}-svc as a library"))
    }));
}

#[test]
fn the_core_is_pure() {
    let manifest: toml::Table =
        fs::read_to_string(workspace().join("runner-svc/core/Cargo.toml")).unwrap().parse().unwrap();
    let dependencies = manifest["dependencies"].as_table().unwrap();
    for name in dependencies.keys() {
        assert!(PURE_DEPENDENCIES.contains(&name.as_str()), "runner-core depends on {name}");
    }
    let impure = [
        "std::fs",
        "std::net::Tcp",
        "std::net::Udp",
        "ToSocketAddrs",
        "std::time::SystemTime",
        "Instant::now",
        "std::env",
        "std::process",
        "HashMap",
        "HashSet",
        "rand::",
        "tokio::",
    ];
    let core = rust().into_iter().filter(|source| source.path.starts_with("runner-svc/core/src"));
    let mut found = Vec::new();
    for source in core {
        for word in impure {
            // Comments may name what is absent.
            let code = without_tests(&source).lines().filter(|line| !line.trim_start().starts_with("//"));
            if code.into_iter().any(|line| line.contains(word)) {
                found.push(format!("{}: {word}", source.path.display()));
            }
        }
    }
    none(&found);
}

#[test]
fn the_top_of_the_repository_is_what_it_is_meant_to_be() {
    let mut found = Vec::new();
    for entry in fs::read_dir(workspace()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.starts_with('.') && !TOP.contains(&name.as_str()) {
            found.push(format!("{name} does not belong at the top"));
        }
    }
    none(&found);
}

#[test]
fn no_dependency_changes_how_numbers_are_read() {
    let text = tree(&["--workspace", "--edges", "features", "--invert", "serde_json"]);
    for feature in ["float_roundtrip", "arbitrary_precision", "preserve_order"] {
        assert!(!text.contains(&format!("serde_json feature {feature:?}")), "somebody turns on {feature}");
    }
}

/// What cargo says of the dependencies.
fn tree(arguments: &[&str]) -> String {
    let tree = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(workspace())
        .args(["tree", "--offline"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).unwrap()
}

#[test]
fn the_demo_and_the_tour_reuse_what_a_build_of_the_workspace_compiled() {
    let built = |of: &[&str]| {
        let text = tree(&[of, &["--edges", "normal,build", "--prefix", "none", "--format", "{p} [{f}]"]].concat());
        text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect::<BTreeSet<_>>()
    };
    let (whole, part) = (built(&["--workspace"]), built(&["--package", "e2e"]));
    let again: Vec<_> =
        part.difference(&whole).map(|package| format!("{package}: with other features in the workspace")).collect();
    assert!(part.len() > 100, "the tree has only {} packages", part.len());
    none(&again);
}

#[test]
fn the_modules_of_the_guests_are_built_from_the_sources_that_lie_here() {
    let found = LANGUAGES.iter().flat_map(|language| built::stale(workspace(), language).unwrap());
    none(&found.collect::<Vec<_>>());
}

#[test]
fn the_readme_lists_every_reason_with_its_codes() {
    let readme = fs::read_to_string(workspace().join("README.md")).unwrap();
    let rows: BTreeSet<Vec<String>> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect())
        .collect();
    let mut missing = Vec::new();
    for reason in Reason::all() {
        let grpc = grpc_name(reason.grpc());
        let code = reason.code().unwrap_or("–");
        let listed =
            rows.iter().any(|row| row.len() > 3 && row[0] == reason.name() && row[1] == code && row[2] == grpc);
        if !listed {
            missing.push(format!("| `{}` | {code} | {grpc} | … |", reason.name()));
        }
    }
    none(&missing);
}

/// The code as grpcurl prints it.
fn grpc_name(code: tonic::Code) -> String {
    let name = format!("{code:?}");
    let mut upper = String::new();
    for (place, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && place > 0 {
            upper.push('_');
        }
        upper.extend(letter.to_uppercase());
    }
    upper
}

#[test]
fn the_project_speaks_of_itself_alone() {
    // Split, so that this file does not find itself.
    let foreign =
        [["/work", "/main"], ["/work", "/wt"], ["/work", "/shared"], ["shared", "/spec"], ["seed-be", "haviours"]];
    let foreign = foreign.map(|parts| parts.concat());
    let all = sources(&["rs", "md", "toml", "proto", "yaml", "yml", "json", "sh", "wat", "tpl", "txt"]).unwrap();
    let hit = |source: &Source| foreign.iter().find(|word| source.text.contains(word.as_str())).cloned();
    let found: Vec<_> =
        all.iter().filter_map(|source| Some(format!("{}: {}", source.path.display(), hit(source)?))).collect();
    none(&found);
}
