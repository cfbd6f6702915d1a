//! `runner-svc`: configure, bind, run, drain.

use std::process::ExitCode;

use runner_svc::{
    app::{self, App},
    config::{Config, Flags},
    families,
};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(cause) => {
            // The log may not be there yet, and a person is looking.
            complain(&cause);
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    proto::tls::install_crypto_provider();
    let flags = Flags::read()?;
    if let Some(command) = &flags.command {
        return Ok(command.run());
    }
    if flags.print_config {
        flags.telemetry.check()?
    } else {
        proto::telemetry::init(&flags.telemetry)?
    }
    families::register();
    // The tokens of effects in flight are in its memory.
    proto::memory::keep_private()?;
    proto::open_files::raise()?;
    let config = Config::resolve(&flags)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if flags.print_config {
        // A channel is made inside of a runtime, also one that is never used.
        let _inside = runtime.enter();
        app::check(&config)?;
        return print(&flags.filled(&config)).map(|()| ExitCode::SUCCESS);
    }
    runtime.block_on(async {
        let app = App::open(config).await?;
        app.serve().await?;
        anyhow::Ok(ExitCode::SUCCESS)
    })
}

fn print(flags: &Flags) -> anyhow::Result<()> {
    Ok(proto::output::print(&toml::to_string(flags)?)?)
}

#[expect(clippy::print_stderr, reason = "the program ends with this message")]
fn complain(cause: &anyhow::Error) {
    eprintln!("runner-svc: {cause:#}");
}
