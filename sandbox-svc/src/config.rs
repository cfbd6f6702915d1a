//! What the operator says: flags over environment over one TOML file.

mod args;
mod compiling;

use std::{path::PathBuf, time::Duration};

use humantime::format_duration;
use proto::serve::{ServeError, ServeSettings};

pub use args::{Args, Command};

use crate::{
    admission::Capacity,
    compile::Compiler,
    jail::THIS_PROGRAM,
    limits::{AskedLimits, Limits},
    module_cache::{CacheBounds, disk::DiskSettings},
    native::NativeSettings,
    sandbox::Bounds,
};

/// The service's own ports: gRPC and admin.
pub const PORTS: (u16, u16) = (7420, 7421);

/// Slots for each core: guests that wait for the broker use none of it.
const SLOTS_PER_CORE: usize = 4;
/// Most slots: each reserves address space.
const SLOTS_MAX: usize = 1024;
/// Places in the queue.
const QUEUE: usize = 256;
const QUEUE_MAX: usize = 65_536;
/// What one tenant may take of slots and queue.
const TENANT_PERCENT: u8 = 75;
const WALL_CLOCK: Duration = Duration::from_secs(300);
const WALL_CLOCK_MIN: Duration = Duration::from_secs(1);
const WALL_CLOCK_MAX: Duration = Duration::from_secs(3600);
const MODULE_BYTES: u64 = 16 * 1024 * 1024;
const PAYLOAD_BYTES: usize = 8 * 1024 * 1024;
const UPLOADED_BYTES: u64 = 256 * 1024 * 1024;
const COMPILED_BYTES: u64 = 512 * 1024 * 1024;
/// All of a 32-bit memory.
const PAGES_MAX: u64 = 65_536;

/// The settings in force.
#[derive(Debug)]
pub struct Config {
    /// How to serve.
    pub serve: ServeSettings,
    /// The broker's URL.
    pub broker_urls: Vec<String>,
    /// Native execution; absent when it is off.
    pub native: Option<NativeSettings>,
    /// Guests at once, and calls that may wait.
    pub capacity: Capacity,
    /// The service's bounds.
    pub bounds: Bounds,
    /// The cache's bounds.
    pub cache: CacheBounds,
    /// Who compiles, within what.
    pub compiler: Compiler,
    /// The cache on disk, if there is one.
    pub disk: Option<DiskSettings>,
}

/// The settings do not make sense; the text names the flag.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Serving.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A number is out of its range.
    #[error("--{flag} {value}: write a number from {min} to {max}")]
    Range {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// No call could end in so short a time, or the time is too long.
    #[error(
        "--max-wall-clock {}: write a time from {} to {}",
        format_duration(*.0),
        format_duration(WALL_CLOCK_MIN),
        format_duration(WALL_CLOCK_MAX)
    )]
    WallClock(Duration),
    /// A flag needs another one.
    #[error("--{0} has no use without --cache-dir: add it, or leave the flag out")]
    NoCacheDir(&'static str),
}

impl Args {
    /// Checks everything and fills in the defaults.
    pub fn resolve(&self) -> Result<Config, ConfigError> {
        let (capacity, limits_max) = (&self.capacity, self.limits_max()?);
        let limits_default = self.limits_default(&limits_max)?;
        let slots = capacity.max_concurrent.unwrap_or_else(default_slots);
        let queue = capacity.queue.unwrap_or(QUEUE);
        within("max-concurrent", slots as u64, 1, SLOTS_MAX as u64)?;
        within("queue", queue as u64, 0, QUEUE_MAX as u64)?;
        let tenant_percent = capacity.tenant_percent.unwrap_or(TENANT_PERCENT);
        within("tenant-percent", u64::from(tenant_percent), 1, 100)?;
        let wall_clock_max = capacity.max_wall_clock.map_or(WALL_CLOCK, |length| length.0);
        if !(WALL_CLOCK_MIN..=WALL_CLOCK_MAX).contains(&wall_clock_max) {
            return Err(ConfigError::WallClock(wall_clock_max));
        }
        let module_bytes_max = capacity.max_module_bytes.unwrap_or(MODULE_BYTES);
        within("max-module-bytes", module_bytes_max, 1, 16 * MODULE_BYTES)?;
        let uploaded_bytes = capacity.module_cache_bytes.unwrap_or(UPLOADED_BYTES);
        within("module-cache-bytes", uploaded_bytes, module_bytes_max, u64::MAX)?;
        let payload = |flag, value: Option<usize>| {
            let value = value.unwrap_or(PAYLOAD_BYTES);
            within(flag, value as u64, 1, 2 * PAYLOAD_BYTES as u64).map(|()| value)
        };
        let bounds = Bounds {
            limits_default,
            limits_max,
            wall_clock_max,
            module_bytes_max,
            input_bytes_max: payload("max-input-bytes", capacity.max_input_bytes)?,
            output_bytes_max: payload("max-output-bytes", capacity.max_output_bytes)?,
        };
        let compiled_bytes = capacity.compiled_cache_bytes.unwrap_or(COMPILED_BYTES);
        let cache = CacheBounds { uploaded_bytes, compiled_bytes, pages_max: limits_max.memory_pages };
        let serve = self.serve.resolve(PORTS)?;
        let (compiler, disk) = self.compiling.resolve()?;
        Ok(Config {
            serve,
            broker_urls: self.broker_url.clone(),
            native: self.native(),
            capacity: Capacity { slots, queue, tenant_percent },
            bounds,
            cache,
            compiler,
            disk,
        })
    }

