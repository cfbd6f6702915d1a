//! The tour of a tool author: write, build, try, pin, run. Every result that it prints was just seen.

mod module;
mod repeat;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use content_digest::Digest;
use proto::runner::v1::RunStatus;
use serde_json::Value;

use crate::{
    binaries,
    demo::{build, screen::Screen},
    stack::Stack,
};

/// The crate's name, the tool's, and the node's.
const NAME: &str = "total";
/// What the tool is tried with.
const INPUT: &str = r#"{"lines": [{"what": "paper", "cents": 1250}, {"what": "ink", "cents": 3799}]}"#;
/// What it gives.
const OUTPUT: &str = r#"{"total_cents":5049,"lines":2}"#;

/// How the tour is gone.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the crate is written and left.
    pub directory: Option<PathBuf>,
    /// End with `guest: ok`.
    pub check: bool,
}

/// Goes the way; says what went wrong, if anything did.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the tour is a command line program")]
pub fn main(options: Options) -> ExitCode {
    match run(&options) {
        Ok(()) => {
            if options.check {
                println!("guest: ok");
            }
            ExitCode::SUCCESS
        }
        Err(cause) => {
            eprintln!("\nguest: failed: {cause:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let screen = Screen::new();
    screen.title("a tool as a module", "write, build, try, pin, run");
    build::services(&screen)?;
    let temporary = tempfile::Builder::new().prefix("areev-guest-").tempdir().context("a temporary directory")?;
    let directory = match &options.directory {
        Some(named) => std::path::absolute(named).context("the crate's folder")?,
        None => temporary.path().join(NAME),
    };
    write(&screen, &directory)?;
    if options.directory.is_none() {
        screen.blank();
        screen.note("this is gone afterwards: `cargo guest DIR` leaves it in DIR, and shows each command to repeat");
    }
    let module = module::build(&screen, &directory, options.directory.is_some())?;
    let stays = !module.starts_with(temporary.path());
    try_it(&screen, &module, stays)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?;
    runtime.block_on(pin_and_run(&screen, &module, stays))?;
    screen.blank();
    let left = options.directory.as_ref().map(|_| format!("The crate is in {}. ", directory.display()));
    screen.prose(&format!(
        "{}Calls to the outside, blobs, errors and limits are in sandbox-svc/guest/README.md; the same tool in C, Zig and \
         AssemblyScript is in tests/guests.",
        left.unwrap_or_default()
    ));
    Ok(())
}

fn write(screen: &Screen, directory: &Path) -> Result<()> {
    screen.part(1, "Write");
    screen.prose(
        "A tool is a function from a typed input to a typed result. The crate areev-guest makes a module of it.",
    );
    for (name, text) in [("Cargo.toml", module::manifest(NAME)), ("src/lib.rs", module::SOURCE.to_owned())] {
        let file = directory.join(name);
        ensure!(!file.exists(), "{} exists: name a new directory", file.display());
        fs::create_dir_all(file.parent().context("a file lies in a folder")?).context("the crate's folder")?;
        fs::write(&file, &text).with_context(|| format!("cannot write {}", file.display()))?;
        screen.raw("file", &file.display().to_string());
        if name.ends_with(".rs") {
            screen.blank();
            text.lines().for_each(|line| screen.raw("", line));
        }
    }
    Ok(())
}

fn try_it(screen: &Screen, module: &Path, stays: bool) -> Result<()> {
    screen.part(3, "Try");
    screen.prose(
        "One module, once, with no service around it: the input on stdin, the result on stdout, the fuel on stderr.",
    );
    let program = binaries::directory()?.join("sandbox-svc");
    let mut child = Command::new(&program)
        .args(["exec", "--module"])
        .arg(module)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("sandbox-svc exec")?;
    child.stdin.take().context("its input")?.write_all(INPUT.as_bytes()).context("its input")?;
    let ended = child.wait_with_output().context("sandbox-svc exec")?;
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    ensure!(ended.status.success() && out.trim() == OUTPUT, "the module gave {out:?} and said {err:?}");
    screen.raw("input", INPUT);
    screen.good("result", out.trim());
    screen.raw("stderr", err.trim());
    if stays {
        screen.commands(&[repeat::once(&program, module, INPUT)]);
    }
    Ok(())
}

async fn pin_and_run(screen: &Screen, module: &Path, stays: bool) -> Result<()> {
    let bytes = fs::read(module).context("the module")?;
    let digest = Digest::of(&bytes);
    screen.part(4, "Pin");
    screen.prose(
        "Anyone can store a module and define a tool by it. It runs when the operator has pinned its digest: authority never \
         travels with code.",
    );
    let mut stack = Stack::builder()?.without_tokens().sandbox().start().await?;
    let client = stack.client();
    let uri = client.put_blob(&bytes).await?;
    let definition = repeat::definition(NAME, &uri);
    let definition_hash = client.put_definition_json(&definition.to_string()).await?;
    let document = repeat::plan(NAME, &definition_hash);
    let plan = client.put_plan_json(&document.to_string()).await?;
    screen.raw("PutBlob", &uri);
    screen.raw("definition", &definition.to_string());
    screen.raw("plan", &document.to_string());
    let input: Value = serde_json::from_str(INPUT).context("the input")?;
    let Err(refused) = client.start("unpinned", &plan, &input).await else { bail!("unpinned code was started") };
    ensure!(refused.message().starts_with("RUN-E018"), "{}", refused.message());
    screen.line("StartRun", &format!("{} {}", screen.red("refused"), refused.message()));
    stack.runner.flags = stack.runner.flags.clone().allow_executor(&digest.to_hex());
    stack.runner.restart().await?;
    screen.blank();
    screen.raw("pinned", "runner-svc --allow-executor \\");
    screen.raw("", &digest.to_hex());

    screen.part(5, "Run");
    let client = stack.client();
    let run = client.run("tour", &plan, &input).await?;
    ensure!(run.status() == RunStatus::Completed, "the run ended as {:?}: {}", run.status(), run.reason);
    let action = client.step_actions(&plan).await?.into_iter().next().context("the run has no row")?;
    ensure!(action.tool_content == OUTPUT, "the run gave {}", action.tool_content);
    screen.good("StartRun", &format!("completed, {} units of fuel", run.spent.map_or(0, |spent| spent.fuel)));
    screen.good("result", &action.tool_content);
    ensure!(client.verify("tour").await?.clean, "the journal does not verify");
    screen.good("VerifyRun", "the journal makes the same decisions again");
    screen.blank();
    if stays {
        screen.note(
            "the same with services of your own: start both, then store the module, the tool and the plan, and run",
        );
        screen.commands(&repeat::services(binaries::directory()?, &digest.to_hex()));
        screen.commands(&repeat::calls(module, &definition, &document, &plan, &input));
    } else {
        screen
            .note("`cargo guest DIR` leaves the module, and shows the commands for the same with services of your own");
    }
    Ok(())
}
