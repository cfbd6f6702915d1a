//! Where rules stand in their file: lines of keys, for who asks which rule it was.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

/// Lines by dotted key, such as `policy.allow_hosts` or `grants.pay`. Of a text that is no TOML, those of what could be read.
#[derive(Debug, Clone, Default)]
pub struct Places(BTreeMap<String, usize>);

impl Places {
    /// Reads a file's text. Tables are looked into three levels deep, which is as deep as rules go.
    pub fn of(text: &str) -> Self {
        let mut places = Self::default();
        // Of keys that come twice one has a place, and the others have theirs.
        let (table, _) = DeTable::parse_recoverable(text);
        places.walk(text, "", table.get_ref(), 0);
        places
    }

    fn walk(&mut self, text: &str, above: &str, table: &DeTable<'_>, depth: usize) {
        for (name, value) in table.iter() {
            let key = if above.is_empty() { name.get_ref().to_string() } else { format!("{above}.{}", name.get_ref()) };
            self.0.insert(key.clone(), super::line_of(text, &name.span()));
            if let (DeValue::Table(inner), true) = (value.get_ref(), depth < 2) {
                self.walk(text, &key, inner, depth + 1);
            }
        }
    }

    /// The line of a key, from 1.
    pub fn line(&self, key: &str) -> Option<usize> {
        self.0.get(key).copied()
    }
}
