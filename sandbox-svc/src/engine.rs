//! The one wasmtime engine of the process: which wasm it takes, how it counts, what it keeps ready.

use std::{sync::Arc, thread, time::Duration};

use wasmtime::{
    Config, Engine as Wasmtime, InstanceAllocationStrategy, InstancePre, Linker, Module, OperatorCost, OptLevel,
    PoolingAllocationConfig, Strategy,
};

use crate::{
    guest::{Host, link},
    limits::{MEMORIES_MAX, PAGE_BYTES, TABLE_ELEMENTS_MAX, TABLES_MAX},
    runtime::Runtime,
};

/// The engine's name and version, for `Describe`.
pub const ENGINE: &str = "wasmtime 48.0.8";

/// How often a running guest yields to the others and looks at its deadline.
pub const TICK: Duration = Duration::from_millis(1);

/// Stack of guest code, in bytes; past it the guest traps.
const GUEST_STACK_BYTES: usize = 512 * 1024;
/// Stack of a guest's fiber: guest code plus what the host's functions need, with room for unoptimised builds.
const FIBER_STACK_BYTES: usize = 2 * 1024 * 1024;
/// What of a slot's memory, table and stack stays mapped between calls.
const MEMORY_RESIDENT_BYTES: usize = 512 * 1024;
const TABLE_RESIDENT_BYTES: usize = 16 * 1024;
const STACK_RESIDENT_BYTES: usize = 64 * 1024;
/// Bytes of the engine's own record of one instance.
const INSTANCE_BYTES_MAX: usize = 1024 * 1024;

/// Compiles, links and runs guests.
pub struct Engine {
    wasmtime: Wasmtime,
    pure: Linker<Host>,
    io: Linker<Host>,
}

/// The engine cannot be made on this machine.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the wasm engine: {0}")]
pub struct EngineError(String);

impl From<wasmtime::Error> for EngineError {
    fn from(cause: wasmtime::Error) -> Self {
        Self(format!("{cause:#}"))
    }
}

impl Engine {
    /// Makes the engine with room for `slots` guests of at most `pages_max` pages each, and starts its clock.
    pub fn new(slots: u32, pages_max: u64) -> Result<Arc<Self>, EngineError> {
        let mut config = compiling();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(slots, pages_max)));
        let wasmtime = Wasmtime::new(&config)?;
        let mut pure = Linker::new(&wasmtime);
        link::emit(&mut pure)?;
        let mut io = Linker::new(&wasmtime);
        link::emit(&mut io)?;
        link::fetch(&mut io)?;
        link::blob_get(&mut io)?;
        start_clock(&wasmtime)?;
        Ok(Arc::new(Self { wasmtime, pure, io }))
    }

    /// An engine that only compiles, for code that an engine of [`Engine::new`] loads: what is compiled does not depend on
    /// where it will run. It reserves no memory for guests and has no clock.
    pub fn compiler() -> Result<Wasmtime, wasmtime::Error> {
        Wasmtime::new(&compiling())
    }

    /// wasmtime's engine.
    pub fn wasmtime(&self) -> &Wasmtime {
        &self.wasmtime
    }

    /// Compiles a module in this process, and takes as long as that takes: for modules that are known.
    pub fn compile(&self, bytes: &[u8]) -> wasmtime::Result<Module> {
        Module::from_binary(&self.wasmtime, bytes)
    }

    /// Links a compiled module for a runtime; native code is never linked.
    pub fn link(&self, module: &Module, runtime: Runtime) -> wasmtime::Result<InstancePre<Host>> {
        match runtime {
            Runtime::Pure | Runtime::Native => self.pure.instantiate_pre(module),
            Runtime::Io => self.io.instantiate_pre(module),
        }
    }
}

fn pool(slots: u32, pages_max: u64) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(slots)
        .total_memories(slots)
        .total_tables(slots)
        // While a guest waits in `areev::fetch`, its `alloc` runs on a second fiber.
        .total_stacks(2 * slots)
        .total_gc_heaps(slots)
        .max_unused_warm_slots(slots)
        .max_core_instance_size(INSTANCE_BYTES_MAX)
        .max_memories_per_module(MEMORIES_MAX)
        .max_tables_per_module(TABLES_MAX)
        .table_elements(TABLE_ELEMENTS_MAX as usize)
        .max_memory_size((pages_max * PAGE_BYTES) as usize)
        .linear_memory_keep_resident(MEMORY_RESIDENT_BYTES)
        .table_keep_resident(TABLE_RESIDENT_BYTES)
        .async_stack_keep_resident(STACK_RESIDENT_BYTES);
    pool
}

