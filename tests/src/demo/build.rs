//! Building the services in release mode, with a word now and then.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::screen::Screen;
use crate::binaries;

/// The programs that the demo starts.
const PROGRAMS: [&str; 3] = ["runner-svc", "sandbox-svc", "broker-svc"];
/// Time between two words without a terminal.
const WORD_EVERY: Duration = Duration::from_secs(20);
/// Lines of cargo's that are shown when the build fails.
const FAILURE_LINES: usize = 30;

/// Builds the three programs, unless a directory of ready ones is named.
pub fn services(screen: &Screen) -> Result<()> {
    if let Some(ready) = std::env::var_os(binaries::DIRECTORY_VARIABLE) {
        screen.line("programs", &format!("taken from {}", Path::new(&ready).display()));
        return Ok(());
    }
    let began = Instant::now();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(binaries::workspace()).args(["build", "--color", "never"]).args(binaries::build_arguments()?);
    let mut cargo = cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("cargo")?;
    let output = cargo.stderr.take().context("cargo's output")?;

    let (mut said, mut compiled, mut word) = (Vec::new(), 0, Instant::now());
    for line in BufReader::new(output).lines() {
        let line = line.context("cargo's output")?;
        if let Some(name) = line.trim_start().strip_prefix("Compiling ") {
            compiled += 1;
            let name = name.split_whitespace().next().unwrap_or_default();
            let crates = if compiled == 1 { "crate" } else { "crates" };
            let text = format!("building    {compiled} {crates}, {} s … {name}", began.elapsed().as_secs());
            let worth_a_line = compiled == 1 || word.elapsed() > WORD_EVERY;
            if worth_a_line {
                word = Instant::now();
            }
            screen.progress(&text, worth_a_line);
        }
        said.push(line);
    }
    screen.end_progress();
    if !cargo.wait().context("cargo")?.success() {
        bail!("the services do not build:\n{}", said[said.len().saturating_sub(FAILURE_LINES)..].join("\n"));
    }
    let how_long = if compiled == 0 { "up to date".to_owned() } else { format!("{} s", began.elapsed().as_secs()) };
    screen.line("programs", &format!("{} ({how_long})", PROGRAMS.join(", ")));
    Ok(())
}
