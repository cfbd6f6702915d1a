//! The bounds of one call, and the meter that holds a guest to those of memory and tables.

use serde::{Deserialize, Serialize};
use wasmtime::ResourceLimiter;

/// One page of linear memory, in bytes.
pub const PAGE_BYTES: u64 = 64 * 1024;
/// Tables that a module may have; ordinary compilers make one, for indirect calls.
pub const TABLES_MAX: u32 = 1;
/// Elements that its table may have.
pub const TABLE_ELEMENTS_MAX: u64 = 10_000;
/// Memories that a module may have.
pub const MEMORIES_MAX: u32 = 1;

/// The bounds of one call, all filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Units of fuel.
    pub fuel: u64,
    /// Pages of 64 KiB, summed over memories.
    pub memory_pages: u64,
    /// Brokered calls.
    pub calls: u64,
    /// Bytes of one brokered answer's body.
    pub response_bytes: u64,
    /// Bytes of one brokered request's body.
    pub request_bytes: u64,
    /// Bytes of one blob read.
    pub blob_bytes: u64,
}

/// The bounds that a call asks for; absent members take the service's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedLimits {
    /// Units of fuel.
    pub fuel: Option<u64>,
    /// Pages of 64 KiB.
    pub memory_pages: Option<u64>,
    /// Brokered calls.
    pub calls: Option<u64>,
    /// Bytes of one brokered answer's body.
    pub response_bytes: Option<u64>,
    /// Bytes of one brokered request's body.
    pub request_bytes: Option<u64>,
    /// Bytes of one blob read.
    pub blob_bytes: Option<u64>,
}

impl Limits {
    /// What a call gets that asks for nothing.
    pub const DEFAULT: Self = Self {
        fuel: 200_000_000,
        memory_pages: 256,
        calls: 64,
        response_bytes: 1024 * 1024,
        request_bytes: 1024 * 1024,
        blob_bytes: 8 * 1024 * 1024,
    };

    /// What no call gets more of. Memory: each pooled slot is made for that many pages.
    pub const MAX: Self = Self {
        fuel: 100_000_000_000,
        memory_pages: 4096,
        calls: 1024,
        response_bytes: 8 * 1024 * 1024,
        request_bytes: 8 * 1024 * 1024,
        blob_bytes: 8 * 1024 * 1024,
    };

    /// The bounds in force: what is asked, else the default, and never more than `max`.
    pub fn resolve(asked: &AskedLimits, default: &Self, max: &Self) -> Self {
        let pick = |asked: Option<u64>, default: u64, max: u64| asked.unwrap_or(default).min(max);
        Self {
            fuel: pick(asked.fuel, default.fuel, max.fuel),
            memory_pages: pick(asked.memory_pages, default.memory_pages, max.memory_pages),
            calls: pick(asked.calls, default.calls, max.calls),
            response_bytes: pick(asked.response_bytes, default.response_bytes, max.response_bytes),
            request_bytes: pick(asked.request_bytes, default.request_bytes, max.request_bytes),
            blob_bytes: pick(asked.blob_bytes, default.blob_bytes, max.blob_bytes),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Holds one store to its memory and tables, and remembers the highest memory.
#[derive(Debug)]
pub struct Meter {
    memory_bytes_max: u64,
    memory_bytes: u64,
    peak_memory_bytes: u64,
}

impl Meter {
    /// A meter for one call.
    pub fn new(limits: &Limits) -> Self {
        let memory_bytes_max = limits.memory_pages.saturating_mul(PAGE_BYTES);
        Self { memory_bytes_max, memory_bytes: 0, peak_memory_bytes: 0 }
    }

    /// The highest linear memory so far, in bytes, summed over memories.
    pub fn peak_memory_bytes(&self) -> u64 {
        self.peak_memory_bytes
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let sum = self.memory_bytes.saturating_sub(current as u64).saturating_add(desired as u64);
        if sum > self.memory_bytes_max || maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.memory_bytes = sum;
        self.peak_memory_bytes = self.peak_memory_bytes.max(sum);
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired as u64 <= TABLE_ELEMENTS_MAX && maximum.is_none_or(|maximum| desired <= maximum))
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        TABLES_MAX as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_takes_the_default_zero_is_zero_and_the_maximum_holds() {
        let asked = AskedLimits { fuel: Some(0), memory_pages: Some(1 << 40), ..AskedLimits::default() };
        let limits = Limits::resolve(&asked, &Limits::DEFAULT, &Limits::MAX);
        assert_eq!((limits.fuel, limits.memory_pages, limits.calls), (0, 4096, 64));
    }

    #[test]
    fn memory_is_summed_and_its_peak_remembered() {
        let mut meter = Meter::new(&Limits { memory_pages: 3, ..Limits::DEFAULT });
        let page = PAGE_BYTES as usize;
        assert!(meter.memory_growing(0, page, None).unwrap());
        assert!(meter.memory_growing(0, page, None).unwrap());
        assert!(!meter.memory_growing(page, 3 * page, None).unwrap(), "three and one are four");
        assert!(!meter.memory_growing(page, 2 * page, Some(page)).unwrap(), "past the memory's own maximum");
        assert_eq!(meter.peak_memory_bytes(), 2 * PAGE_BYTES);
    }
}
