//! Long field names and the short ones that stand for them on the wire.

use std::{collections::BTreeMap, sync::LazyLock};

/// One pair a line: the long name, a space, the short one.
const TABLE: &str = include_str!("names.txt");

struct Names {
    by_long: BTreeMap<&'static str, &'static str>,
    by_short: BTreeMap<&'static str, &'static str>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let pairs = || TABLE.lines().filter_map(|line| line.split_once(' '));
    Names { by_long: pairs().collect(), by_short: pairs().map(|(long, short)| (short, long)).collect() }
});

/// The short name of a known long one.
pub fn short(long: &str) -> Option<&'static str> {
    NAMES.by_long.get(long).copied()
}

/// The long name of a known short one.
pub fn long(short: &str) -> Option<&'static str> {
    NAMES.by_short.get(short).copied()
}

/// What a name is on the wire: its short form if it has one.
pub fn compact(name: &str) -> &str {
    short(name).unwrap_or(name)
}

/// Whether the name has a short form that differs from it.
pub fn is_abbreviated(name: &str) -> bool {
    short(name).is_some_and(|short| short != name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_reads_in_both_directions() {
        assert_eq!(TABLE.lines().count(), 234);
        assert_eq!(NAMES.by_long.len(), 234);
        assert_eq!(NAMES.by_short.len(), 234);
        assert_eq!(
            (short("tool_name"), long("tn"), compact("no such name")),
            (Some("tn"), Some("tool_name"), "no such name")
        );
    }
}
