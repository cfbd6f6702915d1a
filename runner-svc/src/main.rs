//! `runner-svc`: configure, bind, run, drain.

use std::process::ExitCode;

use runner_svc::{
    app::App,
    config::{Config, Flags},
};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            // The log may not be there yet, and a person is looking.
            complain(&cause);
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    proto::tls::install_crypto_provider();
    let flags = Flags::read()?;
    if flags.print_config {
        return print(&flags);
    }
    proto::telemetry::init(&flags.telemetry)?;
    let config = Config::resolve(&flags)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let app = App::open(config).await?;
        app.serve().await?;
        anyhow::Ok(())
    })
}

#[expect(clippy::print_stdout, reason = "the settings are what was asked for")]
fn print(flags: &Flags) -> anyhow::Result<()> {
    print!("{}", toml::to_string(flags)?);
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the program ends with this message")]
fn complain(cause: &anyhow::Error) {
    eprintln!("runner-svc: {cause:#}");
}
