//! The namespace of a request: named, and spelt as one that can hold something.

use proto::fault::Fault;

use super::catalog::failure::invalid;
use crate::catalogue::grain::author::check_namespace_spelling;

/// Longest namespace, in bytes.
const BYTES_MAX: usize = 256;

/// Refuses what is no namespace.
pub fn check(namespace: &str) -> Result<(), Fault> {
    if namespace.is_empty() {
        return Err(invalid("namespace", "is required"));
    }
    if namespace.len() > BYTES_MAX {
        return Err(invalid("namespace", &format!("has {} bytes: give at most {BYTES_MAX}", namespace.len())));
    }
    check_namespace_spelling(namespace).map_err(|bad| invalid("namespace", &bad.rule))
}

#[cfg(test)]
mod tests {
    use proto::fault::Reason;

    use super::*;

    #[test]
    fn empty_long_and_oddly_spelt_namespaces_are_refused_by_name() {
        for namespace in ["ops", "team/ops.eu-1", "größe"] {
            check(namespace).unwrap();
        }
        for namespace in ["", " ", "a b", "*", "ops*", "a\0b", "a\nb", "\u{200b}ops", &"n".repeat(257)] {
            let fault = check(namespace).unwrap_err();
            assert_eq!(fault.reason(), Reason::InvalidArgument, "{namespace:?}");
            assert!(fault.message().starts_with("namespace "), "{}", fault.message());
        }
    }
}
