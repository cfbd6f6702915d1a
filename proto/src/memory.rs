//! No image of a process's memory is made that holds tokens or secrets.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// No core file, and no other process of the same user reads the memory or the environment.
///
/// # Errors
/// The system refuses it.
pub fn keep_private() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
