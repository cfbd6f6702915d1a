//! Schemas that were read lately: the same text is the same schema, so what is kept here changes no answer.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use content_digest::Digest;
use serde_json::Value;

use super::{BadSchema, Schema};

/// Schemas that are kept.
const SCHEMAS_KEPT_MAX: usize = 256;
/// Bytes that the patterns of the kept schemas may take.
const PATTERN_BYTES_KEPT_MAX: usize = 64 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { schemas: BTreeMap::new(), pattern_bytes: 0 });

struct Kept {
    schemas: BTreeMap<Digest, Arc<Schema>>,
    pattern_bytes: usize,
}

/// A schema, read if it was not lately.
///
/// # Errors
/// It cannot be used.
pub fn of(document: &Value) -> Result<Arc<Schema>, BadSchema> {
    let address = Digest::of(document.to_string());
    let found = KEPT.lock().unwrap_or_else(PoisonError::into_inner).schemas.get(&address).cloned();
    match found {
        Some(schema) => Ok(schema),
        None => {
            let schema = Arc::new(Schema::read(document)?);
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).keep(address, &schema);
            Ok(schema)
        }
    }
}

impl Kept {
    /// Makes room by forgetting what comes first by address: any is as good as another.
    fn keep(&mut self, address: Digest, schema: &Arc<Schema>) {
        let has_room = |kept: &Self| {
            kept.schemas.len() < SCHEMAS_KEPT_MAX
                && kept.pattern_bytes.saturating_add(schema.pattern_bytes) <= PATTERN_BYTES_KEPT_MAX
        };
        while !has_room(self) {
            let Some((_, forgotten)) = self.schemas.pop_first() else { break };
            self.pattern_bytes -= forgotten.pattern_bytes;
        }
        if self.schemas.insert(address, Arc::clone(schema)).is_none() {
            self.pattern_bytes += schema.pattern_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_is_bounded_in_number_and_bytes() {
        let mut kept = Kept { schemas: BTreeMap::new(), pattern_bytes: 0 };
        for number in 0..1000 {
            // Counted as a mebibyte, so a few dozen of them fill the room.
            let document = json!({"type": "object", "properties": {"a": {"pattern": format!("a{{12000}}{number}")}}});
            if number < 80 {
                let schema = Arc::new(Schema::read(&document).unwrap());
                kept.keep(Digest::of(document.to_string()), &schema);
            } else {
                let plain = json!({"type": "object", "title": number.to_string()});
                kept.keep(Digest::of(plain.to_string()), &Arc::new(Schema::read(&plain).unwrap()));
            }
            assert!(kept.schemas.len() <= SCHEMAS_KEPT_MAX && kept.pattern_bytes <= PATTERN_BYTES_KEPT_MAX);
            let held: usize = kept.schemas.values().map(|schema| schema.pattern_bytes).sum();
            assert_eq!(held, kept.pattern_bytes);
        }
        assert_eq!(kept.schemas.len(), SCHEMAS_KEPT_MAX);
    }
}
