//! The demo: what a platform engineer sees first. Every claim that it prints was just checked.

pub(crate) mod build;
mod cast;
mod commands;
mod events;
pub(crate) mod screen;
mod secret;
mod story;

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use screen::Screen;
use story::Story;

/// How the demo is run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// End with `demo: ok`.
    pub check: bool,
    /// Leave the services running at the end.
    pub keep: bool,
}

/// Runs the demo; says what went wrong, if anything did.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the demo is a command line program")]
pub fn main(options: Options) -> ExitCode {
    match run(options) {
        Ok(()) if options.check => {
            println!("demo: ok");
            ExitCode::SUCCESS
        }
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("\ndemo: failed: {cause:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<()> {
    let screen = Screen::new();
    screen.title("areev services", "an agent's tools, run durably, isolated, and without a secret");
    build::services(&screen)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?;
    runtime.block_on(async {
        tokio::select! {
            told = tell(&screen, options) => told,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.context("Ctrl-C")?;
                screen.blank();
                screen.note("interrupted: the services are stopped, the directory is removed");
                Ok(())
            }
        }
    })
}

async fn tell(screen: &Screen, options: Options) -> Result<()> {
    let story = Story::begin(screen).await?;
    story.a_refusal_by_name().await?;
    let ask = story.a_run_that_asks().await?;
    story.an_answer(&ask).await?;
    story.where_the_secret_is().await?;
    story.the_evidence().await?;
    story.end(options.keep).await
}
