//! A look at a module before anything compiles it: is it wasm of the accepted kind, and is it within bounds?
//!
//! Parsing and validating are linear in the module's size; compiling is not, so what could make it long is refused here.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use wasmparser::{
    Encoding, ExternalKind, FuncValidatorAllocations, FunctionBody, Operator, Parser, Payload, TypeRef, ValType,
    ValidPayload, Validator, WasmFeatures,
};

use crate::{
    limits::{MEMORIES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX},
    outcome::{Failure, FailureKind},
};

/// Bounds on what is compiled. Ordinary toolchains stay far below them.
const FUNCTIONS_MAX: u32 = 20_000;
const BODY_BYTES_MAX: usize = 64 * 1024;
const LOCALS_PER_FUNCTION_MAX: u64 = 5_000;
const LOCALS_MAX: u64 = 1_000_000;
const BR_TABLE_TARGETS_MAX: u64 = 100_000;
const TYPES_MAX: u32 = 10_000;
const PARAMS_MAX: usize = 256;
const RESULTS_MAX: usize = 64;
const IMPORTS_MAX: u32 = 1_000;
const EXPORTS_MAX: u32 = 20_000;
const GLOBALS_MAX: u32 = 10_000;
const SEGMENTS_MAX: u32 = 10_000;
const ELEMENTS_MAX: u64 = 100_000;

/// What the later stages need to know of a module.
#[derive(Debug, Default)]
pub struct Inspected {
    /// Imports, in the module's order.
    pub imports: Vec<Import>,
    /// Exports, in the module's order.
    pub exports: Vec<Export>,
    /// Pages that its memory has from the start.
    pub memory_pages_min: u64,
    /// Bytes of its functions.
    pub code_bytes: u64,
}

/// One import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// The module's name, such as `areev`.
    pub module: String,
    /// The item's name, such as `emit`.
    pub name: String,
    /// What it is.
    pub item: Item,
}

/// One export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// What it is.
    pub item: Item,
}

/// What is imported or exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// A function, with its signature as `(i32, i32) -> (i32)`.
    Function(String),
    /// A linear memory.
    Memory,
    /// Something that the guest ABI has no use for.
    Other(Cow<'static, str>),
}

/// The proposals that guests may use: what today's compilers emit for plain wasm32, and nothing with state of its own.
pub fn features() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::EXTENDED_CONST
        | WasmFeatures::SIMD
        | WasmFeatures::FLOATS
}

/// Parses and validates a module within the bounds. `pages_max` is the most memory that any call may have.
pub fn inspect(bytes: &[u8], pages_max: u64) -> Result<Inspected, Failure> {
    if !bytes.starts_with(b"\0asm") {
        return Err(refused(format!("it is no wasm module: {}", beginning(bytes))));
    }
    let mut walk = Walk::new(pages_max);
    for payload in Parser::new(0).parse_all(bytes) {
        walk.take(&payload?)?;
    }
    Ok(walk.seen)
}

struct Walk {
    validator: Validator,
    allocations: FuncValidatorAllocations,
    pages_max: u64,
    seen: Inspected,
    types: Vec<String>,
    functions: Vec<u32>,
    locals: u64,
    targets: u64,
    elements: u64,
}

impl Walk {
    fn new(pages_max: u64) -> Self {
        Self {
            validator: Validator::new_with_features(features()),
            allocations: FuncValidatorAllocations::default(),
            pages_max,
            seen: Inspected::default(),
            types: Vec::new(),
            functions: Vec::new(),
            locals: 0,
            targets: 0,
            elements: 0,
        }
    }

    /// Counts before the validator sees a payload, collects after it.
    fn take(&mut self, payload: &Payload<'_>) -> Result<(), Failure> {
        self.count(payload)?;
        let validated = self.validator.payload(payload)?;
        if let ValidPayload::Func(function, body) = validated {
            let mut function = function.into_validator(std::mem::take(&mut self.allocations));
            function.validate(&body)?;
            self.allocations = function.into_allocations();
        }
        self.collect(payload)
    }

    fn count(&mut self, payload: &Payload<'_>) -> Result<(), Failure> {
        match payload {
            Payload::Version { encoding: Encoding::Component, .. } => {
                Err(refused("it is a component; only core modules are accepted".to_owned()))
            }
            Payload::TypeSection(types) => within("types", u64::from(types.count()), u64::from(TYPES_MAX)),
            Payload::ImportSection(imports) => within("imports", u64::from(imports.count()), u64::from(IMPORTS_MAX)),
            Payload::FunctionSection(functions) => {
                within("functions", u64::from(functions.count()), u64::from(FUNCTIONS_MAX))
            }
            Payload::TableSection(tables) => self.count_tables(tables),
            Payload::MemorySection(memories) => {
                within("memories", u64::from(memories.count()), u64::from(MEMORIES_MAX))
            }
            Payload::GlobalSection(globals) => within("globals", u64::from(globals.count()), u64::from(GLOBALS_MAX)),
            Payload::ExportSection(exports) => within("exports", u64::from(exports.count()), u64::from(EXPORTS_MAX)),
            Payload::ElementSection(segments) => self.count_elements(segments),
            Payload::DataSection(data) => within("data segments", u64::from(data.count()), u64::from(SEGMENTS_MAX)),
            Payload::CodeSectionEntry(body) => self.count_body(body),
            _ => Ok(()),
        }
    }

