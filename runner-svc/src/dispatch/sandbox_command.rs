//! Modules by command: a program that executes one module a call, told everything by its arguments.

use std::{ffi::OsString, path::PathBuf};

use runner_core::{
    outcome::Usage,
    pinned::{Runtime, RuntimeLimits},
};

use super::{
    child::{ChildSpec, Children, run, variables},
    code::{CodeRef, SharedCode},
    effect::{Effect, Ending, Settled},
    module_files::ModuleFiles,
    token::Egress,
    until::Until,
};

/// How the program says on stderr what it used.
const FUEL_LINE: &str = "fuel used ";

/// The program of this runner.
pub(super) struct SandboxCommand {
    program: OsString,
    first_arguments: Vec<OsString>,
    files: ModuleFiles,
    blob_dir: PathBuf,
}

impl SandboxCommand {
    /// Splits the operator's words at blanks; no shell reads them. None when there is no word.
    pub(super) fn new(command: &str, files: ModuleFiles, blob_dir: PathBuf) -> Option<Self> {
        let mut words = command.split_whitespace().map(OsString::from);
        Some(Self { program: words.next()?, first_arguments: words.collect(), files, blob_dir })
    }

    /// Executes one effect of a module. Native blobs are refused: this process holds the journal.
    pub(super) async fn execute(
        &self,
        (children, source): (&Children, &SharedCode),
        (effect, code): (&Effect, CodeRef<'_>),
        egress: Option<&Egress>,
        until: Until<'_>,
    ) -> Settled {
        if code.runtime == Runtime::Native {
            return Ending::executor_error(format_args!(
                "{} is a native blob: code that travelled never runs beside the journal; give the runner a --sandbox-url \
                 whose sandbox-svc was started with --allow-native",
                code.digest.to_uri()
            ))
            .into();
        }
        let module = match self.files.path_of(code.digest, source).await {
            Ok(path) => path,
            Err(cause) => return Ending::executor_error(cause).into(),
        };
        let mut arguments = self.first_arguments.clone();
        arguments.extend(["--module".into(), module.into()]);
        arguments.extend(flags(code.runtime, &code.limits, code.reads_blobs()).into_iter().map(OsString::from));
        let spec = ChildSpec {
            program: self.program.clone(),
            arguments,
            variables: self.variables(effect, code, egress),
            stdin: effect.input.text().as_bytes().to_vec(),
        };
        match run(children, spec, until).await {
            Ok(mut finished) => {
                let usage = Usage { fuel: fuel_used(&finished.stderr()), ..Usage::default() };
                finished.ending("the sandbox command", egress, &until).using(usage)
            }
            Err(cause) => Ending::executor_error(format_args!(
                "cannot run the --sandbox-cmd program {}: {cause}",
                self.program.display()
            ))
            .into(),
        }
    }
}

impl SandboxCommand {
    /// A module that reads blobs is told where they lie; the program hashes what it reads.
    fn variables(&self, effect: &Effect, code: CodeRef<'_>, egress: Option<&Egress>) -> Vec<(&'static str, String)> {
        let mut variables = variables(effect, egress);
        if code.reads_blobs() {
            variables.push(("AREEV_BLOB_DIR", self.blob_dir.display().to_string()));
        }
        variables
    }
}

/// The arguments beside the module. Ceilings on calls and request bytes have no flag: the broker holds them by the token.
fn flags(runtime: Runtime, limits: &RuntimeLimits, reads_blobs: bool) -> Vec<String> {
    let mut flags = Vec::new();
    let mut limit = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            flags.extend([name.to_owned(), value.to_string()]);
        }
    };
    limit("--fuel", limits.fuel);
    limit("--max-pages", limits.max_pages);
    if runtime == Runtime::WasmIo {
        limit("--max-response-bytes", limits.max_response_bytes);
        flags.push("--allow-fetch".to_owned());
    }
    if reads_blobs {
        flags.push("--allow-blob".to_owned());
        flags
            .extend(limits.max_blob_bytes.into_iter().flat_map(|max| ["--max-blob-bytes".to_owned(), max.to_string()]));
    }
    flags
}

fn fuel_used(stderr: &str) -> u64 {
    let line = stderr.lines().rev().find_map(|line| line.trim().strip_prefix(FUEL_LINE));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pure_module_is_never_allowed_to_fetch() {
        let limits = RuntimeLimits { fuel: Some(5000), max_response_bytes: Some(4096), ..RuntimeLimits::default() };
        assert_eq!(flags(Runtime::Wasm, &limits, false), ["--fuel", "5000"]);
        let io = flags(Runtime::WasmIo, &limits, false);
        assert_eq!(io, ["--fuel", "5000", "--max-response-bytes", "4096", "--allow-fetch"]);
        let blobs =
            flags(Runtime::WasmIo, &RuntimeLimits { max_blob_bytes: Some(9), ..RuntimeLimits::default() }, true);
        assert_eq!(blobs, ["--allow-fetch", "--allow-blob", "--max-blob-bytes", "9"]);
    }

    #[test]
    fn the_last_fuel_line_counts() {
        assert_eq!(fuel_used("fuel used 1\nwarning\nfuel used 4211\n"), 4211);
        assert_eq!(fuel_used("fuel used many"), 0);
    }
}