/// All that the compiled code depends on, but for the processor.
fn compiling() -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_nan_canonicalization(true)
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(GUEST_STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES);
    // What a growing table costs is bounded by its limit, as with memory; a growth that is refused costs nothing.
    let mut cost = OperatorCost::new();
    cost.variable.table_grow_per_element = 0;
    config.operator_cost(cost);
    only_needed_proposals(&mut config);
    config
}

/// `inspect` refuses the same proposals before the engine sees a module; here they are off once more.
fn only_needed_proposals(config: &mut Config) {
    config
        .wasm_threads(false)
        .wasm_shared_everything_threads(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_exceptions(false)
        .wasm_gc(false)
        .wasm_function_references(false)
        .wasm_tail_call(false)
        .wasm_relaxed_simd(false)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false)
        .wasm_stack_switching(false);
}

/// A thread of its own: guests that keep every worker busy must not stop the clock that ends them.
fn start_clock(engine: &Wasmtime) -> Result<(), EngineError> {
    let weak = engine.weak();
    let tick = move || {
        while let Some(engine) = weak.upgrade() {
            engine.increment_epoch();
            drop(engine);
            thread::sleep(TICK);
        }
    };
    let spawned = thread::Builder::new().name("epoch".to_owned()).spawn(tick);
    spawned.map(|_| ()).map_err(|cause| EngineError(format!("no clock thread: {cause}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_called_by_the_version_that_is_built_in() {
        let version = ENGINE.strip_prefix("wasmtime ").unwrap();
        let lock = include_str!("../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"wasmtime\"\nversion = \"{version}\"")), "{ENGINE}");
    }

    #[test]
    fn the_engine_is_built_with_what_its_safety_needs_and_without_what_it_does_not() {
        let manifest = include_str!("../../Cargo.toml");
        let line = manifest.lines().find(|line| line.starts_with("wasmtime = ")).unwrap();
        for needed in ["default-features = false", "\"gc\"", "\"threads\""] {
            assert!(line.contains(needed), "{needed}");
        }
        let lock = include_str!("../../Cargo.lock");
        for absent in ["wasmtime-wasi", "wasmtime-internal-winch", "winch-codegen"] {
            assert!(!lock.contains(&format!("name = \"{absent}")), "{absent}");
        }
        assert!(!line.contains("component-model") && !line.contains("winch"));
    }

    #[test]
    fn what_inspection_lets_through_the_engine_takes() {
        let engine = Engine::new(1, 16).unwrap();
        let accepted = [
            "(module (func (result i32 i64) i32.const 1 i64.const 2))",
            "(module (func (param f32) (result i32) (i32.trunc_sat_f32_s (local.get 0))))",
            "(module (func (param v128) (result v128) (i32x4.add (local.get 0) (local.get 0))))",
            "(module (global i32 (i32.add (i32.const 1) (i32.const 2))))",
            "(module (table 1 funcref) (func (drop (table.get 0 (i32.const 0)))))",
        ];
        for wat in accepted {
            let bytes = wat::parse_str(wat).unwrap();
            crate::inspect::inspect(&bytes, 16).unwrap();
            engine.compile(&bytes).unwrap();
        }
        let refused = [
            "(module (func (return_call 0)))",
            "(module (tag) (func (throw 0)))",
            "(module (type (struct)))",
            "(module (table 1 externref))",
            "(module (memory 1 (pagesize 1)))",
            "(module (func (param v128) (result v128) (i32x4.relaxed_trunc_f32x4_s (local.get 0))))",
            "(module (memory 1 1 shared) (func (drop (i32.atomic.load (i32.const 0)))))",
        ];
        for wat in refused {
            let bytes = wat::parse_str(wat).unwrap();
            assert!(crate::inspect::inspect(&bytes, 16).is_err(), "{wat}");
        }
    }
}
