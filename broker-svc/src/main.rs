//! Configure, bind, run, drain.

use std::process::ExitCode;

use anyhow::Context as _;
use broker_svc::{app::App, config::Flags};
use proto::{serve, telemetry, tls};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            complain(&cause);
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    tls::install_crypto_provider();
    let (flags, policy) = Flags::read()?;
    telemetry::init(&flags.telemetry)?;
    if flags.print_config {
        return print(&flags.shown(&policy)?);
    }
    let config = flags.check(policy)?;
    // One worker for every two cores: on small machines a second one costs more than it brings.
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    runtime.block_on(async {
        let drain = CancellationToken::new();
        serve::drain_on_signal(drain.clone()).context("cannot listen for signals")?;
        App::bind(config).await?.run(drain).await?;
        Ok(())
    })
}

fn print(settings: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    std::io::stdout().write_all(settings.as_bytes()).context("cannot print the settings")
}

#[expect(clippy::print_stderr, reason = "the log may not be there yet, and a person is looking")]
fn complain(cause: &anyhow::Error) {
    eprintln!("broker-svc: {cause:#}");
}
