//! What a guest may import and must export: checked by name before anything is compiled, and linked by the same table.

use crate::{
    inspect::{Import, Inspected, Item},
    outcome::{Failure, FailureKind},
    runtime::Runtime,
};

/// The module that guests import from.
pub const MODULE: &str = "areev";
/// Hands the result to the host.
pub const EMIT: &str = "emit";
/// Makes one brokered call.
pub const FETCH: &str = "fetch";
/// Reads one blob.
pub const BLOB_GET: &str = "blob_get";

const EMIT_SIGNATURE: &str = "(i32, i32) -> ()";
const FETCH_SIGNATURE: &str = "(i32, i32) -> (i32)";

/// Longest name that is repeated in a refusal, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Refuses the first import that the runtime does not link.
pub fn check_imports(imports: &[Import], runtime: Runtime) -> Result<(), Failure> {
    imports.iter().try_for_each(|import| check_import(import, runtime))
}

/// Refuses a module without the three exports of the guest ABI.
pub fn check_exports(module: &Inspected) -> Result<(), Failure> {
    let function = |signature: &str| Item::Function(signature.to_owned());
    let needed =
        [("memory", Item::Memory), ("alloc", function("(i32) -> (i32)")), ("run", function("(i32, i32) -> ()"))];
    for (name, wanted) in needed {
        match module.exports.iter().find(|export| export.name == name) {
            Some(export) if export.item == wanted => {}
            Some(export) => {
                let text = format!("export `{name}` is {}, not {}", describe(&export.item), describe(&wanted));
                return Err(Failure::new(FailureKind::Abi, text));
            }
            None => {
                let text = format!(
                    "the module does not export `{name}`: a guest exports memory, alloc (i32) -> (i32) and run (i32, i32) -> ()"
                );
                return Err(Failure::new(FailureKind::Abi, text));
            }
        }
    }
    Ok(())
}

fn check_import(import: &Import, runtime: Runtime) -> Result<(), Failure> {
    let signature = match (import.module.as_str(), import.name.as_str(), runtime) {
        (MODULE, EMIT, _) => EMIT_SIGNATURE,
        (MODULE, FETCH | BLOB_GET, Runtime::Io) => FETCH_SIGNATURE,
        _ => return Err(refused((&import.module, &import.name), runtime, &advice(import))),
    };
    match &import.item {
        Item::Function(found) if found == signature => Ok(()),
        other => Err(refused((&import.module, &import.name), runtime, &format!("it is {}", describe(other)))),
    }
}

/// Whether a module imports one of the host's functions.
pub fn imports(imports: &[Import], name: &str) -> bool {
    imports.iter().any(|import| import.module == MODULE && import.name == name)
}

/// The refusal of a module that reads blobs, for an effect whose definition does not say so.
pub fn undeclared_blobs() -> Failure {
    let why = "the definition does not declare it; write {\"blob\": {\"read\": true}} among its capabilities";
    refused((MODULE, BLOB_GET), Runtime::Io, why)
}

fn advice(import: &Import) -> String {
    match (import.module.as_str(), import.name.as_str()) {
        (MODULE, FETCH) => format!("calls to the outside need runtime {}", Runtime::Io),
        (MODULE, BLOB_GET) => format!("reading blobs needs runtime {}", Runtime::Io),
        _ => "there is no WASI and no host environment".to_owned(),
    }
}

fn refused((module, name): (&str, &str), runtime: Runtime, why: &str) -> Failure {
    let allowed = match runtime {
        Runtime::Io => {
            format!(
                "areev::emit {EMIT_SIGNATURE}, areev::fetch {FETCH_SIGNATURE} and, where it is declared, areev::blob_get"
            )
        }
        Runtime::Pure | Runtime::Native => format!("areev::emit {EMIT_SIGNATURE}"),
    };
    let (module, name) = (shown(module), shown(name));
    let text = format!("import `{module}::{name}` is refused: {why}; {runtime} links only {allowed}");
    Failure::new(FailureKind::Abi, text)
}

fn describe(item: &Item) -> String {
    match item {
        Item::Function(signature) => format!("a function {}", shown(signature)),
        Item::Memory => "a memory".to_owned(),
        Item::Other(what) => what.clone().into_owned(),
    }
}

/// A guest's word, bounded and without control characters.
fn shown(name: &str) -> String {
    let mut name: String = name.escape_debug().collect();
    proto::fault::cut(&mut name, NAME_BYTES_MAX);
    name
}