    fn limits_max(&self) -> Result<Limits, ConfigError> {
        let asked = &self.limits;
        let max = Limits::MAX;
        let limits = Limits {
            fuel: asked.fuel_max.unwrap_or(max.fuel),
            memory_pages: asked.memory_pages_max.unwrap_or(max.memory_pages),
            calls: asked.calls_max.unwrap_or(max.calls),
            response_bytes: asked.response_bytes_max.unwrap_or(max.response_bytes),
            request_bytes: asked.request_bytes_max.unwrap_or(max.request_bytes),
            blob_bytes: max.blob_bytes,
        };
        within("memory-pages-max", limits.memory_pages, 1, PAGES_MAX)?;
        within("calls-max", limits.calls, 0, u64::from(u32::MAX))?;
        within("response-bytes-max", limits.response_bytes, 0, max.response_bytes)?;
        within("request-bytes-max", limits.request_bytes, 0, max.request_bytes)?;
        Ok(limits)
    }

    fn limits_default(&self, max: &Limits) -> Result<Limits, ConfigError> {
        let asked = &self.limits;
        let given = [
            ("fuel", asked.fuel, max.fuel),
            ("memory-pages", asked.memory_pages, max.memory_pages),
            ("calls", asked.calls, max.calls),
            ("response-bytes", asked.response_bytes, max.response_bytes),
            ("request-bytes", asked.request_bytes, max.request_bytes),
        ];
        for (flag, value, max) in given {
            within(flag, value.unwrap_or(0), 0, max)?;
        }
        let asked = AskedLimits {
            fuel: asked.fuel,
            memory_pages: asked.memory_pages,
            calls: asked.calls,
            response_bytes: asked.response_bytes,
            request_bytes: asked.request_bytes,
            blob_bytes: None,
        };
        Ok(Limits::resolve(&asked, &Limits::DEFAULT, max))
    }

    fn native(&self) -> Option<NativeSettings> {
        // A blob has a working directory of its own. An empty path is left as it is, and is not there.
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let (dir, read) = (self.native_dir.as_ref().map(absolute), self.native_read.iter().map(absolute).collect());
        self.allow_native.unwrap_or(false).then(|| NativeSettings { dir, jail: THIS_PROGRAM.into(), read })
    }
}

fn default_slots() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    (cores * SLOTS_PER_CORE).min(SLOTS_MAX)
}

fn within(flag: &'static str, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ConfigError::Range { flag, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use proto::serve::Drain;

    use super::*;

    fn refusal(change: impl FnOnce(&mut Args)) -> String {
        let mut args = Args::default();
        change(&mut args);
        args.resolve().unwrap_err().to_string()
    }

    #[test]
    fn without_flags_the_defaults_are_in_force() {
        let config = Args::default().resolve().unwrap();
        assert_eq!(config.bounds.limits_default, Limits::DEFAULT);
        assert!(config.native.is_none() && config.broker_urls.is_empty() && config.disk.is_none());
        assert_eq!(config.serve.listen.to_string(), "127.0.0.1:7420");
    }

    #[test]
    fn a_number_out_of_its_range_is_refused_by_its_flag() {
        assert!(refusal(|args| args.capacity.max_concurrent = Some(0)).contains("--max-concurrent 0"));
        for (wrong, told) in [(0, "0s"), (999, "999ms"), (3_600_001, "1h 1ms")] {
            let refused = refusal(|args| args.capacity.max_wall_clock = Some(Drain(Duration::from_millis(wrong))));
            assert_eq!(refused, format!("--max-wall-clock {told}: write a time from 1s to 1h"));
        }
        assert!(refusal(|args| args.limits.memory_pages_max = Some(65_537)).contains("--memory-pages-max 65537"));
        let over = refusal(|args| (args.limits.fuel, args.limits.fuel_max) = (Some(11), Some(10)));
        assert!(over.contains("--fuel 11: write a number from 0 to 10"), "{over}");
        assert!(refusal(|args| args.capacity.module_cache_bytes = Some(1)).contains("--module-cache-bytes"));
        assert!(refusal(|args| args.capacity.tenant_percent = Some(0)).contains("--tenant-percent 0"));
        assert!(refusal(|args| args.compiling.compile_cpu_seconds = Some(0)).contains("--compile-cpu-seconds 0"));
        assert!(refusal(|args| args.compiling.cache_bytes = Some(1)).contains("--cache-dir"));
    }

    #[test]
    fn what_is_printed_is_a_settings_file_that_says_the_same() {
        let args = Args::default();
        let printed = args.print(&args.resolve().unwrap()).unwrap();
        let read: Args = toml::from_str(&printed).unwrap();
        assert_eq!(read.print(&read.resolve().unwrap()).unwrap(), printed);
    }
}
