//! The one-shot form: one module, once, from a file, with JSON on stdin and stdout.

use std::{
    io::{self, Read as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{
    blob::Blobs,
    compile::{CompileLimits, Compiler},
    egress_http::EgressHttp,
    engine::Engine,
    exchange::{Answered, Desk},
    guest::{self, Gauge, Linked},
    imports::undeclared_blobs,
    json,
    limits::{AskedLimits, Limits},
    module_cache::{Code, build},
    outbound::{Outbound, Token},
    relay::Artifacts,
    runtime::Runtime,
};

const MODULE_BYTES_MAX: u64 = 16 * 1024 * 1024;
const PAYLOAD_BYTES_MAX: usize = 8 * 1024 * 1024;
const WALL_CLOCK: Duration = Duration::from_secs(300);

/// What the one-shot form is told.
#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    /// The module, a .wasm file
    #[arg(long, value_name = "FILE")]
    module: PathBuf,
    /// Fuel [default: 200000000]
    #[arg(long, value_name = "N")]
    fuel: Option<u64>,
    /// Memory, in pages of 64 KiB [default: 256]
    #[arg(long, value_name = "N")]
    max_pages: Option<u64>,
    /// Link areev::fetch; calls go to AREEV_EGRESS_URL with AREEV_EGRESS_TOKEN
    #[arg(long)]
    allow_fetch: bool,
    /// Largest body of one brokered answer, in bytes [default: 1048576]
    #[arg(long, value_name = "BYTES")]
    max_response_bytes: Option<u64>,
    /// Link areev::blob_get; blobs are files of the directory AREEV_BLOB_DIR, named by their 64 hex digits or by the last 62
    /// in a folder of the first two
    #[arg(long)]
    allow_blob: bool,
    /// Largest blob, in bytes [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    max_blob_bytes: Option<u64>,
}

/// Runs the module. The result goes to stdout, what went wrong and the fuel to stderr.
pub async fn exec(args: &ExecArgs) -> ExitCode {
    let gauge = Arc::new(Gauge::default());
    let ended = run(args, Arc::clone(&gauge)).await;
    let said = match &ended {
        Ok(output) => proto::output::print(&(json::compact(output) + "\n"))
            .inspect_err(|cause| drop(io::stderr().write_all(format!("{cause}\n").as_bytes()))),
        Err(text) => io::stderr().write_all(format!("{text}\n").as_bytes()),
    };
    let _nobody_reads = io::stderr().write_all(format!("fuel used {}\n", gauge.fuel_used()).as_bytes());
    if ended.is_ok() && said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(args: &ExecArgs, gauge: Arc<Gauge>) -> Result<String, String> {
    let limits = args.limits();
    let linked = args.load(&limits).await?;
    let input = read_input()?;
    let (calls, waiting) = mpsc::channel(1);
    let started = Instant::now();
    let ends_at = started + WALL_CLOCK;
    let desk = Desk {
        recorded: std::collections::VecDeque::new(),
        outbound: outbound(args.allow_fetch)?,
        blobs: blobs(),
        artifacts: Artifacts::Nobody("artifacts lie in a runner's catalogue, and the one-shot form has none"),
        confirm: None,
        limits,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        ends_at,
        gauge: Arc::clone(&gauge),
        answered: Answered::default(),
    };
    let job = guest::Job { input, limits, payload_bytes_max: PAYLOAD_BYTES_MAX, started, ends_at, calls, gauge };
    tokio::select! {
        ended = guest::run(&linked, job) => ended.map_err(|fault| fault.to_string())?.map_err(|failure| failure.text),
        () = desk.serve(waiting) => Err("the desk closed while its guest ran".to_owned()),
    }
}

impl ExecArgs {
    fn limits(&self) -> Limits {
        let asked = AskedLimits {
            fuel: self.fuel,
            memory_pages: self.max_pages,
            response_bytes: self.max_response_bytes,
            blob_bytes: self.max_blob_bytes,
            ..AskedLimits::default()
        };
        Limits::resolve(&asked, &Limits::DEFAULT, &Limits::MAX)
    }

    /// Links what the flags allow. A module that more of them would let in is told so.
    fn link(&self, code: &Code) -> Result<Linked, String> {
        let Ok(io) = code.linked(Runtime::Io) else { return self.pure(code) };
        match (self.allow_fetch, self.allow_blob) {
            (false, false) => self.pure(code),
            (_, false) if io.reads_blobs => Err(undeclared_blobs().text + "; allow it with --allow-blob"),
            (false, true) if io.fetches => {
                Err("import `areev::fetch` is refused; allow it with --allow-fetch".to_owned())
            }
            _ => Ok(io.clone()),
        }
    }

    fn pure(&self, code: &Code) -> Result<Linked, String> {
        code.linked(Runtime::Pure).cloned().map_err(|failure| match code.linked(Runtime::Io) {
            Ok(io) if io.reads_blobs && io.fetches => failure.text + "; allow it with --allow-fetch and --allow-blob",
            Ok(io) if io.reads_blobs => failure.text + "; allow it with --allow-blob",
            Ok(_) => failure.text + "; allow it with --allow-fetch",
            Err(_) => failure.text,
        })
    }

    async fn load(&self, limits: &Limits) -> Result<Linked, String> {
        let path = self.module.display();
        let unreadable = |cause: io::Error| format!("cannot read {path}: {cause}");
        let file = proto::files::open(&self.module).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(MODULE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MODULE_BYTES_MAX {
            return Err(format!("{path} has more than the {MODULE_BYTES_MAX} bytes that a module may have"));
        }
        let engine = Engine::new(1, limits.memory_pages.max(1)).map_err(|cause| cause.to_string())?;
        let compiler = Compiler::own(CompileLimits::DEFAULT);
        let built = build(&engine, &compiler, Bytes::from(bytes), limits.memory_pages).await;
        let code: Code = built.map_err(|cause| cause.to_string())?;
        self.link(&code)
    }
}

/// Stdin, compact; blank is null.
fn read_input() -> Result<String, String> {
    let mut bytes = Vec::new();
    let stdin = io::stdin().lock();
    stdin
        .take(PAYLOAD_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|cause| format!("cannot read stdin: {cause}"))?;
    if bytes.len() > PAYLOAD_BYTES_MAX {
        return Err(format!("the input has more than the {PAYLOAD_BYTES_MAX} bytes that it may have"));
    }
    if bytes.trim_ascii().is_empty() {
        return Ok("null".to_owned());
    }
    json::check(&bytes).map(json::compact).map_err(|why| format!("the input is not JSON: {why}"))
}

fn blobs() -> Blobs {
    match std::env::var_os("AREEV_BLOB_DIR").filter(|value| !value.is_empty()) {
        Some(directory) => Blobs::Directory(directory.into()),
        None => Blobs::Nobody("no blobs: AREEV_BLOB_DIR is not set"),
    }
}

fn outbound(allow_fetch: bool) -> Result<Outbound, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if !allow_fetch {
        return Ok(Outbound::nobody("areev::fetch is not allowed: --allow-fetch is absent"));
    }
    let missing = match (variable("AREEV_EGRESS_URL"), variable("AREEV_EGRESS_TOKEN")) {
        (Some(url), Some(token)) => {
            let door = EgressHttp::new(&url, &Token::new(token));
            return door.map(Outbound::Http).map_err(|cause| cause.to_string());
        }
        (Some(_), None) => "AREEV_EGRESS_TOKEN is not set",
        (None, Some(_)) => "AREEV_EGRESS_URL is not set",
        (None, None) => "AREEV_EGRESS_URL and AREEV_EGRESS_TOKEN are not set",
    };
    Ok(Outbound::nobody(&format!("no credential broker: {missing}")))
}
