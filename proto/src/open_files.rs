//! How many files a process may have open, connections among them.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Takes as many as the system grants: the soft limit, which is low for the sake of old programs, goes up to the hard one.
///
/// # Errors
/// The system refuses it.
pub fn raise() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(())
}

/// As many connections as `wanted`, and no more than one part in `parts` of the files that may be open; one at least.
pub(crate) fn connections(wanted: usize, parts: u64) -> usize {
    within(wanted, getrlimit(Resource::Nofile).current, parts)
}

fn within(wanted: usize, files: Option<u64>, parts: u64) -> usize {
    let part = files.map_or(usize::MAX, |files| usize::try_from(files / parts.max(1)).unwrap_or(usize::MAX));
    wanted.min(part).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_a_part_of_the_files_that_may_be_open() {
        assert_eq!(within(4096, None, 2), 4096);
        assert_eq!(within(4096, Some(1 << 20), 2), 4096);
        assert_eq!(within(4096, Some(200), 2), 100);
        assert_eq!(within(4096, Some(1), 2), 1);
    }
}