    fn count_tables(&self, tables: &wasmparser::TableSectionReader<'_>) -> Result<(), Failure> {
        within("tables", u64::from(tables.count()), u64::from(TABLES_MAX))?;
        for table in tables.clone() {
            let table = table?;
            within("table elements", table.ty.initial, TABLE_ELEMENTS_MAX)?;
        }
        Ok(())
    }

    fn count_elements(&mut self, segments: &wasmparser::ElementSectionReader<'_>) -> Result<(), Failure> {
        within("element segments", u64::from(segments.count()), u64::from(SEGMENTS_MAX))?;
        for segment in segments.clone() {
            let segment = segment?;
            self.elements += match segment.items {
                wasmparser::ElementItems::Functions(items) => u64::from(items.count()),
                wasmparser::ElementItems::Expressions(_, items) => u64::from(items.count()),
            };
            within("elements in segments", self.elements, ELEMENTS_MAX)?;
        }
        Ok(())
    }

    fn count_body(&mut self, body: &FunctionBody<'_>) -> Result<(), Failure> {
        let bytes = body.range().len();
        within("bytes in one function", bytes as u64, BODY_BYTES_MAX as u64)?;
        self.seen.code_bytes += bytes as u64;
        let mut locals = 0_u64;
        for declared in body.get_locals_reader()? {
            locals += u64::from(declared?.0);
            within("locals in one function", locals, LOCALS_PER_FUNCTION_MAX)?;
        }
        self.locals += locals;
        within("locals", self.locals, LOCALS_MAX)?;
        for operator in body.get_operators_reader()? {
            if let Operator::BrTable { targets } = operator? {
                self.targets += u64::from(targets.len());
                within("br_table targets", self.targets, BR_TABLE_TARGETS_MAX)?;
            }
        }
        Ok(())
    }

    fn collect(&mut self, payload: &Payload<'_>) -> Result<(), Failure> {
        match payload {
            Payload::TypeSection(types) => {
                for function in types.clone().into_iter_err_on_gc_types() {
                    let function = function?;
                    if function.params().len() > PARAMS_MAX || function.results().len() > RESULTS_MAX {
                        let text = format!("a type has over {PARAMS_MAX} parameters or {RESULTS_MAX} results");
                        return Err(refused(text));
                    }
                    self.types.push(format!("({}) -> ({})", list(function.params()), list(function.results())));
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.clone().into_imports() {
                    let import = import?;
                    let item = self.imported(import.ty);
                    let (module, name) = (import.module.to_owned(), import.name.to_owned());
                    self.seen.imports.push(Import { module, name, item });
                }
            }
            Payload::FunctionSection(functions) => {
                for type_index in functions.clone() {
                    self.functions.push(type_index?);
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories.clone() {
                    self.seen.memory_pages_min += memory?.initial;
                }
                within("pages of memory at the start", self.seen.memory_pages_min, self.pages_max)?;
            }
            Payload::ExportSection(exports) => {
                for export in exports.clone() {
                    let export = export?;
                    let item = match export.kind {
                        ExternalKind::Func | ExternalKind::FuncExact => Item::Function(self.signature(export.index)),
                        ExternalKind::Memory => Item::Memory,
                        ExternalKind::Table => Item::Other("a table".into()),
                        ExternalKind::Global => Item::Other("a global".into()),
                        ExternalKind::Tag => Item::Other("a tag".into()),
                    };
                    self.seen.exports.push(Export { name: export.name.to_owned(), item });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn imported(&mut self, ty: TypeRef) -> Item {
        match ty {
            TypeRef::Func(type_index) | TypeRef::FuncExact(type_index) => {
                self.functions.push(type_index);
                Item::Function(self.types.get(type_index as usize).cloned().unwrap_or_default())
            }
            TypeRef::Memory(_) => Item::Other("a memory".into()),
            TypeRef::Table(_) => Item::Other("a table".into()),
            TypeRef::Global(_) => Item::Other("a global".into()),
            TypeRef::Tag(_) => Item::Other("a tag".into()),
        }
    }

    fn signature(&self, function: u32) -> String {
        let type_index = self.functions.get(function as usize);
        type_index.and_then(|index| self.types.get(*index as usize)).cloned().unwrap_or_default()
    }
}

/// The parser's errors are refusals, worded by it.
impl From<wasmparser::BinaryReaderError> for Failure {
    fn from(cause: wasmparser::BinaryReaderError) -> Self {
        refused(format!("it is not valid wasm of the accepted kind: {cause}"))
    }
}

fn list(types: &[ValType]) -> String {
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn within(what: &str, count: u64, max: u64) -> Result<(), Failure> {
    if count <= max { Ok(()) } else { Err(refused(format!("it has {count} {what}; at most {max} are accepted"))) }
}

fn refused(text: String) -> Failure {
    Failure::new(FailureKind::ModuleRefused, format!("the module is refused: {text}"))
}

/// What the first bytes look like, for people.
fn beginning(bytes: &[u8]) -> String {
    match bytes {
        [] => "it has no bytes".to_owned(),
        [0x7f, b'E', b'L', b'F', ..] => "it is an ELF file (compiled code); send the .wasm file".to_owned(),
        _ if [&b"("[..], b";;"].iter().any(|text| bytes.trim_ascii_start().starts_with(text)) => {
            "it looks like the text format; convert it to the binary format first".to_owned()
        }
        _ => format!("it begins with the bytes {}", hex::encode(&bytes[..bytes.len().min(8)])),
    }
}
