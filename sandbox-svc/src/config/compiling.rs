//! What compiling may cost, and where compiled code is kept.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{ConfigError, within};
use crate::{
    compile::{CompileLimits, Compiler},
    module_cache::disk::DiskSettings,
};

const CPU_SECONDS_MAX: u64 = 600;
/// Less would not even start the child.
const MEMORY_BYTES_MIN: u64 = 128 * 1024 * 1024;
const DISK_BYTES: u64 = 1024 * 1024 * 1024;

/// Compiling, and the cache on disk.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Compiling")]
#[serde(default, deny_unknown_fields)]
pub struct CompilingArgs {
    /// CPU time that compiling a module may take, in seconds for each 512 KiB of its functions [default: 2]
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_cpu_seconds: Option<u64>,
    /// Memory that compiling a module may take, in bytes [default: 1073741824]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_memory_bytes: Option<u64>,
    /// Directory where compiled code is kept over restarts; without it nothing is kept
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_dir: Option<PathBuf>,
    /// File with the key that seals what is kept, at least 32 bytes; this user's or root's, and writable by nobody else
    /// [default: a new one in the directory]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_key_file: Option<PathBuf>,
    /// Bytes that are kept in the directory [default: 1073741824]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
}

impl CompilingArgs {
    /// Checks everything and fills in the defaults.
    pub fn resolve(&self) -> Result<(Compiler, Option<DiskSettings>), ConfigError> {
        let limits = CompileLimits {
            cpu_seconds: self.compile_cpu_seconds.unwrap_or(CompileLimits::DEFAULT.cpu_seconds),
            memory_bytes: self.compile_memory_bytes.unwrap_or(CompileLimits::DEFAULT.memory_bytes),
        };
        within("compile-cpu-seconds", limits.cpu_seconds, 1, CPU_SECONDS_MAX)?;
        within("compile-memory-bytes", limits.memory_bytes, MEMORY_BYTES_MIN, u64::MAX)?;
        let compiler = Compiler::own(limits);
        let Some(dir) = self.cache_dir.clone() else {
            return match (&self.cache_key_file, self.cache_bytes) {
                (Some(_), _) => Err(ConfigError::NoCacheDir("cache-key-file")),
                (None, Some(_)) => Err(ConfigError::NoCacheDir("cache-bytes")),
                (None, None) => Ok((compiler, None)),
            };
        };
        let bytes_max = self.cache_bytes.unwrap_or(DISK_BYTES);
        Ok((compiler, Some(DiskSettings { dir, key_file: self.cache_key_file.clone(), bytes_max })))
    }

    /// The settings in force.
    pub fn filled(limits: &CompileLimits, disk: Option<&DiskSettings>) -> Self {
        Self {
            compile_cpu_seconds: Some(limits.cpu_seconds),
            compile_memory_bytes: Some(limits.memory_bytes),
            cache_dir: disk.map(|disk| disk.dir.clone()),
            cache_key_file: disk.and_then(|disk| disk.key_file.clone()),
            cache_bytes: disk.map(|disk| disk.bytes_max),
        }
    }
}
