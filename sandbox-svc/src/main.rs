//! Configure, bind, run, drain.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _};
use proto::{serve::drain_on_signal, settings, telemetry};
use sandbox_svc::{
    app::{self, App},
    compile,
    config::{Args, Command, Config},
    exec, jail,
};
use tokio_util::sync::CancellationToken;

const ENVIRONMENT: &str = "AREEV_SANDBOX";

/// The first descriptor that is not one of the three of every program.
const FIRST_OTHER_FILE: i32 = 3;

fn main() -> ExitCode {
    // What somebody left open for this process is nothing for its compilers and blobs.
    close_fds::set_fds_cloexec(FIRST_OTHER_FILE, &[]);
    let args = match parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    match &args.command {
        Some(Command::Jail(jailed)) => jail::enter(jailed),
        Some(Command::Compile(bounds)) => compile::child::enter(bounds),
        Some(Command::Exec(once)) => exec_once(once),
        None => match serve(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(cause) => fail(&format!("{cause:#}")),
        },
    }
}

/// The one-shot form ends with 0 or 1, whatever is wrong; the service says 2 to a wrong command line.
fn parse() -> Result<Args, ExitCode> {
    // No flag may come before it.
    let one_shot = std::env::args_os().nth(1).is_some_and(|word| word == "exec");
    // The service's variables are nothing to the one-shot form, which has none of its flags.
    let command = if one_shot { Args::command() } else { settings::with_environment(Args::command(), ENVIRONMENT) };
    let parsed = command.try_get_matches().and_then(|matches| Args::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let _nobody_reads = error.print();
        match (error.use_stderr(), one_shot) {
            (false, _) => ExitCode::SUCCESS,
            (true, true) => ExitCode::from(1),
            (true, false) => ExitCode::from(2),
        }
    })
}

fn exec_once(args: &exec::ExecArgs) -> ExitCode {
    proto::tls::install_crypto_provider();
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(exec::exec(args)),
        Err(cause) => fail(&format!("cannot start: {cause}")),
    }
}

fn serve(args: Args) -> anyhow::Result<()> {
    let print = args.print_config;
    let file = args.config.clone();
    let args = settings::layer(args, file.as_deref())?;
    if print {
        args.telemetry.check()?
    } else {
        telemetry::init(&args.telemetry)?
    }
    // The tokens of effects in flight are in its memory.
    proto::memory::keep_private().context("cannot forbid core dumps")?;
    proto::open_files::raise().context("cannot raise the limit of open files")?;
    proto::tls::install_crypto_provider();
    let config = args.resolve()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    if print {
        // A channel is made inside of a runtime, also one that is never used.
        let _inside = runtime.enter();
        app::check(&config)?;
        return print_config(&args, &config);
    }
    runtime.block_on(async {
        let drain = CancellationToken::new();
        drain_on_signal(drain.clone()).context("cannot listen for signals")?;
        App::build(config)?.run(drain).await?;
        tracing::info!("drained");
        Ok(())
    })
}

fn print_config(args: &Args, config: &Config) -> anyhow::Result<()> {
    Ok(proto::output::print(&args.print(config)?)?)
}

#[expect(clippy::print_stderr, reason = "the last word of a process that cannot go on")]
fn fail(text: &str) -> ExitCode {
    eprintln!("sandbox-svc: {text}");
    ExitCode::FAILURE
}
