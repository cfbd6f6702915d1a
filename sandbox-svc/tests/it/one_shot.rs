//! `sandbox-svc exec`: one module, once, from a file.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use crate::{bombs, guests};

struct OneShot {
    dir: tempfile::TempDir,
}

impl OneShot {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn module(&self, wat: &str) -> PathBuf {
        let path = self.dir.path().join("module.wasm");
        std::fs::write(&path, wat::parse_str(wat).unwrap()).unwrap();
        path
    }

    fn run(&self, wat: &str, arguments: &[&str], input: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-svc"));
        command.arg("exec").arg("--module").arg(self.module(wat)).args(arguments);
        run(command, input)
    }
}

fn run(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that refuses its arguments reads no input.
    let _closed = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_result_is_one_line_and_the_fuel_is_on_stderr() {
    let (code, out, err) = texts(&OneShot::new().run(&guests::echo(), &[], "{\n \"q\": 7 }\n"));
    assert_eq!((code, out.as_str()), (Some(0), "{\"q\":7}\n"));
    assert!(err.starts_with("fuel used ") && err.lines().count() == 1, "{err}");
    let (_, out, _) = texts(&OneShot::new().run(&guests::says("[1,\n 2.0]"), &[], "1"));
    assert_eq!(out, "[1,2.0]\n");
    let (_, out, _) = texts(&OneShot::new().run(&guests::echo(), &[], " \n"));
    assert_eq!(out, "null\n");
}

#[test]
fn what_goes_wrong_is_said_on_stderr_with_exit_1() {
    let shot = OneShot::new();
    let fetching = guests::fetches(&["{\"url\":\"https://x\"}"]);
    let blob = guests::guest(r#"(import "areev" "blob_get" (func (param i32 i32) (result i32)))"#, "", "");
    let cases: [(&str, &[&str], &str, &str); 7] = [
        (&guests::endless(), &["--fuel", "5000"], "1", "guest exhausted its fuel"),
        (&guests::echo(), &["--max-pages", "1"], "1", "pages"),
        (&fetching, &[], "1", "allow it with --allow-fetch"),
        (&blob, &[], "1", "allow it with --allow-blob"),
        (&guests::pure(""), &[], "1", "guest never called areev::emit"),
        (&guests::echo(), &[], "{", "input is not JSON"),
        (&guests::echo(), &["--verbose"], "1", "--verbose"),
    ];
    for (wat, arguments, input, text) in cases {
        let (code, out, err) = texts(&shot.run(wat, arguments, input));
        assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
        assert!(err.contains(text), "{arguments:?}: {err}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-svc"));
    command.args(["exec", "--module", "/nowhere.wasm"]);
    let (code, _, err) = texts(&run(command, "1"));
    assert!(code == Some(1) && err.contains("/nowhere.wasm"), "{err}");
}

#[test]
fn a_fetch_goes_to_the_egress_door_with_the_token() {
    let shot = OneShot::new();
    let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", door.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = door.accept().unwrap();
        let mut seen = Vec::new();
        let mut chunk = [0; 4096];
        while !seen.ends_with(b"\"https://x\"}") {
            let count = std::io::Read::read(&mut stream, &mut chunk).unwrap();
            assert!(count > 0, "the request ended early: {}", seen.escape_ascii());
            seen.extend_from_slice(&chunk[..count]);
        }
        let body = "{\"status\":200,\"body\":\"ok\"}";
        let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        stream.write_all(reply.as_bytes()).unwrap();
        String::from_utf8(seen).unwrap()
    });
    let fetching = guests::fetches(&["{\"url\":\"https://x\"}"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-svc"));
    command
        .args(["exec", "--allow-fetch", "--max-response-bytes", "2", "--module"])
        .arg(shot.module(&fetching))
        .env("AREEV_EGRESS_URL", &url)
        .env("AREEV_EGRESS_TOKEN", "t0")
        .env("HTTP_PROXY", "http://127.0.0.1:1");
    let (code, out, err) = texts(&run(command, "1"));
    assert_eq!((code, out.as_str()), (Some(0), "{\"status\":200,\"body\":\"ok\"}\n"), "{err}");
    let seen = serving.join().unwrap();
    assert!(seen.starts_with("POST / HTTP/1.1\r\n") && seen.contains("x-areev-egress-token: t0\r\n"), "{seen}");
}

#[test]
fn without_an_egress_door_the_guest_is_told_why() {
    let fetching = guests::fetches(&["{\"url\":\"https://x\"}"]);
    let (code, out, _) = texts(&OneShot::new().run(&fetching, &["--allow-fetch"], "1"));
    assert!(code == Some(0) && out.contains("AREEV_EGRESS_URL") && out.contains("RUN-E022"), "{out}");
}

#[test]
fn of_the_doors_variables_the_missing_one_is_named_and_a_bad_url_is_not_shown() {
    let shot = OneShot::new();
    let module = shot.module(&guests::fetches(&["{\"url\":\"https://x\"}"]));
    let exec = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-svc"));
        command.args(["exec", "--allow-fetch", "--module"]).arg(&module);
        command.env_remove("AREEV_EGRESS_URL").env_remove("AREEV_EGRESS_TOKEN").envs(variables.iter().copied());
        texts(&run(command, "1"))
    };
    let (url, token) = (("AREEV_EGRESS_URL", "http://127.0.0.1:1/"), ("AREEV_EGRESS_TOKEN", "t0"));
    for (variables, missing) in [
        (&[url][..], "broker: AREEV_EGRESS_TOKEN is not set"),
        (&[token][..], "broker: AREEV_EGRESS_URL is not set"),
        (&[][..], "broker: AREEV_EGRESS_URL and AREEV_EGRESS_TOKEN are not set"),
    ] {
        let (code, out, err) = exec(variables);
        assert!(code == Some(0) && out.contains(missing), "{variables:?}: {out}{err}");
    }
    for bad in ["ftp://door/?key=s3cret", "s3cret@door?key=s3cret"] {
        let (code, out, err) = exec(&[("AREEV_EGRESS_URL", bad), token]);
        assert!(code == Some(1) && err.contains("AREEV_EGRESS_URL is no http:// or https:// URL"), "{bad}: {err}");
        assert!(!(out + &err).contains("s3cret"), "{bad}");
    }
}

#[test]
fn the_services_variables_are_nothing_to_it() {
    let shot = OneShot::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-svc"));
    command.args(["exec", "--module"]).arg(shot.module(&guests::echo()));
    command
        .env("AREEV_SANDBOX_LISTEN", "nowhere")
        .env("AREEV_SANDBOX_QUEUE", "many")
        .env("AREEV_SANDBOX_CONFIG", "/none");
    let (code, out, err) = texts(&run(command, "7"));
    assert_eq!((code, out.as_str()), (Some(0), "7\n"), "{err}");
}

#[test]
fn a_pipe_in_place_of_a_module_or_a_blob_is_refused_and_not_waited_for() {
    let shot = OneShot::new();
    let pipe = |path: PathBuf| {
        let (here, kind) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(here, &path, kind, rustix::fs::Mode::RUSR, 0).unwrap();
        path
    };
    let exec = |module: PathBuf, input: &str| {
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_sandbox-svc"), "exec", "--allow-blob", "--module"]).arg(module);
        command.env("AREEV_BLOB_DIR", shot.dir.path());
        texts(&run(command, input))
    };
    let (code, out, err) = exec(pipe(shot.dir.path().join("pipe")), "1");
    assert!(code == Some(1) && out.is_empty() && err.contains("not a regular file"), "{code:?}: {err}");
    let digest = content_digest::Digest::of(b"the blob");
    pipe(shot.dir.path().join(digest.to_hex()));
    let (code, out, err) = exec(shot.module(&guests::reads_blob()), &format!("\"{}\"", digest.to_uri()));
    assert!(code == Some(0) && out.contains("cannot be read: it is not a regular file"), "{code:?}: {out}{err}");
}

#[test]
fn a_blob_comes_from_the_directory_of_blobs() {
    let shot = OneShot::new();
    let (text, digest) = ("the blob", content_digest::Digest::of(b"the blob"));
    let hex = digest.to_hex();
    std::fs::create_dir(shot.dir.path().join(&hex[..2])).unwrap();
    std::fs::write(shot.dir.path().join(&hex[..2]).join(&hex[2..]), text).unwrap();
    let module = shot.module(&guests::reads_blob());
    let exec = |max: &str, directory: Option<&std::path::Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-svc"));
        command.args(["exec", "--allow-blob", "--max-blob-bytes", max, "--module"]).arg(&module);
        match directory {
            Some(directory) => command.env("AREEV_BLOB_DIR", directory),
            None => command.env_remove("AREEV_BLOB_DIR"),
        };
        texts(&run(command, &format!("\"{}\"", digest.to_uri())))
    };
    let (code, out, err) = exec("8", Some(shot.dir.path()));
    assert_eq!((code, out.as_str()), (Some(0), "{\"body\":\"the blob\"}\n"), "{err}");
    let (code, out, _) = exec("7", Some(shot.dir.path()));
    assert!(code == Some(0) && out.contains("more than 7 bytes") && out.contains("RUN-E022"), "{out}");
    let (code, out, _) = exec("8", None);
    assert!(code == Some(0) && out.contains("AREEV_BLOB_DIR is not set"), "{out}");
}

/// What of CPU time it takes beside compiling: to start two processes, to parse, to run.
const OVERHEAD_SECONDS: f64 = 1.5;

#[test]
fn a_compile_bomb_takes_no_more_than_its_budget_of_cpu_time() {
    let shot = OneShot::new();
    for (name, bomb) in bombs::all() {
        // The shell says last what its children and theirs have used.
        let mut command = Command::new("sh");
        command.args(["-c", "\"$@\"; code=$?; times >&2; exit $code", "sh", env!("CARGO_BIN_EXE_sandbox-svc")]);
        command.args(["exec", "--module"]).arg(shot.module(&bomb));
        let (code, out, err) = texts(&run(command, "1"));
        let refused = code == Some(1) && err.starts_with("the module is refused: ");
        assert!(refused || (code, out.as_str()) == (Some(0), "1\n"), "{name}: {out}{err}");
        let used = seconds(err.lines().last().unwrap());
        assert!(used <= 2.0 + OVERHEAD_SECONDS, "{name}: {used} s");
    }
}

/// The sum of times as a shell writes them: `0m1.25s 0m0.10s`.
fn seconds(times: &str) -> f64 {
    let parts = times.split_whitespace().map(|time| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
    });
    parts.sum()
}
