//! Configure, bind, run, drain; or answer a question about the configuration.

use std::process::ExitCode;

use anyhow::Context as _;
use broker_svc::{
    app::App,
    cli::{Command, Shown, check, explain},
    config::Flags,
    reload::Watch,
};
use proto::{serve, telemetry, tls};
use tokio_util::sync::CancellationToken;

/// Targets whose finer lines repeat what upstreams say, such as whole certificates: a secret may be in there.
const UPSTREAMS_WORDS: &[&str] = &["rustls"];

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(cause) => {
            complain(&cause);
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    tls::install_crypto_provider();
    let given = Flags::given();
    match &given.command {
        Some(Command::Check { file }) => return show(check::check(file)),
        Some(Command::Explain(question)) => {
            let (policy, places) = given.checked()?;
            let rules = explain::Rules { policy: &policy, file: given.config.clone(), places };
            return show(explain::explain(&rules, question));
        }
        None => {}
    }
    let watch = Watch::new(given.clone());
    let (flags, policy) = given.layered()?;
    if flags.print_config {
        flags.telemetry.check()?;
        let config = flags.check(policy)?;
        print(&flags.filled(&config).shown(&config.policy)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    telemetry::init_without(&flags.telemetry, UPSTREAMS_WORDS)?;
    proto::memory::keep_private().context("cannot keep this process's memory from being dumped")?;
    proto::open_files::raise().context("cannot raise the limit of open files")?;
    let config = flags.check(policy)?;
    // One worker for every two cores: on small machines a second one costs more than it brings.
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    runtime.block_on(async {
        let drain = CancellationToken::new();
        serve::drain_on_signal(drain.clone()).context("cannot listen for signals")?;
        App::bind(config).await?.watching(watch).run(drain).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn show(shown: Shown) -> anyhow::Result<ExitCode> {
    print(&shown.text)?;
    Ok(if shown.good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(settings: &str) -> anyhow::Result<()> {
    Ok(proto::output::print(settings)?)
}

#[expect(clippy::print_stderr, reason = "the log may not be there yet, and a person is looking")]
fn complain(cause: &anyhow::Error) {
    eprintln!("broker-svc: {cause:#}");
}
