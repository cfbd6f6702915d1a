//! `Describe`: engine, limits, isolation, counters.

use proto::sandbox::v1::{DescribeResponse, Runtime as WireRuntime};

use super::wire;
use crate::{engine::ENGINE, module_cache::disk::DiskCache, native::Native, sandbox::Sandbox};

/// What this sandbox is.
pub fn describe(sandbox: &Sandbox) -> DescribeResponse {
    let isolation = sandbox.native.as_ref().map(Native::isolation).unwrap_or_default();
    let mut runtimes = vec![WireRuntime::Wasm32Areev as i32, WireRuntime::Wasm32AreevIo as i32];
    if sandbox.native.is_some() {
        runtimes.push(WireRuntime::Native as i32);
    }
    let disk = sandbox.modules.disk();
    let (modules, module_bytes) = sandbox.modules.held();
    DescribeResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        engine: ENGINE.to_owned(),
        runtimes,
        default_limits: Some(wire::limits(&sandbox.bounds.limits_default)),
        max_limits: Some(wire::limits(&sandbox.bounds.limits_max)),
        max_concurrent: sandbox.admission.capacity().slots as u32,
        running: sandbox.admission.running() as u32,
        queued: sandbox.admission.queued() as u32,
        module_bytes,
        modules: modules as u32,
        compilations: sandbox.modules.compilations(),
        native_isolation: isolation.into_iter().map(str::to_owned).collect(),
        cache_loads: disk.map_or(0, DiskCache::loads),
        cache_rejections: disk.map_or(0, DiskCache::rejections),
        max_wall_clock: wire::duration(sandbox.bounds.wall_clock_max),
    }
}
